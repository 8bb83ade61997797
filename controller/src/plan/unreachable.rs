//! Opt-in: Pods on nodes that have been unreachable for long are deleted without waiting for their kubelet, so that they
//! can be replaced. The user vouches for it that such a node is really down: nobody else can tell. A node that is merely
//! not ready is left alone.

use k8s_openapi::jiff::SignedDuration;

use super::pass::Pass;
use super::{Action, PodDeletion};
use crate::store::pods::PodView;

pub(super) fn force_delete(pass: &mut Pass<'_>) {
    let Some(after) = pass.settings.force_delete_after else { return };
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    let mut doomed: Vec<PodView> = Vec::new();
    for (since, pods) in pass.seen.unreachable() {
        let mut pods = pods.peekable();
        let Some(due) = pods.peek().and_then(|_| since.checked_add(after).ok()) else { continue };
        if pass.now.0 < due {
            pass.requeue_at(due);
        } else {
            doomed.extend(pods.cloned());
        }
    }
    doomed.sort_by(|a, b| a.name.cmp(&b.name));
    for pod in doomed {
        let node = pod.node.as_deref().unwrap_or_default();
        pass.warn("ForceDeleted", format!("Pod {} is deleted by force: its node {node} is unreachable", pod.name));
        pass.actions.push(Action::DeletePod { name: pod.name, uid: pod.uid, reason: PodDeletion::Unreachable });
    }
}
