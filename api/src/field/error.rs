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
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    /// First words of the message, as in `field.Error` of `k8s.io/apimachinery`.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid value",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooMany => "Too many",
        }
    }
}

/// One error about one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Error {
    /// Path of the field.
    pub field: String,
    /// Kind of the error.
    pub reason: Reason,
    /// The value, what is required, and what to do; without the path, in one line.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
