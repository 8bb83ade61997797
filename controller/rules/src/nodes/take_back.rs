//! Takes a strike back when it turns out that nobody can tell who failed first.
//!
//! Statuses come late: when the first failure restarts the group, those of peers that failed in the same second may be on their way. They
//! are looked for shortly after the restart has begun. Until then a group without the annotation has lost nothing by the strike, and a
//! node with a single strike is left only by who asks for that.

use jobset_api::{AvoidedNode, NodeStrike};
use jobset_store::pods::JobPods;
use k8s_openapi::jiff::SignedDuration;

use super::blame::WorkerEnd;
use super::{clear, limit, verdict};
use crate::reconciliation::Reconciliation;

/// For how long after the begin of a restart.
const LATE: SignedDuration = SignedDuration::from_secs(5);
/// By how much the time of a strike may be before that of its restart.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(1);

pub(crate) fn take_back(reconciliation: &mut Reconciliation<'_>) {
    let Some(strike) = of_this_restart(reconciliation).cloned() else { return };
    let over = reconciliation.status.deprecated_epoch;
    let first = WorkerEnd::of_strike(&strike);
    let pods = reconciliation.running_pods().flat_map(JobPods::all);
    let mut late = pods.filter(|pod| pod.node.as_deref() != Some(&strike.node));
    let other = late.find(|pod| WorkerEnd::seen_late(pod, over).is_some_and(|end| !first.is_before(&end)));
    let Some(other) = other else { return };
    let why = format!("Pod {} failed at the same time, as far as clocks can tell", other.name);
    reconciliation.status.node_strikes.pop();
    let strikes = verdict::counting(&reconciliation.status.node_strikes, &strike.node);
    let is_bad = limit(reconciliation).is_some_and(|limit| strikes >= limit);
    // It was avoided by this restart: its Pods have not got successors yet.
    let is_new = |it: &AvoidedNode| it.node == strike.node && !it.moving.is_empty();
    clear(reconciliation, |it| !is_bad && is_new(it), |_| why.clone());
}

/// The strike of the restart that has just begun.
fn of_this_restart<'a>(reconciliation: &'a Reconciliation<'_>) -> Option<&'a NodeStrike> {
    let status = &reconciliation.status;
    let began =
        status.epoch_transition_time.as_ref().filter(|_| reconciliation.observed.stored_epochs().is_closed())?;
    let is_late = reconciliation.now.0.duration_since(began.0) <= LATE;
    let restart = status.recent_restarts.last().filter(|last| is_late && last.number == status.group_restarts)?;
    let is_its = |strike: &&NodeStrike| strike.time.0.duration_since(restart.start_time.0) >= -CLOCK_SKEW;
    status.node_strikes.last().filter(is_its)
}
