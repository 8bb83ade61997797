//! Relaxes the hard form of keeping away from nodes: a Pod that finds no node because of it gives way to one that only prefers others.
//!
//! The status says so first, because the Pod webhook reads it there. A Pod that has the hard form says so in an annotation, so its
//! successor is never taken for it.

use std::ops::ControlFlow;

use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::SignedDuration;

use crate::reconciliation::Reconciliation;
use crate::types::PodDeletion;

/// For how long a Pod may find no node.
const UNSCHEDULABLE_LIMIT: SignedDuration = SignedDuration::from_mins(1);

/// Replaces the Pods that find no node.
pub(crate) fn replace_unschedulable(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let pods: Vec<&PodView> = reconciliation.running_pods().flat_map(JobPods::unplaced).collect();
    let due = |pod: &PodView| pod.unschedulable_since.and_then(|since| since.checked_add(UNSCHEDULABLE_LIMIT).ok());
    let is_late = |pod: &&PodView| due(pod).is_some_and(|due| reconciliation.is_due(due));
    let late: Vec<&PodView> = pods.into_iter().filter(is_late).collect();
    if late.is_empty() {
        return ControlFlow::Continue(());
    }
    let avoided = &mut reconciliation.status.avoided_nodes;
    if !avoided.is_empty() && !avoided.iter().any(|it| it.relaxed) {
        for node in avoided {
            node.relaxed = true;
        }
        return ControlFlow::Break(());
    }
    for pod in late {
        let message = format!(
            "Pod {} has found no node for a minute: another one only prefers nodes that are not avoided",
            pod.name
        );
        reconciliation.delete_pod(&pod.name, &pod.uid, PodDeletion::Unschedulable, message);
    }
    ControlFlow::Continue(())
}
