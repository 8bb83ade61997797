//! The annotations about bad, cordoned and lost nodes.

use super::subject::{ReadAnnotation, Subject};
use super::warnings::Warnings;
use crate::field::{Errors, Path};
use crate::labels::{AVOID_NODES, LEAVE_CORDONED, MOVE_AFTER_FAILURES, NODE_LOST_AFTER, RESTART_ATTEMPT};
use crate::nodes::{AvoidNodes, LeaveCordoned};

const ANNOTATIONS: [ReadAnnotation; 4] = [
    (
        MOVE_AFTER_FAILURES,
        |jobset, _| jobset.move_after_failures().is_some(),
        "must be a whole number from 0 to 16, such as 2: after so many failures on one node, the next Pod goes elsewhere. 0 leaves Pods \
         on their nodes",
    ),
    (AVOID_NODES, |_, text| AvoidNodes::parse(text).is_some(), "must be Preferred or Required"),
    (LEAVE_CORDONED, |_, text| LeaveCordoned::parse(text).is_some(), "must be Never, AtNextRestart or Now"),
    (
        NODE_LOST_AFTER,
        |jobset, _| jobset.node_lost_after().is_some(),
        "must be a duration from 10s to 720h, such as 60s or 5m: the Pods of a node that is unreachable for so long are given up. \
         Remove the annotation to leave them alone",
    ),
];

/// Rejects values that mean nothing.
pub(super) fn check(subject: &Subject<'_>, _spec: &Path<'_>, errors: &mut Errors) {
    subject.check_annotations(&ANNOTATIONS, errors);
}

/// Warns of annotations without effect, and of the risk of two writers.
pub(super) fn warn(subject: &Subject<'_>, warnings: &mut Warnings) {
    let jobset = subject.jobset;
    let of_in_place = ANNOTATIONS.into_iter().map(|(key, ..)| key).filter(|key| *key != NODE_LOST_AFTER);
    let present = of_in_place.filter(|key| jobset.annotation(key).is_some());
    let in_place = subject.is_in_place_or_warns(present, warnings);
    if in_place && jobset.annotation(AVOID_NODES).is_some() {
        match jobset.move_after_failures() {
            Some(1..) => {}
            Some(0) => {
                let text =
                    format_args!("has no effect with the annotation {MOVE_AFTER_FAILURES}: 0: no node is avoided");
                warnings.push(&Path::annotation(AVOID_NODES), text);
            }
            None => {
                let text = format_args!(
                    "has no effect without the annotation {MOVE_AFTER_FAILURES}, unless the controller has --move-after-failures: no \
                     node is avoided"
                );
                warnings.push(&Path::annotation(AVOID_NODES), text);
            }
        }
    }
    if jobset.node_lost_after().is_some() {
        let fence = if in_place { "JOBSET_EPOCH".to_owned() } else { format!("the label {RESTART_ATTEMPT}") };
        let text = format_args!(
            "gives up Pods that may still run on a node that nobody reaches: two workers of one index may write one checkpoint. Let \
             workers write to places that {fence} names, or fence the node"
        );
        warnings.push(&Path::annotation(NODE_LOST_AFTER), text);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::testing::{admission_errors, assert_one, in_place, jobset, read};
    use super::super::{cannot_run, warnings};
    use super::*;

    #[rstest]
    #[case::one(MOVE_AFTER_FAILURES, "1", true)]
    #[case::most(MOVE_AFTER_FAILURES, "16", true)]
    #[case::negative(MOVE_AFTER_FAILURES, "-1", false)]
    #[case::fraction(MOVE_AFTER_FAILURES, "1.5", false)]
    #[case::huge(MOVE_AFTER_FAILURES, "99999999999999999999", false)]
    #[case::preferred(AVOID_NODES, "Preferred", true)]
    #[case::empty(AVOID_NODES, "", false)]
    #[case::never_leave(LEAVE_CORDONED, "Never", true)]
    #[case::ten_seconds(NODE_LOST_AFTER, "10s", true)]
    #[case::minutes(NODE_LOST_AFTER, "5m", true)]
    #[case::no_unit(NODE_LOST_AFTER, "60", false)]
    #[case::negative_time(NODE_LOST_AFTER, "-60s", false)]
    #[case::longest(NODE_LOST_AFTER, "720h", true)]
    #[case::too_long(NODE_LOST_AFTER, "9223372036854775807s", false)]
    fn value_that_means_nothing_is_rejected(#[case] key: &str, #[case] value: &str, #[case] accepted: bool) {
        let object = in_place(&[("/metadata/annotations", json!({ key: value, MOVE_AFTER_FAILURES: "2" }))]);
        let object = if key == MOVE_AFTER_FAILURES {
            in_place(&[("/metadata/annotations", json!({ key: value }))])
        } else {
            object
        };
        if accepted {
            assert_eq!(admission_errors(&object), Vec::<String>::new());
        } else {
            assert_one(
                &admission_errors(&object),
                &format!("metadata.annotations[{key}]: Invalid value: {value:?}: must be"),
            );
        }
        assert!(cannot_run(&read(&object)).is_empty(), "a stored JobSet runs");
    }

    #[rstest]
    #[case(MOVE_AFTER_FAILURES, "2")]
    #[case(LEAVE_CORDONED, "Now")]
    fn annotation_without_in_place_restart_gets_warning(#[case] key: &str, #[case] value: &str) {
        let object = jobset(&[("/metadata/annotations", json!({ key: value }))]);
        let expected = format!(
            "metadata.annotations[{key}]: has no effect with restartStrategy Recreate: it is for InPlaceRestart"
        );
        assert_one(&warnings(&read(&object)), &expected);
    }

    #[test]
    fn avoid_nodes_with_moves_off_gets_warning() {
        let annotations = json!({ AVOID_NODES: "Required", MOVE_AFTER_FAILURES: "0" });
        let object = in_place(&[("/metadata/annotations", annotations)]);
        let expected =
            format!("metadata.annotations[{AVOID_NODES}]: has no effect with the annotation {MOVE_AFTER_FAILURES}");
        assert_one(&warnings(&read(&object)), &expected);
    }

    #[test]
    fn lost_nodes_get_warning_of_two_writers() {
        let annotations = [("/metadata/annotations", json!({ NODE_LOST_AFTER: "60s" }))];
        for (object, fence) in [(in_place(&annotations), "JOBSET_EPOCH"), (jobset(&annotations), RESTART_ATTEMPT)] {
            let warnings = warnings(&read(&object));
            assert_one(&warnings, &format!("metadata.annotations[{NODE_LOST_AFTER}]: gives up Pods"));
            assert!(warnings[0].contains(fence), "{warnings:?}");
        }
    }
}
