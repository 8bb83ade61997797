//! Force-deletes Pods on nodes that have been unreachable for long, so that they can be replaced. Opt-in.
//!
//! The controller cannot know whether an unreachable node is really down. The user who sets the flag takes this
//! responsibility. The rule ignores a node that is only not ready.

use k8s_openapi::jiff::SignedDuration;

use super::reconciliation::Reconciliation;
use super::{Action, PodDeletion};
use crate::store::pods::PodView;

pub(super) fn force_delete(reconciliation: &mut Reconciliation<'_>) {
    let Some(after) = reconciliation.settings.force_delete_after else { return };
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    let mut expired: Vec<PodView> = Vec::new();
    for (since, pods) in reconciliation.observed.unreachable() {
        let mut pods = pods.peekable();
        let Some(due) = pods.peek().and_then(|_| since.checked_add(after).ok()) else { continue };
        if reconciliation.now.0 < due {
            reconciliation.requeue_at(due);
        } else {
            expired.extend(pods.cloned());
        }
    }
    expired.sort_by(|a, b| a.name.cmp(&b.name));
    for pod in expired {
        let node = pod.node.as_deref().unwrap_or_default();
        reconciliation
            .warn("ForceDeleted", format!("Pod {} is deleted by force: its node {node} is unreachable", pod.name));
        reconciliation.actions.push(Action::DeletePod {
            name: pod.name,
            uid: pod.uid,
            reason: PodDeletion::Unreachable,
        });
    }
}
