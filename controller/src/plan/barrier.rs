//! Limits the failures of a Pod before its worker could start.
//!
//! Such a failure does not advance an epoch, so no other rule counts it. Without this rule, a Pod that keeps failing in its
//! init containers would block the group forever.

use std::ops::ControlFlow;

use jobset_api::{conditions, event};

use super::members::running_jobs;
use super::reconciliation::Reconciliation;

pub(super) fn limit_failures(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if !reconciliation.in_place() || reconciliation.observed.jobset.spec.is_suspended() {
        return ControlFlow::Continue(());
    }
    let slots = running_jobs(reconciliation).flat_map(|(pods, _)| pods.blocked());
    let blocked: Vec<_> = slots.map(|(failures, pod)| (failures, pod.map(|pod| pod.name.clone()))).collect();
    let Some((failures, pod)) = blocked.iter().max() else {
        reconciliation.clear_condition(
            conditions::BARRIER_BLOCKED,
            "BarrierReached",
            "no worker fails before the barrier",
        );
        return ControlFlow::Continue(());
    };
    let pod = pod.as_deref().unwrap_or("of a slot that is empty now");
    let times = if *failures == 1 { "once".to_owned() } else { format!("{failures} times") };
    let others = match blocked.len() - 1 {
        0 => String::new(),
        1 => ", as did another".to_owned(),
        others => format!(", as did {others} others"),
    };
    let jobset = reconciliation.observed.jobset;
    let message = format!(
        "Pod {pod} failed {times} before its worker could start ({}){others}: look at its init \
         containers and its agent",
        jobset.restart_limit()
    );
    if i64::from(*failures) > i64::from(jobset.allowed_restarts()) {
        return reconciliation.fail(conditions::WORKER_NOT_STARTED, message);
    }
    if reconciliation.set_condition(conditions::BARRIER_BLOCKED, true, "FailsBeforeBarrier", &message) {
        reconciliation.warn(event::BARRIER_BLOCKED, message);
    }
    ControlFlow::Continue(())
}
