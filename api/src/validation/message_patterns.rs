//! Patterns that the messages of failed Jobs are to match.

use super::field::{Errors, Path};
use super::subject::Subject;
use crate::message_pattern::compile;

/// Most patterns of all rules together: each is compiled, here and whenever a Job fails.
const LIMIT: usize = 256;

/// Refuses patterns that do not compile, and too many of them.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let rules = || subject.spec.failure_policy.iter().flat_map(|policy| &policy.rules).enumerate();
    let path = spec.child("failurePolicy.rules");
    let count = rules().map(|(_, rule)| rule.on_job_failure_message_patterns.len()).sum();
    if count > LIMIT {
        errors.too_many(&path, count, "must have at most 256 onJobFailureMessagePatterns in all rules together");
        return;
    }
    for (index, rule) in rules() {
        let path = path.index(index);
        let path = path.child("onJobFailureMessagePatterns");
        for (index, pattern) in rule.on_job_failure_message_patterns.iter().enumerate() {
            if let Err(error) = compile(pattern) {
                errors.invalid(&path.index(index), pattern, error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{accepts, refuses};

    const PATTERNS: &str = "/spec/failurePolicy/rules/0/onJobFailureMessagePatterns";

    #[test]
    fn patterns_that_compile_are_accepted() {
        accepts(&[(PATTERNS, json!(["exit code 1[0-9]+", "^Pod .* failed$"]))]);
        accepts(&[(PATTERNS, json!(vec!["a"; 256]))]);
    }

    #[test]
    fn a_pattern_that_does_not_compile_is_refused() {
        let expected =
            "spec.failurePolicy.rules[0].onJobFailureMessagePatterns[1]: Invalid value: \"a(\": must be a regular";
        refuses(&[(PATTERNS, json!(["a", "a("]))], expected);
    }

    #[test]
    fn more_patterns_than_can_be_compiled_at_each_failure_are_refused() {
        refuses(&[(PATTERNS, json!(vec!["a"; 257]))], "spec.failurePolicy.rules: Too many: 257: must have at most 256");
    }
}
