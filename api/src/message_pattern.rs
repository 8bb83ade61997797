//! The regular expressions of `onJobFailureMessagePatterns`. Admission and controller compile them here, so that what is
//! admitted can be matched.

use regex::{Regex, RegexBuilder};

/// Longest pattern, in bytes.
const LENGTH: usize = 4096;
/// Largest program that a pattern may become, in bytes: one with a few dozen classes of all the letters of Unicode.
pub(crate) const PROGRAM: usize = 1 << 20;

/// A pattern that cannot be matched. The text is one line and says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    /// Not a regular expression.
    #[error("must be a regular expression (RE2 syntax): {0}")]
    Syntax(String),
    /// A regular expression that takes too much memory.
    #[error("must be simpler: compiled, it would take more than {} KiB", .0 >> 10)]
    TooComplex(usize),
    /// A text that is too long.
    #[error("must have at most 4096 bytes")]
    TooLong,
}

/// Compiles a pattern (RE2 syntax). It matches anywhere in a message.
///
/// # Errors
/// When the text is not a regular expression, or is too large for one of a failure message.
pub fn compile(pattern: &str) -> Result<Regex, InvalidPattern> {
    compile_within(pattern, PROGRAM)
}

/// The same, to a program of at most so many bytes.
pub(crate) fn compile_within(pattern: &str, most: usize) -> Result<Regex, InvalidPattern> {
    if pattern.len() > LENGTH {
        return Err(InvalidPattern::TooLong);
    }
    RegexBuilder::new(pattern).size_limit(most).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => InvalidPattern::TooComplex(most),
        // The text repeats the pattern and points into it, in several lines; the last one says what is wrong.
        error => {
            let text = error.to_string();
            let last = text.lines().next_back().unwrap_or_default();
            InvalidPattern::Syntax(last.trim_start_matches("error: ").to_owned())
        }
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::anywhere("exit code 1[0-9]+", "container main failed with exit code 137 in pod a", true)]
    #[case::anchored("^exit", "container failed, exit", false)]
    #[case::any_case("(?i)OOMKILLED", "reason OOMKilled", true)]
    #[case::class(r"pod\s\w+", "pod wörker", true)]
    fn a_pattern_matches_as_re2_does(#[case] pattern: &str, #[case] message: &str, #[case] matches: bool) {
        assert_eq!(compile(pattern).unwrap().is_match(message), matches);
    }

    #[rstest]
    #[case::open("a(b", "must be a regular expression (RE2 syntax): unclosed group")]
    #[case::look_around("a(?=b)", "must be a regular expression (RE2 syntax): look-around")]
    #[case::several_lines("(?x)\n a(b", "must be a regular expression (RE2 syntax): unclosed group")]
    #[case::complex(r"(\w{99}){99}", "must be simpler: compiled")]
    #[case::long(&"a".repeat(4097), "must have at most 4096 bytes")]
    fn what_cannot_be_matched_is_named_in_one_line(#[case] pattern: &str, #[case] expected: &str) {
        let error = compile(pattern).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}
