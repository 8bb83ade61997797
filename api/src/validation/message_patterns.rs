//! Patterns that the messages of failed Jobs are to match.

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::message_pattern::{MOST, PROGRAM, compile_within};

/// What those of a new JobSet may become together, in bytes. To compile takes some ten milliseconds for each MiB, and the
/// admission service has to have time for others.
const PROGRAMS: usize = 4 << 20;

/// Refuses patterns that match nothing: those that do not compile, and all of them where there are too many.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    check_within(subject, spec, errors, |_| PROGRAM);
}

/// The same of a new JobSet, where each of several patterns has its share of what all may become.
pub(super) fn check_new(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    check_within(subject, spec, errors, |count| (PROGRAMS / count.max(1)).min(PROGRAM));
}

fn check_within(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors, most: impl Fn(usize) -> usize) {
    let rules = || subject.spec.failure_policy.iter().flat_map(|policy| &policy.rules).enumerate();
    let path = spec.child("failurePolicy.rules");
    let count: usize = rules().map(|(_, rule)| rule.on_job_failure_message_patterns.len()).sum();
    if count > MOST {
        errors.too_many(&path, count, "must have at most 256 onJobFailureMessagePatterns in all rules together");
        return;
    }
    let most = most(count);
    for (index, rule) in rules() {
        let path = path.index(index);
        let path = path.child("onJobFailureMessagePatterns");
        for (index, pattern) in rule.on_job_failure_message_patterns.iter().enumerate() {
            if let Err(error) = compile_within(pattern, most) {
                errors.invalid(&path.index(index), pattern, error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::cannot_match;
    use super::super::testing::{accepts, admissions, jobset, read, refuses};

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
    fn new_patterns_that_take_long_to_compile_together_are_refused_and_stored_ones_are_not() {
        let complex = |count: usize| json!(vec![r"(\pL{20})"; count]);
        let of = |patterns| admissions(&jobset(&[(PATTERNS, patterns)]));
        assert_eq!(of(complex(2)), Vec::<String>::new());
        assert_eq!(cannot_match(&read(&jobset(&[(PATTERNS, complex(64))]))).to_string(), "");
        let errors = of(complex(64));
        assert!(errors[0].contains("must be simpler: compiled, it would take more than 64 KiB"), "{errors:?}");
        let ordinary = r"^Pod \S+ failed with exit code (1[0-9]+|2)$";
        assert_eq!(of(json!(vec![ordinary; 100])), Vec::<String>::new());
    }

    #[test]
    fn more_patterns_than_can_be_compiled_at_each_failure_are_refused() {
        refuses(&[(PATTERNS, json!(vec!["a"; 257]))], "spec.failurePolicy.rules: Too many: 257: must have at most 256");
    }
}
