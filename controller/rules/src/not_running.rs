//! Reports workers that do not run although the barrier was lifted, with what their Pods wait for.

use jobset_api::{JobSetStatus, conditions, event};
use jobset_store::pods::PodView;
use k8s_openapi::jiff::SignedDuration;

use crate::barrier_wait::age;
use crate::members;
use crate::reconciliation::{Reconciliation, first_few};

/// After this time, a worker that does not run is late.
const LATE: SignedDuration = SignedDuration::from_secs(30);

/// Sets the condition WorkersNotRunning, and refreshes its message after 1, 2, 4 ... minutes.
///
/// While the group restarts, the condition stays as it is: [`super::returns`] reads it.
pub(super) fn report(reconciliation: &mut Reconciliation<'_>) {
    let status = &reconciliation.status;
    let Some(since) = status.epoch_transition_time.as_ref().map(|time| time.0) else { return };
    let before = reconciliation.observed.jobset.status.as_ref().map(JobSetStatus::epochs);
    let was_lifted_before = before == Some(status.epochs()) && !status.epochs().is_closed();
    if !reconciliation.in_place() || reconciliation.observed.jobset.spec.is_suspended() || !was_lifted_before {
        return;
    }
    let waited = reconciliation.now.0.duration_since(since);
    let late = late_pods(reconciliation);
    if late.is_empty() {
        let message = "the workers of all Pods have started";
        reconciliation.clear_condition(conditions::WORKERS_NOT_RUNNING, conditions::WORKERS_RUN, message);
        return;
    }
    let Some((age, refresh)) = age(waited, LATE) else {
        reconciliation.requeue_at(since.saturating_add(LATE).unwrap_or(since));
        return;
    };
    reconciliation.requeue_at(since.saturating_add(refresh).unwrap_or(since));
    let begin = format!("{age} after the barrier was lifted,");
    let stored = reconciliation.true_condition(conditions::WORKERS_NOT_RUNNING);
    if stored.is_some_and(|it| it.message.starts_with(&begin)) {
        return;
    }
    let is_new = stored.is_none();
    let names: Vec<&str> = late.iter().map(|pod| &*pod.name).collect();
    let why = late.iter().find_map(|pod| why(reconciliation, pod)).map(|why| format!("; {why}"));
    let message =
        format!("{begin} the workers of these Pods do not run: {}{}", first_few(&names), why.unwrap_or_default());
    reconciliation.set_condition(conditions::WORKERS_NOT_RUNNING, true, conditions::CONTAINERS_NOT_STARTED, &message);
    if is_new {
        reconciliation.warn(event::WORKERS_NOT_RUNNING, message);
    }
}

/// The Pods whose worker should run, and has not started, in the order of their names.
fn late_pods<'a>(reconciliation: &Reconciliation<'a>) -> Vec<&'a PodView> {
    let synced = reconciliation.status.synced_epoch;
    let pods = members::running_jobs(reconciliation).flat_map(|(pods, _)| pods.not_started_in(synced));
    let mut late: Vec<_> = pods.collect();
    late.sort_by(|a, b| a.name.cmp(&b.name));
    late
}

/// What the Pod waits for, as far as its status and its node tell.
pub(super) fn why(reconciliation: &Reconciliation<'_>, pod: &PodView) -> Option<String> {
    let PodView { name, node, waiting, .. } = pod;
    let Some(node) = node.as_deref() else { return Some(format!("Pod {name} has no node")) };
    if reconciliation.observed.node(node).is_some_and(|node| !node.ready) {
        return Some(format!("node {node} of Pod {name} is not ready"));
    }
    if pod.sandbox_lost_at.is_some() {
        return Some(format!("node {node} has restarted, and does not start Pod {name} again"));
    }
    let waiting = waiting.as_deref().filter(|waiting| !waiting.reason.is_empty())?;
    let words = if waiting.message.is_empty() { String::new() } else { format!(": {}", waiting.message) };
    Some(format!("container {} of Pod {name} waits ({}{words})", waiting.name, waiting.reason))
}
