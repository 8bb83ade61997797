//! The annotations of a JobSet that are durations: how long names take to settle, and when stuck Pods are replaced.

use super::restart_backoff::LONGEST;
use super::subject::{ReadAnnotation, Subject};
use super::warnings::Warnings;
use crate::field::{Errors, Path};
use crate::labels::{REPLACE_STUCK_PODS_AFTER, SETTLE_NAMES};

const ANNOTATIONS: [ReadAnnotation; 2] = [
    (
        SETTLE_NAMES,
        |jobset, _| jobset.settle_names().is_some(),
        "must be a duration such as 35s or 1m30s, and not negative: for so long, DNS may answer with the address of a Pod that was \
         replaced. Set 0s to wait for no names",
    ),
    (
        REPLACE_STUCK_PODS_AFTER,
        |jobset, _| jobset.replace_stuck_pods_after().is_some(),
        "must be a duration of at least 1m, such as 10m or 1h30m: a Pod whose worker has not started for so long is replaced. Remove the \
         annotation to leave such Pods alone",
    ),
];

/// Rejects values that are no such durations.
pub(super) fn check(subject: &Subject<'_>, _spec: &Path<'_>, errors: &mut Errors) {
    subject.check_annotations(&ANNOTATIONS, errors);
}

/// Warns of a time that the controller cuts short, and of those without effect.
pub(super) fn warn(subject: &Subject<'_>, warnings: &mut Warnings) {
    let jobset = subject.jobset;
    let is_read = |(key, is_valid, _): &ReadAnnotation| jobset.annotation(key).is_some_and(|it| is_valid(jobset, it));
    let read = ANNOTATIONS.into_iter().filter(is_read).map(|(key, ..)| key);
    if !subject.is_in_place_or_warns(read, warnings) {
        return;
    }
    let settle = jobset.settle_names().map(|time| time.as_secs());
    if let Some(seconds) = settle.filter(|seconds| *seconds > LONGEST.unsigned_abs().into()) {
        let text = format_args!(
            "is {seconds} s, and the controller waits at most {LONGEST} s unless its flag --longest-restart-backoff is higher"
        );
        warnings.push(&Path::annotation(SETTLE_NAMES), text);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{admission_errors, assert_one, in_place, read};
    use super::super::{cannot_run, warnings};
    use super::*;

    const FIELD: &str = "metadata.annotations[jobset.sigs.k8s.io/settle-names]";

    fn annotated(time: &str) -> Value {
        in_place(&[("/metadata/annotations", json!({ SETTLE_NAMES: time }))])
    }

    #[rstest]
    #[case::two_units("1m30s")]
    #[case::fraction("1.5h")]
    fn settle_time_as_go_writes_it_is_accepted(#[case] time: &str) {
        assert_eq!(admission_errors(&annotated(time)), Vec::<String>::new());
    }

    #[rstest]
    #[case::empty("")]
    #[case::past("35s ago")]
    #[case::calendar("1 month")]
    #[case::too_long("99999999999999999999h")]
    #[case::other_digits("٣s")]
    fn settle_time_that_is_no_duration_is_rejected(#[case] time: &str) {
        let object = annotated(time);
        assert_one(
            &admission_errors(&object),
            &format!("{FIELD}: Invalid value: {time:?}: must be a duration such as"),
        );
        assert!(cannot_run(&read(&object)).is_empty(), "a stored JobSet runs");
        assert_eq!(read(&object).settle_names(), None);
    }

    #[rstest]
    #[case::at_limit("25m", None)]
    #[case::above("1501s", Some("is 1501 s, and the controller waits at most 1500 s unless its flag"))]
    fn settle_time_above_limit_of_controller_gets_warning(#[case] time: &str, #[case] expected: Option<&str>) {
        let found = warnings(&read(&annotated(time)));
        match expected {
            Some(expected) => assert_one(&found, &format!("{FIELD}: {expected}")),
            None => assert!(!found.iter().any(|warning| warning.contains(SETTLE_NAMES)), "{found:?}"),
        }
    }

    #[rstest]
    #[case::a_minute("1m", true)]
    #[case::an_hour("1h", true)]
    #[case::less_than_a_minute("59s", false)]
    #[case::no_duration("later", false)]
    fn replace_stuck_pods_after_below_minute_is_rejected(#[case] time: &str, #[case] accepted: bool) {
        let object = in_place(&[("/metadata/annotations", json!({ REPLACE_STUCK_PODS_AFTER: time }))]);
        let field = format!("metadata.annotations[{REPLACE_STUCK_PODS_AFTER}]");
        let expected = format!("{field}: Invalid value: {time:?}: must be a duration of at");
        if accepted {
            assert_eq!(admission_errors(&object), Vec::<String>::new());
        } else {
            assert_one(&admission_errors(&object), &expected);
        }
        assert_eq!(read(&object).replace_stuck_pods_after().is_some(), accepted);
    }
}
