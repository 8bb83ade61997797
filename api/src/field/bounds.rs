//! The bounds of numbers. A type names those of its fields once: its schema and validation take them from there.

use std::fmt;

use super::errors::Errors;
use super::path::Path;

/// What a number may be, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) min: i32,
    pub(crate) max: i32,
    because: &'static str,
}

/// The name of a field, its value, and its bounds.
pub(crate) type Number = (&'static str, Option<i32>, Bounds);

impl Bounds {
    pub(crate) const NOT_NEGATIVE: Self = Self::between(0, i32::MAX, "");

    /// Both included. `because` says what the number is, and what to set.
    pub(crate) const fn between(min: i32, max: i32, because: &'static str) -> Self {
        Self { min, max, because }
    }
}

impl fmt::Display for Bounds {
    /// What a number must be.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (0, i32::MAX) => f.write_str("must not be negative")?,
            (min, i32::MAX) => write!(f, "must be at least {min}")?,
            (min, max) => write!(f, "must be {min} to {max}")?,
        }
        if self.because.is_empty() { Ok(()) } else { write!(f, ": {}", self.because) }
    }
}

impl Errors {
    /// Adds an error for each number out of its bounds. Whether there is none. `path` is that of the object with these fields.
    pub(crate) fn check_numbers(&mut self, path: &Path<'_>, numbers: &[Number]) -> bool {
        let is_outside =
            |(_, value, bounds): &&Number| value.is_some_and(|it| !(bounds.min..=bounds.max).contains(&it));
        let mut outside = numbers.iter().filter(is_outside).peekable();
        let is_valid = outside.peek().is_none();
        for (field, value, bounds) in outside {
            self.invalid(&path.child(field), value, bounds);
        }
        is_valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_out_of_bounds_is_reported_with_bounds_and_reason() {
        let positive = Bounds::between(1, i32::MAX, "");
        let percent = Bounds::between(1, 100, "it is a percentage");
        let numbers = [
            ("a", Some(-1), Bounds::NOT_NEGATIVE),
            ("b", Some(0), positive),
            ("c", Some(101), percent),
            ("d", Some(100), percent),
            ("e", None, percent),
        ];
        let mut errors = Errors::default();
        assert!(!errors.check_numbers(&Path::root("spec"), &numbers));
        let expected = "spec.a: Invalid value: -1: must not be negative; spec.b: Invalid value: 0: must be at least 1; \
                        spec.c: Invalid value: 101: must be 1 to 100: it is a percentage";
        assert_eq!(errors.to_string(), expected);
        assert!(errors.check_numbers(&Path::root("spec"), &numbers[3..]));
    }
}
