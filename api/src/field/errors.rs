//! The list of errors about one object. It limits the number and the length of the errors.

use std::fmt;

use serde::Serialize;

use super::error::{Error, Reason};
use super::path::Path;
use super::previous::PreviousErrors;

/// Maximum length of a value and of a path, in characters. Longer ones are cut off, so that one field cannot fill the
/// response.
const SHOWN: usize = 256;
/// Maximum length of the text that says what is required, in characters. Some of these texts quote other values.
const TEXT: usize = 512;
/// Maximum number of errors that are kept. Further errors are only counted. All kept errors fit into the message of a
/// condition (32,768 characters). The limit also bounds the memory for an object with many errors.
const KEPT: usize = 30;

/// The errors about one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    kept: Vec<Error>,
    omitted: usize,
    previous: PreviousErrors,
}

impl Errors {
    /// Adds an error: the value is malformed or out of bounds.
    pub fn invalid(&mut self, field: &Path<'_>, found: impl Serialize, required: impl fmt::Display) {
        self.push(field, Reason::Invalid, Some(&found), &required);
    }

    /// Adds an error: the value is absent. `required` says what it must be.
    pub fn required(&mut self, field: &Path<'_>, required: impl fmt::Display) {
        self.push(field, Reason::Required, None::<&()>, &required);
    }

    /// Adds an error: the value is not what it must be, or is absent.
    pub fn wrong(&mut self, field: &Path<'_>, found: Option<impl Serialize>, required: impl fmt::Display) {
        match found {
            Some(found) => self.invalid(field, found, required),
            None => self.required(field, required),
        }
    }

    /// Adds an error: the value is not unique.
    pub fn duplicate(&mut self, field: &Path<'_>, found: impl Serialize, required: impl fmt::Display) {
        self.push(field, Reason::Duplicate, Some(&found), &required);
    }

    /// Adds an error: the value names something that does not exist.
    pub fn not_found(&mut self, field: &Path<'_>, found: impl Serialize, required: impl fmt::Display) {
        self.push(field, Reason::NotFound, Some(&found), &required);
    }

    /// Adds an error: the value is none of those that `supported` lists.
    pub fn not_supported(&mut self, field: &Path<'_>, found: impl Serialize, supported: impl fmt::Display) {
        self.push(field, Reason::NotSupported, Some(&found), &format_args!("supported values: {supported}"));
    }

    /// Adds an error: the field must not be set. `reason` says why, and what to do instead.
    pub fn forbidden(&mut self, field: &Path<'_>, reason: impl fmt::Display) {
        self.push(field, Reason::Forbidden, None::<&()>, &reason);
    }

    /// Adds an error: the list is too long. `found` is its number of entries.
    pub fn too_many(&mut self, field: &Path<'_>, found: usize, required: impl fmt::Display) {
        self.push(field, Reason::TooMany, Some(&found), &required);
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.omitted == 0
    }

    /// The errors in the order of the rules, at most the first thirty.
    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.kept.iter()
    }

    /// Number of errors beyond those of [`Errors::iter`].
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    /// A list that keeps no error and records all of them for [`Self::into_filter`].
    pub(crate) fn recorder() -> Self {
        Self { previous: PreviousErrors::recorder(), ..Self::default() }
    }

    /// A list that keeps every error except those that this recorder has recorded with the same text.
    #[must_use]
    pub(crate) fn into_filter(self) -> Self {
        Self { previous: self.previous.into_filter(), ..Self::default() }
    }

    /// Appends the errors of another list.
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
        if self.previous.keeps(&error) {
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
    /// All errors in one line: `field: message; field: message`.
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

/// The value as JSON, cut off at the maximum length.
pub(crate) fn shown(value: &impl Serialize) -> String {
    cut(serde_json::to_string(value).unwrap_or_else(|_| "(unprintable)".to_owned()), SHOWN)
}

/// Cuts the text off after this number of characters.
fn cut(mut text: String, length: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(length) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_display_is_one_line() {
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
    fn error_message_of_each_reason_matches_kubernetes() {
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
    fn error_with_long_value_is_cut_off_between_characters() {
        let mut errors = Errors::default();
        errors.invalid(&Path::root(&"p".repeat(10_000)), "ü".repeat(10_000), "must be short");
        let text = errors.to_string();
        assert!(text.chars().count() < 600, "{}", text.len());
        assert!(text.ends_with("…: must be short"));
    }

    #[test]
    fn errors_beyond_limit_are_counted_and_not_kept() {
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
    fn errors_of_maximum_length_fit_into_condition_message() {
        let long = "ü".repeat(10_000);
        let mut errors = Errors::default();
        (0..100).for_each(|_| errors.not_supported(&Path::root(&long), &long, &long));
        assert!(errors.to_string().chars().count() <= 32_768);
    }

    #[test]
    fn filter_after_many_recorded_errors_keeps_only_new_errors() {
        let path = Path::root("a");
        let mut previous = Errors::recorder();
        (0..50).for_each(|found| previous.invalid(&path, found, "must not be"));
        let mut errors = previous.into_filter();
        (1..50).for_each(|found| errors.invalid(&path, found, "must not be"));
        assert!(errors.is_empty(), "{errors}");
        errors.invalid(&path, 50, "must not be");
        assert_eq!(errors.to_string(), "a: Invalid value: 50: must not be");
    }
}
