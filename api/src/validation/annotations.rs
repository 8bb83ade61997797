//! Annotations without the effect that the user expects: misspelt keys, and a value that means something else.

use std::collections::BTreeMap;

use strsim::osa_distance;

use super::subject::Subject;
use super::warnings::Warnings;
use crate::field::{Path, shown};
use crate::labels::{
    ADDITIONAL_RESTARTS, AVOID_NODES, DISABLE_IN_PLACE_RESTART, EXCLUSIVE_TOPOLOGY, INJECT_AGENT, LEAVE_CORDONED,
    MAX_RESTARTS_WITHOUT_PROGRESS, MOVE_AFTER_FAILURES, NODE_LOST_AFTER, NODE_SELECTOR_STRATEGY, ON_STALL,
    REPLACE_STUCK_PODS_AFTER, RESTART_BUDGET, RESTART_REQUEST, SETTLE_NAMES, STALL_AFTER, STALL_FIRST,
};

/// The annotations of a JobSet that users set.
const OF_JOBSET: [&str; 17] = [
    INJECT_AGENT,
    DISABLE_IN_PLACE_RESTART,
    RESTART_BUDGET,
    ADDITIONAL_RESTARTS,
    SETTLE_NAMES,
    REPLACE_STUCK_PODS_AFTER,
    RESTART_REQUEST,
    MOVE_AFTER_FAILURES,
    AVOID_NODES,
    LEAVE_CORDONED,
    NODE_LOST_AFTER,
    STALL_AFTER,
    STALL_FIRST,
    ON_STALL,
    MAX_RESTARTS_WITHOUT_PROGRESS,
    EXCLUSIVE_TOPOLOGY,
    NODE_SELECTOR_STRATEGY,
];
/// The annotations of a Job template that users set.
const OF_TEMPLATE: [&str; 2] = [EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY];
/// The prefixes of these keys, and a likely mistake: the API group.
const PREFIXES: [&str; 3] = ["jobset.sigs.k8s.io", "alpha.jobset.sigs.k8s.io", crate::GROUP];
/// Maximum number of edits that make a misspelt key the right one. Two neighbours swapped are one edit.
const EDITS: usize = 2;

/// Warns of annotations of the JobSet and of its Job templates.
pub(super) fn warn(subject: &Subject<'_>, warnings: &mut Warnings) {
    check(subject.jobset.metadata.annotations.as_ref(), &OF_JOBSET, &Path::root("metadata.annotations"), warnings);
    let spec = Path::root("spec");
    let replicated_jobs = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let annotations = replicated_job.template.metadata.as_ref().and_then(|it| it.annotations.as_ref());
        check(
            annotations,
            &OF_TEMPLATE,
            &replicated_jobs.index(index).child("template.metadata.annotations"),
            warnings,
        );
    }
}

fn check(annotations: Option<&BTreeMap<String, String>>, known: &[&str], path: &Path<'_>, warnings: &mut Warnings) {
    for (key, value) in annotations.into_iter().flatten() {
        if key == NODE_SELECTOR_STRATEGY && value != "true" {
            let text = format_args!(
                "is {}, and has the effect of \"true\": remove the annotation to place Jobs without node selectors",
                shown(value)
            );
            warnings.push(&path.key(key), text);
        } else if let Some(meant) = meant(key, known) {
            let text = format_args!("has no effect: the annotation is {meant}. Rename it, or remove it");
            warnings.push(&path.key(key), text);
        }
    }
}

/// The known key for which this key may be a mistake. `None` if it is known, or is similar to none.
pub(super) fn meant<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    if known.contains(&key) {
        return None;
    }
    let (prefix, name) = key.split_once('/')?;
    let is_of_jobset = PREFIXES.iter().any(|it| is_near(prefix, it));
    known.iter().find(|known| is_of_jobset && known.split_once('/').is_some_and(|(_, it)| is_near(name, it))).copied()
}

/// Whether few edits make one text the other one. Texts of very different lengths are not compared: the comparison takes
/// the product of their lengths.
fn is_near(one: &str, other: &str) -> bool {
    one.len().abs_diff(other.len()) <= 4 * EDITS && osa_distance(one, other) <= EDITS
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{assert_one, jobset, read};
    use super::super::warnings;
    use crate::labels;

    const TEMPLATE: &str = "/spec/replicatedJobs/1/template/metadata";

    fn annotated(key: &str, value: &str) -> Vec<String> {
        warnings(&read(&jobset(&[("/metadata/annotations", json!({ key: value }))])))
    }

    #[rstest]
    #[case::camel_case("jobset.sigs.k8s.io/injectAgent", labels::INJECT_AGENT)]
    #[case::one_name("jobset.sigs.k8s.io/settle-name", labels::SETTLE_NAMES)]
    #[case::underscore("jobset.sigs.k8s.io/restart_budget", labels::RESTART_BUDGET)]
    #[case::past_tense("jobset.sigs.k8s.io/disabled-in-place-restart", labels::DISABLE_IN_PLACE_RESTART)]
    #[case::alpha("alpha.jobset.sigs.k8s.io/inject-agent", labels::INJECT_AGENT)]
    #[case::plural("alpha.jobset.sigs.k8s.io/node-selectors", labels::NODE_SELECTOR_STRATEGY)]
    #[case::api_group("jobset.x-k8s.io/inject-agent", labels::INJECT_AGENT)]
    #[case::prefix("jobset.sig.k8s.io/inject-agent", labels::INJECT_AGENT)]
    #[case::other_script("jobset.sigs.k8s.io/inject-agént", labels::INJECT_AGENT)]
    fn annotation_with_misspelt_key_gets_warning(#[case] key: &str, #[case] meant: &str) {
        let expected = format!("metadata.annotations[{key}]: has no effect: the annotation is {meant}. Rename it");
        assert_one(&annotated(key, "1"), &expected);
    }

    #[rstest]
    #[case::three_edits("jobset.sigs.k8s.io/inject-agxyz")]
    #[case::no_prefix("inject-agnet")]
    #[case::of_jobs(labels::JOBSET_NAME)]
    #[case::of_pods(labels::RESTART_ATTEMPT)]
    #[case::known(labels::RESTART_BUDGET)]
    #[case::long(&format!("jobset.sigs.k8s.io/{}", "a".repeat(1_000_000)))]
    fn annotation_that_is_no_mistake_gets_no_warning(#[case] key: &str) {
        assert_eq!(annotated(key, "Shared"), Vec::<String>::new());
    }

    #[rstest]
    #[case::value(labels::NODE_SELECTOR_STRATEGY, "false", Some("is \"false\", and has the effect of \"true\""))]
    #[case::correct(labels::NODE_SELECTOR_STRATEGY, "true", None)]
    fn annotation_of_template_gets_warning(#[case] key: &str, #[case] value: &str, #[case] expected: Option<&str>) {
        let found = warnings(&read(&jobset(&[(TEMPLATE, json!({ "annotations": { key: value } }))])));
        match expected {
            Some(expected) => {
                assert_one(&found, &format!("spec.replicatedJobs[1].template.metadata.annotations[{key}]: "));
                assert_one(&found, expected);
            }
            None => assert_eq!(found, Vec::<String>::new()),
        }
    }

    #[test]
    fn node_selector_strategy_with_unknown_value_gets_warning() {
        let key = labels::NODE_SELECTOR_STRATEGY;
        assert_eq!(annotated(key, "true"), Vec::<String>::new());
        for value in ["false", "", "True"] {
            assert_one(&annotated(key, value), &format!("metadata.annotations[{key}]: is {}, and", Value::from(value)));
        }
    }
}
