//! Patterns for the messages of failed Jobs.

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::message_pattern::{MAX_PATTERNS, MAX_SIZE, compile_within};

/// Maximum size of all compiled patterns of a new JobSet, in bytes. To compile 1 MiB takes some 10 ms, and the
/// admission service must also serve other requests.
const MAX_TOTAL_SIZE: usize = 4 << 20;

/// Rejects patterns that match nothing: those that do not compile, or all of them if there are too many.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    check_within(subject, spec, errors, |_| MAX_SIZE);
}

/// As [`check`], for a new JobSet. The limit for each pattern is its share of the limit for all patterns.
pub(super) fn check_new(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    check_within(subject, spec, errors, |count| (MAX_TOTAL_SIZE / count.max(1)).min(MAX_SIZE));
}

fn check_within(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors, max_size: impl Fn(usize) -> usize) {
    let rules = || subject.spec.failure_policy.iter().flat_map(|policy| &policy.rules).enumerate();
    let path = spec.child("failurePolicy.rules");
    let count: usize = rules().map(|(_, rule)| rule.on_job_failure_message_patterns.len()).sum();
    if count > MAX_PATTERNS {
        errors.too_many(&path, count, "must have at most 256 onJobFailureMessagePatterns in all rules together");
        return;
    }
    let max_size = max_size(count);
    for (index, rule) in rules() {
        let path = path.index(index);
        let path = path.child("onJobFailureMessagePatterns");
        for (index, pattern) in rule.on_job_failure_message_patterns.iter().enumerate() {
            if let Err(error) = compile_within(pattern, max_size) {
                errors.invalid(&path.index(index), pattern, error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::cannot_match;
    use super::super::testing::{accepts, admission_errors, jobset, read, rejects};

    const PATTERNS: &str = "/spec/failurePolicy/rules/0/onJobFailureMessagePatterns";

    #[test]
    fn pattern_that_compiles_is_accepted() {
        accepts(&[(PATTERNS, json!(["exit code 1[0-9]+", "^Pod .* failed$"]))]);
        accepts(&[(PATTERNS, json!(vec!["a"; 256]))]);
    }

    #[test]
    fn pattern_that_does_not_compile_is_rejected() {
        let expected =
            "spec.failurePolicy.rules[0].onJobFailureMessagePatterns[1]: Invalid value: \"a(\": must be a regular";
        rejects(&[(PATTERNS, json!(["a", "a("]))], expected);
    }

    #[test]
    fn patterns_of_large_total_size_are_rejected_at_creation_only() {
        let complex = |count: usize| json!(vec![r"(\pL{20})"; count]);
        let of = |patterns| admission_errors(&jobset(&[(PATTERNS, patterns)]));
        assert_eq!(of(complex(2)), Vec::<String>::new());
        assert_eq!(cannot_match(&read(&jobset(&[(PATTERNS, complex(64))]))).to_string(), "");
        let errors = of(complex(64));
        assert!(errors[0].contains("must be simpler: compiled, it would take more than 64 KiB"), "{errors:?}");
        let ordinary = r"^Pod \S+ failed with exit code (1[0-9]+|2)$";
        assert_eq!(of(json!(vec![ordinary; 100])), Vec::<String>::new());
    }

    #[test]
    fn patterns_above_limit_are_rejected() {
        rejects(&[(PATTERNS, json!(vec!["a"; 257]))], "spec.failurePolicy.rules: Too many: 257: must have at most 256");
    }
}
