//! What the scheduler says of a Pod that has no node.

use jobset_api::{AvoidNodes, labels};
use jobset_objects::PartialPod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::failure::shorten;

/// Longest message of the scheduler that is kept, in bytes.
const LONGEST_MESSAGE: usize = 256;
/// Condition of a Pod that says whether it has a node.
const POD_SCHEDULED: &str = "PodScheduled";

/// Why the Pod has no node, as the scheduler says.
pub(super) fn why(pod: &PartialPod) -> Option<Box<str>> {
    let condition = pod.condition(POD_SCHEDULED).filter(|condition| condition.status == "False")?;
    let message = condition.message.as_str();
    // `0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are available: ...`
    let cause =
        message.split_once(" preemption: ").map(|(before, _)| before.rsplit_once(". ").unwrap_or((before, "")).0);
    let cause = cause.unwrap_or(message).trim_end_matches('.');
    pod.spec.node_name.is_none().then(|| shorten(&format!("{}: {cause}", condition.reason), LONGEST_MESSAGE).into())
}

/// Since when the scheduler finds no node for a Pod that keeps away from some by a hard rule.
pub(super) fn since(pod: &PartialPod) -> Option<Timestamp> {
    let form = pod.annotations().get(labels::AVOID_NODES).and_then(|text| AvoidNodes::parse(text));
    let condition = pod.condition(POD_SCHEDULED).filter(|it| it.status == "False" && it.reason == "Unschedulable")?;
    condition.last_transition_time.as_ref().map(|time| time.0).filter(|_| form == Some(AvoidNodes::Required))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::no_node_fits(
        json!({}),
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are available: 2 \
         Preemption is not helpful for scheduling.",
        Some("Unschedulable: 0/2 nodes are available: 2 Insufficient cpu")
    )]
    #[case::without_claims(json!({}), "0/1 nodes are available: 1 Too many pods. preemption: 0/1", Some("Unschedulable: 0/1 nodes are available: 1 Too many pods"))]
    #[case::gated(json!({}), "Scheduling is blocked due to non-empty scheduling gates", Some("Unschedulable: Scheduling is blocked due to non-empty scheduling gates"))]
    #[case::it_has_a_node(json!({"nodeName": "n"}), "no", None)]
    fn pod_without_node_shows_words_of_scheduler(
        #[case] spec: Value,
        #[case] message: &str,
        #[case] expected: Option<&str>,
    ) {
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        let pod: PartialPod =
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": {"conditions": [condition]}}))
                .unwrap();
        assert_eq!(why(&pod).as_deref(), expected);
    }
}
