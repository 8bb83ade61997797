//! Force-deletes Pods on nodes that have been unreachable for long, so that they can be replaced. Opt-in.
//!
//! The controller cannot know whether an unreachable node is really down. The user who sets the flag takes this
//! responsibility. The rule ignores a node that is only not ready.

use k8s_openapi::jiff::SignedDuration;

use crate::reconciliation::Reconciliation;
use crate::types::PodDeletion;

pub(super) fn force_delete(reconciliation: &mut Reconciliation<'_>) {
    let Some(after) = reconciliation.settings.force_delete_after else { return };
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    for (since, pod) in reconciliation.observed.unreachable() {
        let Ok(due) = since.checked_add(after) else { continue };
        if !reconciliation.is_due(due) {
            continue;
        }
        let node = pod.node.as_deref().unwrap_or_default();
        let message = format!("Pod {} is deleted by force: its node {node} is unreachable", pod.name);
        reconciliation.delete_pod(&pod.name, &pod.uid, PodDeletion::Unreachable, message);
    }
}
