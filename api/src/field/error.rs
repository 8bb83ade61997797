//! One error about one field, and its reason as a Kubernetes Status names it.

use std::fmt;

/// Kind of a field error. A Kubernetes Status has a reason for each (`metav1.CauseType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value is required and absent.
    Required,
    /// The value must be unique and is not.
    Duplicate,
    /// The value names something that does not exist.
    NotFound,
    /// The value is not one of the supported values.
    NotSupported,
    /// The field must not be set.
    Forbidden,
    /// The list is too long.
    TooMany,
}

impl Reason {
    /// `reason` of a cause in a Status.
    pub fn as_str(self) -> &'static str {
        self.names().0
    }

    /// First words of the message, as in `field.Error` of `k8s.io/apimachinery`.
    pub(super) fn title(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Invalid => ("FieldValueInvalid", "Invalid value"),
            Self::Required => ("FieldValueRequired", "Required value"),
            Self::Duplicate => ("FieldValueDuplicate", "Duplicate value"),
            Self::NotFound => ("FieldValueNotFound", "Not found"),
            Self::NotSupported => ("FieldValueNotSupported", "Unsupported value"),
            Self::Forbidden => ("FieldValueForbidden", "Forbidden"),
            Self::TooMany => ("FieldValueTooMany", "Too many"),
        }
    }
}

/// One error about one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Error {
    pub field: String,
    pub reason: Reason,
    /// The value, what is required, and what to do; without the path, in one line.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
