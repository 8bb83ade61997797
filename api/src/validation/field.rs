//! Where a field is, and what is wrong with it, in the words that Kubernetes itself uses.
//!
//! A rule gets the [`Path`] of what it looks at and the [`Errors`] that it adds to:
//!
//! ```
//! use jobset_api::validation::{Errors, Path};
//!
//! let spec = Path::root("spec");
//! let jobs = spec.child("replicatedJobs");
//! let mut errors = Errors::default();
//! errors.invalid(&jobs.index(0).child("replicas"), -1, "must not be negative");
//! assert_eq!(errors.to_string(), "spec.replicatedJobs[0].replicas: Invalid value: -1: must not be negative");
//! ```
//!
//! Rules never stop at the first error: a person mends a manifest in one go. A path borrows its parent and is written
//! out only when there is an error to report, so that checking a correct object allocates nothing for it.

use std::fmt;

use serde::Serialize;

use super::known::Known;

/// Longest value and longest path that is shown, in characters. Objects are cut off here, so that one bad field cannot
/// fill the answer.
const SHOWN: usize = 256;
/// Longest text of what is required, in characters: some texts name other values of the object.
const TEXT: usize = 512;
/// Most errors that are kept; of those after them, only the number. All of them together fit into the message of a
/// condition (32,768 characters), and an object made of errors costs no more memory than any other.
const KEPT: usize = 30;
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
    Key(&'a str),
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

    /// An entry of this map.
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), element: Element::Key(key) }
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
            (_, Element::Key(key)) => write!(f, "[{}]", key.escape_debug()),
        }
    }
}

/// Kind of an error, by the reason that a Status names it with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The value is malformed or out of bounds.
    Invalid,
    /// There is no value, and there has to be one.
    Required,
    /// The value is there already, and has to be unique.
    Duplicate,
    /// The value names something that does not exist.
    NotFound,
    /// The value is not one of those that there are.
    NotSupported,
    /// The field must not be set, here or now.
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

    /// What the message begins with.
    fn title(self) -> &'static str {
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

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Error {
    /// Path of the field.
    pub field: String,
    /// Kind of the error.
    pub reason: Reason,
    /// Value found, what is required, and what to do, without the path. One line.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// All that is wrong with an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    kept: Vec<Error>,
    omitted: usize,
    known: Known,
}

impl Errors {
    /// The value found is not one that is required.
    pub fn invalid(&mut self, field: &Path<'_>, found: impl Serialize, required: impl fmt::Display) {
        self.push(field, Reason::Invalid, Some(&found), &required);
    }

    /// There is no value. `required` says what it has to be.
    pub fn required(&mut self, field: &Path<'_>, required: impl fmt::Display) {
        self.push(field, Reason::Required, None::<&()>, &required);
    }

    /// The value found is there already.
    pub fn duplicate(&mut self, field: &Path<'_>, found: impl Serialize, required: impl fmt::Display) {
        self.push(field, Reason::Duplicate, Some(&found), &required);
    }

    /// The value found names nothing that exists.
    pub fn not_found(&mut self, field: &Path<'_>, found: impl Serialize, required: impl fmt::Display) {
        self.push(field, Reason::NotFound, Some(&found), &required);
    }

    /// The value found is none of those that `supported` lists.
    pub fn not_supported(&mut self, field: &Path<'_>, found: impl Serialize, supported: impl fmt::Display) {
        self.push(field, Reason::NotSupported, Some(&found), &format_args!("supported values: {supported}"));
    }

    /// The field must not be set. `reason` says why, and what to do instead.
    pub fn forbidden(&mut self, field: &Path<'_>, reason: impl fmt::Display) {
        self.push(field, Reason::Forbidden, None::<&()>, &reason);
    }

    /// The list has this many entries.
    pub fn too_many(&mut self, field: &Path<'_>, found: usize, required: impl fmt::Display) {
        self.push(field, Reason::TooMany, Some(&found), &required);
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.omitted == 0
    }

    /// The errors, in the order in which the rules found them; the first thirty of very many.
    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.kept.iter()
    }

    /// How many errors there are besides those of [`Errors::iter`].
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    /// Takes errors that [`Self::new_ones`] leaves out.
    pub(super) fn known() -> Self {
        Self { known: Known::learn(), ..Self::default() }
    }

    /// Takes errors but for those that this has taken, word for word.
    #[must_use]
    pub(super) fn new_ones(self) -> Self {
        Self { known: self.known.leave_out(), ..Self::default() }
    }

    /// Adds these errors after its own.
    pub fn append(&mut self, other: Self) {
        let room = KEPT.saturating_sub(self.kept.len()).min(other.kept.len());
        self.omitted += other.kept.len() - room + other.omitted;
        self.kept.extend(other.kept.into_iter().take(room));
    }

    fn push(&mut self, field: &Path<'_>, reason: Reason, found: Option<&impl Serialize>, text: &dyn fmt::Display) {
        if self.kept.len() == KEPT {
            self.omitted += 1;
            return;
        }
        let (title, text) = (reason.title(), cut(text.to_string(), TEXT));
        let message = match found {
            Some(found) => format!("{title}: {}: {text}", shown(found)),
            None => format!("{title}: {text}"),
        };
        let error = Error { field: cut(field.to_string(), SHOWN), reason, message };
        if self.known.lets_pass(&error) {
            self.kept.push(error);
        }
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
    /// All of it on one line: `field: message; field: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.kept.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{error}")?;
        }
        if self.omitted > 0 {
            write!(f, "; and {} more", self.omitted)?;
        }
        Ok(())
    }
}

/// A value as JSON: text in quotes, numbers bare.
pub(super) fn shown(value: &impl Serialize) -> String {
    cut(serde_json::to_string(value).unwrap_or_else(|_| "(unprintable)".to_owned()), SHOWN)
}

/// At most this many characters.
fn cut(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most) {
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
        let annotations = Path::root("metadata.annotations");
        assert_eq!(annotations.key("example.com/a").to_string(), "metadata.annotations[example.com/a]");
        assert_eq!(annotations.key("a\nb").to_string(), r"metadata.annotations[a\nb]");
    }

    #[test]
    fn all_errors_are_one_line() {
        let spec = Path::root("spec");
        let mut errors = Errors::default();
        errors.required(&spec.child("a"), "must be 1");
        assert_eq!(errors.to_string(), "spec.a: Required value: must be 1");
        errors.invalid(&spec.child("b"), "x\ny", "must be y");
        assert_eq!(
            errors.to_string(),
            r#"spec.a: Required value: must be 1; spec.b: Invalid value: "x\ny": must be y"#
        );
    }

    #[test]
    fn each_kind_of_error_has_the_words_of_kubernetes() {
        let a = Path::root("a");
        let mut errors = Errors::default();
        errors.invalid(&a, -1, "must not be negative");
        errors.required(&a, "must be set");
        errors.duplicate(&a, "x", "must be unique");
        errors.not_found(&a, "x", "must exist");
        errors.not_supported(&a, "x", "y, z");
        errors.forbidden(&a, "not now");
        errors.too_many(&a, 51, "must have at most 50 items");
        let written: Vec<_> = errors.iter().map(|error| (error.reason.as_str(), error.message.as_str())).collect();
        assert_eq!(
            written,
            [
                ("FieldValueInvalid", "Invalid value: -1: must not be negative"),
                ("FieldValueRequired", "Required value: must be set"),
                ("FieldValueDuplicate", r#"Duplicate value: "x": must be unique"#),
                ("FieldValueNotFound", r#"Not found: "x": must exist"#),
                ("FieldValueNotSupported", r#"Unsupported value: "x": supported values: y, z"#),
                ("FieldValueForbidden", "Forbidden: not now"),
                ("FieldValueTooMany", "Too many: 51: must have at most 50 items"),
            ]
        );
    }

    #[test]
    fn a_long_value_is_cut_off_between_characters() {
        let mut errors = Errors::default();
        errors.invalid(&Path::root(&"p".repeat(10_000)), "ü".repeat(10_000), "must be short");
        let text = errors.to_string();
        assert!(text.chars().count() < 600, "{}", text.len());
        assert!(text.ends_with("…: must be short"));
    }

    #[test]
    fn very_many_errors_are_counted_and_not_kept() {
        let path = Path::root("a");
        let errors = |count: usize| {
            let mut errors = Errors::default();
            (0..count).for_each(|index| errors.invalid(&path, index, "must not be"));
            errors
        };
        assert!(errors(31).to_string().ends_with("Invalid value: 29: must not be; and 1 more"));
        assert_eq!((errors(31).iter().count(), errors(31).omitted()), (30, 1));
        let mut both = errors(20);
        both.append(errors(35));
        assert_eq!((both.iter().count(), both.omitted()), (30, 25));
    }

    #[test]
    fn the_longest_errors_fit_into_the_message_of_a_condition() {
        let long = "ü".repeat(10_000);
        let mut errors = Errors::default();
        (0..100).for_each(|_| errors.not_supported(&Path::root(&long), &long, &long));
        assert!(errors.to_string().chars().count() <= 32_768);
    }

    #[test]
    fn new_errors_are_those_that_are_not_known_word_for_word_however_many_these_are() {
        let path = Path::root("a");
        let mut known = Errors::known();
        (0..50).for_each(|found| known.invalid(&path, found, "must not be"));
        let mut errors = known.new_ones();
        (1..50).for_each(|found| errors.invalid(&path, found, "must not be"));
        assert!(errors.is_empty(), "{errors}");
        errors.invalid(&path, 50, "must not be");
        assert_eq!(errors.to_string(), "a: Invalid value: 50: must not be");
    }
}
