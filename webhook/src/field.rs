//! Where a field is, and what is wrong with it, in the words that Kubernetes itself uses.
//!
//! A rule gets the [`Path`] of what it looks at and the [`Errors`] that it adds to:
//!
//! ```
//! use jobset_webhook::field::{Errors, Path};
//!
//! let spec = Path::root("spec");
//! let jobs = spec.child("replicatedJobs");
//! let mut errors = Errors::default();
//! errors.invalid(&jobs.index(0).child("replicas"), -1, "must not be negative");
//! assert_eq!(errors.to_string(), "spec.replicatedJobs[0].replicas: Invalid value: -1: must not be negative");
//! ```
//!
//! Rules never stop at the first error: a person mends a manifest in one go. A path borrows its parent and is written
//! out only when there is an error to report, so that checking a correct object allocates nothing.

use std::fmt;

use kube::core::response::StatusCause;
use serde::Serialize;

/// Longest value that is shown. Objects are cut off here, so that one bad field cannot fill the answer.
const SHOWN: usize = 256;

/// Path of a field, such as `spec.replicatedJobs[0].name`.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    element: Element<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Element<'a> {
    Field(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    /// A field of the object itself.
    pub fn root(field: &'a str) -> Self {
        Self { parent: None, element: Element::Field(field) }
    }

    /// A field below this one. Several steps at once are written with dots: `template.spec.backoffLimit`.
    #[must_use]
    pub fn child(&'a self, field: &'a str) -> Self {
        Self { parent: Some(self), element: Element::Field(field) }
    }

    /// An entry of this list.
    #[must_use]
    pub fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), element: Element::Index(index) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match (self.parent, self.element) {
            (None, Element::Field(field)) => f.write_str(field),
            (Some(_), Element::Field(field)) => write!(f, ".{field}"),
            (_, Element::Index(index)) => write!(f, "[{index}]"),
        }
    }
}

/// Kind of an error, by the reason that a Status names it with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The value is malformed or not allowed.
    Invalid,
    /// There is no value, and there has to be one.
    Required,
}

impl Reason {
    /// `reason` of a cause in a Status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
        }
    }
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Path of the field.
    pub field: String,
    /// Kind of the error.
    pub reason: Reason,
    /// Value found, and what is required, without the path.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// All that is wrong with an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors(Vec<Error>);

impl Errors {
    /// The value found is not one that is required.
    pub fn invalid(&mut self, field: &Path<'_>, found: impl Serialize, required: &str) {
        let message = format!("Invalid value: {}: {required}", shown(&found));
        self.push(field, Reason::Invalid, message);
    }

    /// There is no value. `required` says what it has to be.
    pub fn required(&mut self, field: &Path<'_>, required: &str) {
        self.push(field, Reason::Required, format!("Required value: {required}"));
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The errors, in the order in which the rules found them.
    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.0.iter()
    }

    /// The errors as the causes of a Status.
    pub fn causes(&self) -> Vec<StatusCause> {
        self.iter()
            .map(|error| StatusCause {
                reason: error.reason.as_str().to_owned(),
                message: error.message.clone(),
                field: error.field.clone(),
            })
            .collect()
    }

    fn push(&mut self, field: &Path<'_>, reason: Reason, message: String) {
        self.0.push(Error { field: field.to_string(), reason, message });
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a Error;
    type IntoIter = std::slice::Iter<'a, Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Errors {
    /// One error as it is, several in brackets, as Kubernetes writes them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [error] => error.fmt(f),
            errors => {
                let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", errors.join(", "))
            }
        }
    }
}

/// A value as JSON: text in quotes, numbers bare.
fn shown(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_else(|_| "(unprintable)".to_owned());
    if let Some((end, _)) = text.char_indices().nth(SHOWN) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_as_kubernetes_writes_it() {
        let spec = Path::root("spec");
        let jobs = spec.child("replicatedJobs");
        let job = jobs.index(3);
        assert_eq!(
            job.child("template.spec").child("backoffLimit").to_string(),
            "spec.replicatedJobs[3].template.spec.backoffLimit"
        );
    }

    #[test]
    fn one_error_stands_alone_and_several_in_brackets() {
        let spec = Path::root("spec");
        let mut errors = Errors::default();
        errors.required(&spec.child("a"), "must be 1");
        assert_eq!(errors.to_string(), "spec.a: Required value: must be 1");
        errors.invalid(&spec.child("b"), "x", "must be y");
        assert_eq!(errors.to_string(), r#"[spec.a: Required value: must be 1, spec.b: Invalid value: "x": must be y]"#);
    }

    #[test]
    fn a_long_value_is_cut_off_between_characters() {
        let mut errors = Errors::default();
        errors.invalid(&Path::root("spec"), "ü".repeat(10_000), "must be short");
        let text = errors.to_string();
        assert!(text.chars().count() < 400, "{}", text.len());
        assert!(text.ends_with("…: must be short"));
    }

    #[test]
    fn causes_carry_field_reason_and_message() {
        let mut errors = Errors::default();
        errors.invalid(&Path::root("spec").child("replicas"), -1, "must not be negative");
        errors.required(&Path::root("spec").child("name"), "");
        let causes = errors.causes();
        assert_eq!(causes[0].field, "spec.replicas");
        assert_eq!(causes[0].reason, "FieldValueInvalid");
        assert_eq!(causes[0].message, "Invalid value: -1: must not be negative");
        assert_eq!(causes[1].reason, "FieldValueRequired");
    }
}
