//! The regular expression by which a supervisor finds the step in a line of output. Admission and agent compile it here, so that the
//! agent can use each pattern that admission accepts.

use regex_lite::{Regex, RegexBuilder};

/// Longest pattern, in bytes.
const LONGEST_PATTERN: usize = 1 << 10;
/// Largest compiled pattern, in bytes. An ordinary one takes some hundred.
const LARGEST_PATTERN: usize = 1 << 16;

/// What the value of [`PROGRESS_PATTERN`](crate::agent::PROGRESS_PATTERN) must be.
pub const STEP_PATTERN: &str = "a regular expression of at most 1 KiB with one group for the step, as in step ([0-9]+). A group that only \
                                holds words together begins with ?:, as in (?:step|iter) ([0-9]+)";

/// A regular expression with one group, which is the step.
#[derive(Clone, Debug)]
pub struct StepPattern(Regex);

impl StepPattern {
    /// `None` if the text is no regular expression, is too large, or has not just one group.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST_PATTERN {
            return None;
        }
        let pattern = RegexBuilder::new(text).size_limit(LARGEST_PATTERN).build().ok()?;
        (pattern.captures_len() == 2).then_some(Self(pattern))
    }

    /// What the group matches in this line.
    pub fn find<'a>(&self, line: &'a str) -> Option<&'a str> {
        Some(self.0.captures(line)?.get(1)?.as_str())
    }
}

impl PartialEq for StepPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_has_one_group() {
        let found = |text: &str| StepPattern::parse(text).map(|it| it.find("iter 7 of 9").map(str::to_owned));
        assert_eq!(found("iter ([0-9]+)"), Some(Some("7".to_owned())));
        assert_eq!(found("(?:step|iter) ([0-9]+)"), Some(Some("7".to_owned())));
        assert_eq!(found("step ([0-9]+)"), Some(None));
        for text in
            ["", "step [0-9]+", "(step|iter) ([0-9]+)", "step ([0-9]+", "((a{999}){999}){999}", "([0-9]{99999})"]
        {
            assert_eq!(found(text), None, "{text}");
        }
        assert_eq!(found(&format!("({})", "x".repeat(LONGEST_PATTERN))), None);
    }
}
