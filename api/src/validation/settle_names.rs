//! The annotation for the time until names have settled.

use super::restart_backoff::LONGEST;
use super::subject::Subject;
use super::warnings::Warnings;
use crate::field::{Errors, Path};
use crate::labels::SETTLE_NAMES;
use crate::{JobSet, RestartStrategy};

const DURATION: &str = "must be a duration such as 35s or 1m30s, and not negative: for so long, DNS may answer with the address of \
                        a Pod that was replaced. Set 0s to wait for no names";

fn annotation(jobset: &JobSet) -> Option<&str> {
    jobset.metadata.annotations.as_ref()?.get(SETTLE_NAMES).map(String::as_str)
}

/// Rejects a value that is no such duration.
pub(super) fn check(subject: &Subject<'_>, _spec: &Path<'_>, errors: &mut Errors) {
    if let Some(malformed) = annotation(subject.jobset).filter(|_| subject.jobset.settle_names().is_none()) {
        errors.invalid(&Path::root("metadata.annotations").key(SETTLE_NAMES), malformed, DURATION);
    }
}

/// Warns of a time that the controller cuts short, and of one without effect.
pub(super) fn warn(subject: &Subject<'_>, warnings: &mut Warnings) {
    let Some(time) = subject.jobset.settle_names() else { return };
    let annotations = Path::root("metadata.annotations");
    let (path, strategy) = (annotations.key(SETTLE_NAMES), subject.spec.restart_strategy());
    if strategy != RestartStrategy::InPlaceRestart {
        warnings.push(&path, format_args!("has no effect with restartStrategy {strategy:?}: it is for InPlaceRestart"));
    } else if time.as_secs() > LONGEST.unsigned_abs().into() {
        let text = format_args!(
            "is {} s, and the controller waits at most {LONGEST} s unless its flag --longest-restart-backoff is higher",
            time.as_secs()
        );
        warnings.push(&path, text);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{admission_errors, assert_one, in_place, jobset, read};
    use super::super::{cannot_run, warnings};
    use super::*;

    const FIELD: &str = "metadata.annotations[jobset.sigs.k8s.io/settle-names]";

    fn annotated(time: &str) -> Value {
        in_place(&[("/metadata/annotations", json!({ SETTLE_NAMES: time }))])
    }

    #[rstest]
    #[case::seconds("35s")]
    #[case::two_units("1m30s")]
    #[case::fraction("1.5h")]
    #[case::none("0s")]
    fn settle_time_as_go_writes_it_is_accepted(#[case] time: &str) {
        assert_eq!(admission_errors(&annotated(time)), Vec::<String>::new());
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_unit("35")]
    #[case::negative("-35s")]
    #[case::word("soon")]
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

    #[test]
    fn settle_time_without_in_place_restart_gets_warning() {
        let object = jobset(&[("/metadata/annotations", json!({ SETTLE_NAMES: "35s" }))]);
        let expected = format!("{FIELD}: has no effect with restartStrategy Recreate: it is for InPlaceRestart");
        assert_one(&warnings(&read(&object)), &expected);
    }
}
