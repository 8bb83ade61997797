//! Reports workers that do not run although the barrier was lifted, with what their Pods wait for.

use jobset_api::{conditions, event};
use jobset_store::pods::PodView;
use k8s_openapi::jiff::SignedDuration;

use crate::barrier;
use crate::reconciliation::{Reconciliation, by_name, name_few};

/// After this time, a worker that does not run is late. Its Event comes within 30 s of the lift, also where the controller is busy.
const LATE: SignedDuration = SignedDuration::from_secs(25);

/// Sets the condition WorkersNotRunning, and refreshes its message after 1, 2, 4 ... minutes.
///
/// While the group restarts, the condition stays as it is: [`super::returns`] reads it.
pub(super) fn report(reconciliation: &mut Reconciliation<'_>) {
    let status = &reconciliation.status;
    let Some(since) = status.epoch_transition_time.as_ref().map(|time| time.0) else { return };
    let was_lifted_before = status.epochs() == reconciliation.observed.stored_epochs() && !status.epochs().is_closed();
    if !reconciliation.in_place() || reconciliation.is_suspended() || !was_lifted_before {
        return;
    }
    let late = late_pods(reconciliation);
    if late.is_empty() {
        let message = "the workers of all Pods have started";
        reconciliation.clear_condition(conditions::WORKERS_NOT_RUNNING, conditions::WORKERS_RUN, message);
        return;
    }
    let words = |age| format!("{age} after the barrier was lifted,");
    let Some(begin) = barrier::begin_of_message(reconciliation, conditions::WORKERS_NOT_RUNNING, since, &[LATE], words)
    else {
        return;
    };
    let is_new = reconciliation.true_condition(conditions::WORKERS_NOT_RUNNING).is_none();
    let why = late.iter().find_map(|pod| why(reconciliation, pod)).map(|why| format!("; {why}"));
    let message =
        format!("{begin} the workers of these Pods do not run: {}{}", name_few(&late), why.unwrap_or_default());
    reconciliation.set_condition(conditions::WORKERS_NOT_RUNNING, conditions::CONTAINERS_NOT_STARTED, &message);
    if is_new {
        reconciliation.warn(event::WORKERS_NOT_RUNNING, message);
    }
}

/// The Pods whose worker should run, and has not started, in the order of their names.
fn late_pods<'a>(reconciliation: &Reconciliation<'a>) -> Vec<&'a PodView> {
    let synced = reconciliation.status.synced_epoch;
    let pods = reconciliation.running_pods().flat_map(|pods| pods.not_started_in(synced));
    by_name(pods)
}

/// What the Pod waits for, as far as its status and its node tell.
pub(super) fn why(reconciliation: &Reconciliation<'_>, pod: &PodView) -> Option<String> {
    let PodView { name, node, unscheduled, waiting, .. } = pod;
    let Some(node) = node.as_deref() else {
        let why = unscheduled.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
        return Some(format!("Pod {name} has no node{why}"));
    };
    if reconciliation.observed.node_of(pod).is_some_and(|node| !node.ready) {
        return Some(format!("node {node} of Pod {name} is not ready"));
    }
    if pod.sandbox_lost_at.is_some() {
        return Some(format!("node {node} has restarted, and does not start Pod {name} again"));
    }
    let waiting = waiting.as_deref().filter(|waiting| !waiting.reason.is_empty())?;
    let words = if waiting.message.is_empty() { String::new() } else { format!(": {}", waiting.message) };
    Some(format!("container {} of Pod {name} waits ({}{words})", waiting.name, waiting.reason))
}
