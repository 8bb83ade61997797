//! The back-off between restarts.

use super::subject::Subject;
use super::warnings::Warnings;
use crate::RestartBackoff;
use crate::field::{Errors, Path};

/// Default of the controller's flag `--longest-restart-backoff`, in seconds.
pub(super) const LONGEST: i32 = 25 * 60;

/// Rejects values out of bounds, and a first wait that is longer than the longest one.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let Some(backoff) = of(subject) else { return };
    let path = spec.child("failurePolicy.restartBackoff");
    let is_in_bounds = errors.check_numbers(&path, &backoff.numbers());
    let waits = subject.spec.restart_backoff();
    let (first, longest) = (waits.initial.as_secs(), waits.max.as_secs());
    if is_in_bounds && first > longest {
        let required = format_args!(
            "must be at least {first}, the first wait (initialSeconds): no wait is longer than maxSeconds. Raise \
             maxSeconds or lower initialSeconds"
        );
        match backoff.max_seconds {
            Some(found) => errors.invalid(&path.child("maxSeconds"), found, required),
            None => errors.required(&path.child("maxSeconds"), format_args!("is {longest} by default, and {required}")),
        }
    }
}

/// Warns of waits that the controller cuts short unless its administrator allows them.
pub(super) fn warn(subject: &Subject<'_>, warnings: &mut Warnings) {
    let longest = of(subject).and_then(|backoff| backoff.max_seconds).unwrap_or(0);
    if longest > LONGEST && !subject.spec.restart_backoff().initial.is_zero() {
        let spec = Path::root("spec");
        let text = format_args!(
            "is {longest}, and the controller waits at most {LONGEST} s unless its flag --longest-restart-backoff is \
             higher: with Kueue, keep waits below waitForPodsReady.recoveryTimeout"
        );
        warnings.push(&spec.child("failurePolicy.restartBackoff.maxSeconds"), text);
    }
}

fn of<'a>(subject: &Subject<'a>) -> Option<&'a RestartBackoff> {
    subject.spec.failure_policy.as_ref()?.restart_backoff.as_ref()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{accepts, assert_one, jobset, read, rejects};
    use super::super::{cannot_run, warnings};
    use crate::RestartBackoff;
    use crate::field::Bounds;

    const BACKOFF: &str = "/spec/failurePolicy/restartBackoff";
    const FIELD: &str = "spec.failurePolicy.restartBackoff";

    #[test]
    fn backoff_with_first_wait_of_default_maximum_is_accepted() {
        accepts(&[(BACKOFF, json!({ "initialSeconds": 300 }))]);
    }

    #[rstest]
    #[case::maximum_below_default_first(json!({ "maxSeconds": 0 }), "maxSeconds: Invalid value: 0: must be at least 1, the")]
    #[case::default_maximum_below_first(
        json!({ "initialSeconds": 301 }),
        "maxSeconds: Required value: is 300 by default, and must be at least 301, the first wait"
    )]
    fn backoff_out_of_bounds_is_rejected(#[case] backoff: Value, #[case] expected: &str) {
        let changes = [(BACKOFF, backoff)];
        rejects(&changes, &format!("{FIELD}.{expected}"));
        assert!(cannot_run(&read(&jobset(&changes))).is_empty(), "a stored JobSet runs");
    }

    #[test]
    fn backoff_at_each_bound_is_accepted_and_beyond_is_rejected() {
        let numbers = RestartBackoff::default().numbers();
        let all =
            |of: fn(&Bounds) -> i32| numbers.iter().map(move |(field, _, bounds)| ((*field).to_owned(), of(bounds)));
        for at_bound in [all(|bounds| bounds.min), all(|bounds| bounds.max)] {
            accepts(&[(BACKOFF, json!(at_bound.collect::<HashMap<_, _>>()))]);
        }
        for (field, beyond) in all(|bounds| bounds.min - 1).chain(all(|bounds| bounds.max + 1)) {
            rejects(
                &[(BACKOFF, json!({ (&field): beyond }))],
                &format!("{FIELD}.{field}: Invalid value: {beyond}: must be "),
            );
        }
    }

    #[rstest]
    #[case::at_limit(json!({ "maxSeconds": 1500 }), false)]
    #[case::above(json!({ "maxSeconds": 1501 }), true)]
    fn backoff_above_limit_of_controller_gets_warning(#[case] backoff: Value, #[case] is_warned: bool) {
        let found = warnings(&read(&jobset(&[(BACKOFF, backoff)])));
        if is_warned {
            assert_one(&found, &format!("{FIELD}.maxSeconds: is 1501, and the controller waits at most 1500 s unless"));
            assert!(found[0].len() < 256, "the API server cuts it off: {}", found[0].len());
        } else {
            assert_eq!(found, Vec::<String>::new());
        }
    }
}
