//! Limits the failures of Pods before their worker could start, and names them.
//!
//! Such a failure does not advance an epoch, so no other rule counts it. Without this rule, a Pod that keeps failing in its
//! init containers would block the group forever. A Pod that fails three times is replaced, and the JobSet fails once more Pods of one
//! slot have failed than it may restart. A Pod that its node refuses has not failed: it is replaced, and never counts.

use std::ops::ControlFlow;

use jobset_api::{conditions, event};
use jobset_store::pods::{Blocked, JobPods};

use crate::reconciliation::{Reconciliation, node_name};
use crate::types::PodDeletion;

/// Reason of the condition BarrierBlocked where Pods fail.
const FAILS: &str = "FailsBeforeBarrier";
const REFUSED: &str = "RefusedByNode";

pub(crate) fn limit_failures(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let blocked: Vec<&Blocked> = reconciliation.running_pods().flat_map(JobPods::blocked).collect();
    let most = blocked.iter().max_by_key(|it| (it.pods, it.failures, it.refusals, &it.pod));
    let Some(most) = most else {
        reconciliation.clear_condition(
            conditions::BARRIER_BLOCKED,
            "BarrierReached",
            "no worker fails before the barrier",
        );
        return ControlFlow::Continue(());
    };
    if (most.failures, most.pods) == (0, 0) {
        report_refusals(reconciliation, most, blocked.len() - 1);
        return ControlFlow::Continue(());
    }
    let failing = blocked.iter().filter(|blocked| (blocked.failures, blocked.pods) != (0, 0)).count();
    let jobset = reconciliation.observed.jobset;
    let message = format!("{}{}: {}", failed(most, &jobset.restart_limit()), others(failing - 1), why(most));
    if i64::from(most.pods) > i64::from(jobset.allowed_restarts()) {
        return reconciliation.fail(conditions::WORKER_NOT_STARTED, message);
    }
    if reconciliation.set_condition(conditions::BARRIER_BLOCKED, FAILS, &message) {
        reconciliation.warn(event::BARRIER_BLOCKED, message);
    }
    for blocked in blocked.into_iter().filter(|blocked| blocked.is_given_up()) {
        replace(reconciliation, blocked);
    }
    ControlFlow::Continue(())
}

/// Deletes a Pod that has failed too often. When it goes, it counts as one failure.
fn replace(reconciliation: &mut Reconciliation<'_>, blocked: &Blocked) {
    let Blocked { pod, uid, failures, node, .. } = blocked;
    let (node, times, why) = (node_name(node.as_ref()), times(*failures), why(blocked));
    let message =
        format!("Pod {pod} on node {node} is replaced: it failed {times} before its worker could start: {why}");
    reconciliation.delete_pod(pod, uid, PodDeletion::FailsBeforeWorker, message);
}

/// `Pod p failed twice before its worker could start, as did 1 Pod before it (maxRestarts 6)`.
fn failed(most: &Blocked, limit: &str) -> String {
    // A Pod that has failed for good is one of the Pods that are counted.
    let (times, before) = match most.failures {
        0 => (String::new(), most.pods - 1),
        failures => (format!(" {}", times(failures)), most.pods),
    };
    let before = match before {
        0 => String::new(),
        1 => ", as did the Pod before it".to_owned(),
        pods => format!(", as did the {pods} Pods before it"),
    };
    format!("Pod {} failed{times} before its worker could start{before} ({limit})", most.pod)
}

/// What failed, as far as that was observed.
fn why(blocked: &Blocked) -> String {
    match (&blocked.failure.first, &blocked.failure.pod_status) {
        (Some(exit), _) => exit.to_string(),
        (None, Some((reason, message))) => format!("{reason}: {message}"),
        (None, None) => "look at its init containers and its agent".to_owned(),
    }
}

/// Names the Pod that its node has refused. The message follows each doubling of the refusals, the Event the first alone: a node may
/// refuse Pods for long.
fn report_refusals(reconciliation: &mut Reconciliation<'_>, most: &Blocked, other_slots: usize) {
    let stored = reconciliation.true_condition(conditions::BARRIER_BLOCKED);
    let is_known = stored.is_some_and(|it| it.reason == REFUSED);
    if is_known && !most.refusals.is_power_of_two() {
        return;
    }
    let why = most.failure.pod_status.as_ref().map(|(reason, words)| format!(" ({reason}: {words})"));
    let refused = match most.refusals {
        1 => String::new(),
        2 => ", as the one before it".to_owned(),
        count => format!(", as the {} before it", count - 1),
    };
    // Kueue ends Pods that wait for a node that is lost.
    let how = most
        .node
        .as_ref()
        .map_or("failed before it had a node".to_owned(), |node| format!("was refused by node {node}"));
    let message = format!(
        "Pod {} {how}{refused}{}{}; it is replaced, and does not count",
        most.pod,
        why.unwrap_or_default(),
        others(other_slots),
    );
    if reconciliation.set_condition(conditions::BARRIER_BLOCKED, REFUSED, &message) && !is_known {
        reconciliation.warn(event::BARRIER_BLOCKED, message);
    }
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn others(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => ", as did another".to_owned(),
        others => format!(", as did {others} others"),
    }
}
