//! Pods whose reports are wrong for good: no epoch, one above the next, or that of an agent that restarted without its worker.

use std::ops::ControlFlow;

use jobset_api::event;
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::SignedDuration;

use crate::epochs::{self, Epochs};
use crate::reconciliation::Reconciliation;
use crate::types::PodDeletion;

/// How long the controller waits before it deletes a Pod whose agent restarted alone. The kubelet may be about to restart
/// the other containers.
const AGENT_ALONE: SignedDuration = SignedDuration::from_secs(10);

/// Warns of reports that are no valid epoch, and deletes Pods that report an epoch above the next one. Such a report can
/// never become valid, and the agent does not lower it.
pub(super) fn handle_invalid(reconciliation: &mut Reconciliation<'_>, current: Epochs) -> ControlFlow<()> {
    let newest = current.next();
    let invalid: Vec<_> = reconciliation.running_pods().flat_map(|pods| pods.invalid_reports(newest)).collect();
    let is_above = |pod: &PodView| pod.epoch.number().is_some_and(|epoch| epoch > newest) && pod.deleted_at.is_none();
    if invalid.iter().any(|(pod, _)| is_above(pod)) {
        epochs::restart_uncounted(reconciliation)?;
    }
    for (pod, epoch) in invalid {
        let message = |action: &str| {
            format!("Pod {} reports the epoch {epoch:?}, which is not a number from 1 to {newest}{action}", pod.name)
        };
        if is_above(pod) {
            let deletion = PodDeletion::EpochAbove(newest);
            reconciliation.delete_pod(&pod.name, &pod.uid, deletion, message(": it is deleted"));
        } else {
            reconciliation.warn(event::EPOCH_INVALID, message(""));
        }
    }
    ControlFlow::Continue(())
}

/// Deletes Pods whose agent restarted alone. The worker of such a Pod runs on in an epoch that is over, and its agent never
/// restarts it.
pub(super) fn delete_agents_alone(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let alone = reconciliation.running_pods().flat_map(JobPods::alone);
    for pod in alone.filter(|pod| pod.deleted_at.is_none()) {
        let Some(due) = pod.agent_started.and_then(|started| started.checked_add(AGENT_ALONE).ok()) else { continue };
        if !reconciliation.is_due(due) {
            continue;
        }
        // A late Pod status showed no worker, so the controller accepted the report and counted the restart.
        if pod.epoch.number().is_some_and(|epoch| epoch <= reconciliation.status.synced_epoch) {
            epochs::restart_uncounted(reconciliation)?;
        }
        let message = format!(
            "Pod {} is deleted: its agent restarted and its worker did not; check the agent's restartPolicyRules",
            pod.name
        );
        reconciliation.delete_pod(&pod.name, &pod.uid, PodDeletion::AgentAlone, message);
    }
    ControlFlow::Continue(())
}
