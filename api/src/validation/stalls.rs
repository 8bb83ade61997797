//! The annotations about workers that make no progress.

use super::subject::Subject;
use super::warnings::Warnings;
use crate::agent::{PROGRESS_FILE, PROGRESS_PATTERN};
use crate::field::{Errors, Path};
use crate::labels::{INJECT_AGENT, MAX_RESTARTS_WITHOUT_PROGRESS, ON_STALL, STALL_AFTER, STALL_FIRST};
use crate::{JobSet, OnStall, RestartStrategy, StallAfter};

/// An annotation, whether its value can be read, and what the value must be.
type StallAnnotation = (&'static str, fn(&JobSet, &str) -> bool, &'static str);

const ANNOTATIONS: [StallAnnotation; 4] = [
    (
        STALL_AFTER,
        |_, text| StallAfter::parse(text).is_some(),
        "must be auto, or a duration of at least 5s, such as 90s or 20m: so long may a worker make no progress. Remove the \
         annotation to look at no progress",
    ),
    (
        STALL_FIRST,
        |jobset, _| jobset.stall_first().is_some(),
        "must be a duration of at least 5s, such as 90s or 20m: so long may the first step of a worker take",
    ),
    (ON_STALL, |_, text| OnStall::parse(text).is_some(), "must be Notify or Restart"),
    (
        MAX_RESTARTS_WITHOUT_PROGRESS,
        |jobset, _| jobset.max_restarts_without_progress().is_some(),
        "must be a whole number of at least 1, such as 3: after so many restarts in a row without a higher step, the JobSet fails",
    ),
];
const NO_DURATION: &str = "needs a duration in the annotation jobset.sigs.k8s.io/stall-after, such as 20m: without one, and with \
                           auto, a stall is only notified. Set a duration, or Notify";
const WHEN_CREATED: &str = "the change has no effect: agents learn it only when the JobSet is created. Delete the JobSet and create \
                            it again";

/// Rejects values that mean nothing, and restarts without a limit that the user has set.
pub(super) fn check(subject: &Subject<'_>, _spec: &Path<'_>, errors: &mut Errors) {
    let jobset = subject.jobset;
    for (key, is_valid, must) in ANNOTATIONS {
        if let Some(malformed) = jobset.annotation(key).filter(|text| !is_valid(jobset, text)) {
            errors.invalid(&Path::annotation(key), malformed, must);
        }
    }
    let asks = jobset.annotation(ON_STALL).filter(|text| OnStall::parse(text) == Some(OnStall::Restart));
    // A malformed limit is one error, not two.
    let has_no_limit = match jobset.annotation(STALL_AFTER) {
        None => true,
        Some(text) => StallAfter::parse(text) == Some(StallAfter::Auto),
    };
    if let Some(asks) = asks.filter(|_| has_no_limit) {
        errors.invalid(&Path::annotation(ON_STALL), asks, NO_DURATION);
    }
}

/// Warns of annotations without effect.
pub(super) fn warn(subject: &Subject<'_>, warnings: &mut Warnings) {
    let jobset = subject.jobset;
    let strategy = subject.spec.restart_strategy();
    let present = ANNOTATIONS.into_iter().map(|(key, ..)| key).filter(|key| jobset.annotation(key).is_some());
    if strategy != RestartStrategy::InPlaceRestart {
        for key in present {
            let text = format_args!("has no effect with restartStrategy {strategy:?}: it is for InPlaceRestart");
            warnings.push(&Path::annotation(key), text);
        }
    } else if jobset.annotation(STALL_AFTER).is_none() {
        for key in present {
            let text = format_args!("has no effect without the annotation {STALL_AFTER}: nobody looks at progress");
            warnings.push(&Path::annotation(key), text);
        }
    } else if jobset.annotation(INJECT_AGENT).is_none() && !tells(subject) {
        let text = format_args!(
            "has no effect: no container has the variable {PROGRESS_FILE}, by which workers tell their agents of progress. Set the \
             annotation {INJECT_AGENT}, or the variable on the agent and on the worker"
        );
        warnings.push(&Path::annotation(STALL_AFTER), text);
    }
}

/// Whether any container has a way to tell of progress.
fn tells(subject: &Subject<'_>) -> bool {
    let pods = subject.spec.replicated_jobs.iter().filter_map(|job| job.template.spec.template.spec.as_ref());
    let mut containers = pods.flat_map(|pod| pod.containers.iter().chain(pod.init_containers.iter().flatten()));
    containers.any(|it| it.env.iter().flatten().any(|it| [PROGRESS_FILE, PROGRESS_PATTERN].contains(&it.name.as_str())))
}

/// Warns of a change that agents do not hear of.
pub(super) fn warn_of_update(old: &JobSet, new: &JobSet, warnings: &mut Warnings) {
    let in_place = new.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    for key in [STALL_AFTER, STALL_FIRST] {
        if in_place && old.annotation(key) != new.annotation(key) {
            warnings.push(&Path::annotation(key), WHEN_CREATED);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{admission_errors, assert_one, in_place, jobset, read};
    use super::super::{cannot_run, update_warnings, warnings};
    use super::*;

    fn annotated(annotations: &[(&str, &str)]) -> Value {
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        in_place(&[("/metadata/annotations", annotations.into())])
    }

    #[rstest]
    #[case::auto(STALL_AFTER, "auto", true)]
    #[case::seconds(STALL_AFTER, "90s", true)]
    #[case::shortest(STALL_AFTER, "5s", true)]
    #[case::too_short(STALL_AFTER, "4s", false)]
    #[case::no_unit(STALL_AFTER, "90", false)]
    #[case::negative(STALL_AFTER, "-90s", false)]
    #[case::other_case(STALL_AFTER, "Auto", false)]
    #[case::empty(STALL_AFTER, "", false)]
    #[case::first(STALL_FIRST, "1h", true)]
    #[case::first_auto(STALL_FIRST, "auto", false)]
    #[case::notify(ON_STALL, "Notify", true)]
    #[case::restart(ON_STALL, "Restart", true)]
    #[case::restart_in_other_case(ON_STALL, "restart", false)]
    #[case::number(MAX_RESTARTS_WITHOUT_PROGRESS, "1", true)]
    #[case::none(MAX_RESTARTS_WITHOUT_PROGRESS, "0", false)]
    #[case::negative_number(MAX_RESTARTS_WITHOUT_PROGRESS, "-1", false)]
    #[case::huge(MAX_RESTARTS_WITHOUT_PROGRESS, "99999999999999999999", false)]
    fn value_that_means_nothing_is_rejected(#[case] key: &str, #[case] value: &str, #[case] accepted: bool) {
        let object = if key == STALL_AFTER {
            annotated(&[(key, value)])
        } else {
            annotated(&[(key, value), (STALL_AFTER, "90s")])
        };
        if accepted {
            assert_eq!(admission_errors(&object), Vec::<String>::new());
        } else {
            let expected = format!("metadata.annotations[{key}]: Invalid value: {value:?}: must be");
            assert_one(&admission_errors(&object), &expected);
        }
        assert!(cannot_run(&read(&object)).is_empty(), "a stored JobSet runs");
    }

    #[rstest]
    #[case::auto(Some("auto"), true)]
    #[case::absent(None, true)]
    #[case::duration(Some("90s"), false)]
    fn restart_needs_a_duration(#[case] after: Option<&str>, #[case] is_rejected: bool) {
        let after = after.map(|after| (STALL_AFTER, after));
        let annotations: Vec<_> = after.into_iter().chain([(ON_STALL, "Restart")]).collect();
        let errors = admission_errors(&annotated(&annotations));
        let expected = format!("metadata.annotations[{ON_STALL}]: Invalid value: \"Restart\": needs a duration");
        assert_eq!(
            (errors.len(), errors.iter().any(|error| error.starts_with(&expected))),
            (is_rejected.into(), is_rejected)
        );
    }

    #[rstest]
    #[case(STALL_AFTER, "90s")]
    #[case(MAX_RESTARTS_WITHOUT_PROGRESS, "3")]
    fn annotation_without_in_place_restart_gets_warning(#[case] key: &str, #[case] value: &str) {
        let object = jobset(&[("/metadata/annotations", json!({ key: value }))]);
        let expected = format!(
            "metadata.annotations[{key}]: has no effect with restartStrategy Recreate: it is for InPlaceRestart"
        );
        assert_one(&warnings(&read(&object)), &expected);
    }

    #[rstest]
    #[case(STALL_FIRST, "1h")]
    #[case(ON_STALL, "Notify")]
    #[case(MAX_RESTARTS_WITHOUT_PROGRESS, "3")]
    fn annotation_without_stall_after_gets_warning(#[case] key: &str, #[case] value: &str) {
        let expected = format!("metadata.annotations[{key}]: has no effect without the annotation {STALL_AFTER}");
        assert_one(&warnings(&read(&annotated(&[(key, value)]))), &expected);
    }

    #[test]
    fn stall_after_without_a_way_to_tell_gets_warning() {
        let object = annotated(&[(STALL_AFTER, "90s")]);
        let expected = format!("metadata.annotations[{STALL_AFTER}]: has no effect: no container has the variable");
        assert_one(&warnings(&read(&object)), &expected);
        let injected = annotated(&[(STALL_AFTER, "90s"), (INJECT_AGENT, "Sidecar")]);
        assert_eq!(warnings(&read(&injected)), Vec::<String>::new());
    }

    #[test]
    fn change_of_limit_gets_warning() {
        let of = |after: &str| read(&annotated(&[(STALL_AFTER, after), (INJECT_AGENT, "Sidecar")]));
        let expected = format!("metadata.annotations[{STALL_AFTER}]: the change has no effect");
        assert_one(&update_warnings(&of("90s"), &of("120s")), &expected);
        assert_eq!(update_warnings(&of("90s"), &of("90s")), Vec::<String>::new());
    }
}
