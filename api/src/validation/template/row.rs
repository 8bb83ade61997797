//! The rows of the table: a field, what is wrong with its value, and what is said.

use serde_json::Value;

use super::super::warnings::Warnings;
use crate::field::{Errors, Path};

/// One row of the table, about a part of a template of the type `T`.
pub(super) struct Row<T: 'static> {
    /// Path of the field from the part. Dots separate several steps.
    field: &'static str,
    test: Test<T>,
    words: &'static str,
}

/// What is wrong with the field. An empty text counts as absent, as in Kubernetes.
enum Test<T: 'static> {
    /// The API server refuses the value that this returns.
    Invalid(fn(&T) -> Option<Value>),
    /// The API server refuses the number if it is outside of these bounds.
    Between(fn(&T) -> Option<i64>, i64, i64),
    /// The API server refuses a text that is none of these.
    OneOf(fn(&T) -> Option<&str>, &'static [&'static str]),
    /// The API server refuses a text that does not have this form.
    Formed(fn(&T) -> Option<&str>, fn(&str) -> bool),
    /// The API server refuses a list with more entries.
    AtMost(fn(&T) -> usize, usize),
    /// The API server refuses the part without the field.
    Missing(fn(&T) -> bool),
    /// The API server refuses the part with the field.
    Forbidden(fn(&T) -> bool),
    /// The API server accepts the field, and the user gets something else.
    Doubtful(fn(&T) -> bool),
}

pub(super) const fn invalid<T>(field: &'static str, of: fn(&T) -> Option<Value>, words: &'static str) -> Row<T> {
    Row { field, test: Test::Invalid(of), words }
}

pub(super) const fn not_negative<T>(field: &'static str, of: fn(&T) -> Option<i64>) -> Row<T> {
    Row { field, test: Test::Between(of, 0, i64::MAX), words: "must not be negative" }
}

/// The bounds are inclusive. The words say them.
pub(super) const fn between<T>(
    field: &'static str,
    of: fn(&T) -> Option<i64>,
    (min, max): (i64, i64),
    words: &'static str,
) -> Row<T> {
    Row { field, test: Test::Between(of, min, max), words }
}

pub(super) const fn one_of<T>(
    field: &'static str,
    of: fn(&T) -> Option<&str>,
    supported: &'static [&'static str],
) -> Row<T> {
    Row { field, test: Test::OneOf(of, supported), words: "" }
}

pub(super) const fn formed<T>(
    field: &'static str,
    of: fn(&T) -> Option<&str>,
    is_formed: fn(&str) -> bool,
    words: &'static str,
) -> Row<T> {
    Row { field, test: Test::Formed(of, is_formed), words }
}

/// The words say the limit.
pub(super) const fn at_most<T>(field: &'static str, of: fn(&T) -> usize, limit: usize, words: &'static str) -> Row<T> {
    Row { field, test: Test::AtMost(of, limit), words }
}

pub(super) const fn missing<T>(field: &'static str, is_missing: fn(&T) -> bool, words: &'static str) -> Row<T> {
    Row { field, test: Test::Missing(is_missing), words }
}

pub(super) const fn forbidden<T>(field: &'static str, is_set: fn(&T) -> bool, words: &'static str) -> Row<T> {
    Row { field, test: Test::Forbidden(is_set), words }
}

pub(super) const fn doubtful<T>(field: &'static str, is_set: fn(&T) -> bool, words: &'static str) -> Row<T> {
    Row { field, test: Test::Doubtful(is_set), words }
}

/// What is collected: errors of a template that the API server refuses, or warnings about one that it accepts.
pub(super) enum Found<'a> {
    Errors(&'a mut Errors),
    Warnings(&'a mut Warnings),
}

/// Applies the rows to a part of a template, which is at this path.
pub(super) fn apply<T>(rows: &[Row<T>], part: &T, path: &Path<'_>, found: &mut Found<'_>) {
    for row in rows {
        match found {
            Found::Errors(errors) => row.check(part, path, errors),
            Found::Warnings(warnings) => row.warn(part, path, warnings),
        }
    }
}

/// The same for each entry of a list, which is at this path.
pub(super) fn apply_each<T>(rows: &[Row<T>], list: Option<&[T]>, path: &Path<'_>, found: &mut Found<'_>) {
    for (index, entry) in list.unwrap_or_default().iter().enumerate() {
        apply(rows, entry, &path.index(index), found);
    }
}

impl<T> Row<T> {
    fn check(&self, part: &T, path: &Path<'_>, errors: &mut Errors) {
        let path = path.child(self.field);
        let text = |of: fn(&T) -> Option<&str>| of(part).filter(|text| !text.is_empty());
        match self.test {
            Test::Invalid(of) => {
                if let Some(value) = of(part) {
                    errors.invalid(&path, value, self.words);
                }
            }
            Test::Between(of, min, max) => {
                if let Some(number) = of(part).filter(|number| !(min..=max).contains(number)) {
                    errors.invalid(&path, number, self.words);
                }
            }
            Test::OneOf(of, supported) => {
                if let Some(text) = text(of).filter(|text| !supported.contains(text)) {
                    let quoted: Vec<_> = supported.iter().map(|text| format!("{text:?}")).collect();
                    errors.not_supported(&path, text, quoted.join(", "));
                }
            }
            Test::Formed(of, is_formed) => {
                if let Some(text) = text(of).filter(|text| !is_formed(text)) {
                    errors.invalid(&path, text, self.words);
                }
            }
            Test::AtMost(of, limit) => {
                let count = of(part);
                if count > limit {
                    errors.too_many(&path, count, self.words);
                }
            }
            Test::Missing(is_missing) => {
                if is_missing(part) {
                    errors.required(&path, self.words);
                }
            }
            Test::Forbidden(is_set) => {
                if is_set(part) {
                    errors.forbidden(&path, self.words);
                }
            }
            Test::Doubtful(_) => {}
        }
    }

    fn warn(&self, part: &T, path: &Path<'_>, warnings: &mut Warnings) {
        if let Test::Doubtful(is_set) = self.test
            && is_set(part)
        {
            warnings.push(&path.child(self.field), self.words);
        }
    }
}
