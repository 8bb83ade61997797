//! Patterns for the messages of failed Jobs.

use super::subject::Subject;
use crate::FailurePolicyRule;
use crate::field::{Errors, Path};
use crate::message_pattern::{InvalidPattern, MessagePatterns};

/// Rejects patterns that match nothing: those that do not compile, or all of them if there are too many.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let rules = subject.spec.failure_rules();
    check_compiled(rules, &MessagePatterns::compile(rules), spec, errors);
}

/// The same for rules whose patterns are compiled already.
pub(super) fn check_compiled(
    rules: &[FailurePolicyRule],
    patterns: &MessagePatterns,
    spec: &Path<'_>,
    errors: &mut Errors,
) {
    let path = spec.child("failurePolicy.rules");
    if let Some(count) = patterns.too_many() {
        errors.too_many(&path, count, "must have at most 256 onJobFailureMessagePatterns in all rules together");
    }
    for (rule, index, error) in patterns.errors().filter(|(.., error)| **error != InvalidPattern::NotTried) {
        let pattern = rules.get(rule).and_then(|rule| rule.on_job_failure_message_patterns.get(index));
        let path = path.index(rule);
        let path = path.child("onJobFailureMessagePatterns");
        errors.invalid(&path.index(index), pattern, error);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admission_errors, assert_one, changed, jobset, read, rejects};
    use super::super::{cannot_match, validate_update};
    use crate::gates::Gates;
    use crate::message_pattern::MessagePatterns;

    const PATTERNS: &str = "/spec/failurePolicy/rules/0/onJobFailureMessagePatterns";

    #[test]
    fn patterns_of_large_total_size_are_rejected_once() {
        let object = jobset(&[(PATTERNS, json!(vec![r"(\pL{20})"; 64]))]);
        let expected = "Patterns[1]: Invalid value: \"(\\\\pL{20})\": must be simpler: compiled, all patterns of a JobSet \
                        together must take at most 512 KiB; this one and those after it do not fit";
        assert_one(&admission_errors(&object), expected);
        let stored = read(&object);
        let patterns = MessagePatterns::compile(stored.spec.failure_rules());
        assert_eq!(cannot_match(&stored, &patterns).to_string(), admission_errors(&object).join("; "));
    }

    #[test]
    fn update_that_keeps_patterns_is_accepted() {
        let old = jobset(&[(PATTERNS, json!(vec!["("; 64])), ("/spec/suspend", json!(true))]);
        let new = changed(old.clone(), &[("/spec/suspend", json!(false))]);
        assert_eq!(validate_update(&read(&old), &read(&new), Gates::default()).to_string(), "");
    }

    #[test]
    fn patterns_above_limit_are_rejected() {
        rejects(&[(PATTERNS, json!(vec!["a"; 257]))], "spec.failurePolicy.rules: Too many: 257: must have at most 256");
    }
}
