//! Broken rules of what is written when.

use jobset_api::{JobSetStatus, LedgerBucket, event};
use jobset_rules::{Action, Plan, PodDeletion};
use jobset_store::Observed;
use jobset_store::pods::PodPhase;

use super::RuleMutation;

/// Gives up the Pods of a lost node in the plan that begins the restart, before its status is stored.
pub(super) fn give_up_at_once(observed: &Observed<'_>, plan: &mut Plan) {
    let last = plan.status.recent_restarts.last();
    if last.is_some_and(|restart| restart.message.contains(event::NODE_LOST)) {
        let pods = observed.unreachable().into_iter().map(|it| it.pod);
        plan.actions.extend(pods.filter(|pod| pod.phase == PodPhase::Open).map(|pod| Action::DeletePod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            reason: PodDeletion::NodeLost,
        }));
    }
}

/// Leaves out the time that has passed, or adds it to the bucket that begins.
pub(super) fn edit_ledger(broken: RuleMutation, before: &JobSetStatus, status: &mut JobSetStatus) {
    let (Some(before), Some(after)) = (&before.ledger, &mut status.ledger) else { return };
    let passed = after.milliseconds.sum() - before.milliseconds.sum();
    if broken == RuleMutation::LedgerLosesTime {
        after.milliseconds = before.milliseconds.clone();
    } else if after.bucket != LedgerBucket::Finished {
        after.milliseconds = before.milliseconds.clone();
        if let Some(time) = after.milliseconds.of_mut(after.bucket) {
            *time += passed;
        }
    }
}
