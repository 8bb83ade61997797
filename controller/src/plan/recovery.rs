//! Records when all Jobs are ready: a group restart, or the first start, is over.

use jobset_api::{JobSetStatus, ReplicatedJob, Scope, conditions};

use super::reconciliation::Reconciliation;
use super::{Fact, members};

pub(super) fn record(reconciliation: &mut Reconciliation<'_>) {
    let (status, groups) = (&reconciliation.status, reconciliation.groups());
    let restarts = conditions::is_true(&status.conditions, conditions::RESTARTING);
    if !all_are_ready(status, groups) || restarts && !all_run_again(reconciliation) {
        return;
    }
    if reconciliation.clear_condition(conditions::RESTARTING, conditions::JOBS_READY, "all jobs are ready") {
        reconciliation.note("Restarted", restarted_message(reconciliation));
        reconciliation.facts.push(Fact::Recovered);
    } else if reconciliation.status.group_restarts == 0 && !all_are_ready(&reconciliation.observed.status(), groups) {
        reconciliation.facts.push(Fact::Started);
    }
}

/// Whether all workers run after a restart. With in-place restart, the readiness of Jobs is not enough: the Job controller
/// writes it and the agents report epochs, at different times, so it may still be the readiness before the restart.
fn all_run_again(reconciliation: &Reconciliation<'_>) -> bool {
    let lifted = !reconciliation.status.epochs().is_closed();
    !reconciliation.in_place() || lifted && members::slots(reconciliation).all_run()
}

fn restarted_message(reconciliation: &Reconciliation<'_>) -> String {
    let epoch = if reconciliation.in_place() {
        format!(" in epoch {}", reconciliation.status.synced_epoch)
    } else {
        String::new()
    };
    let (counted, max_restarts) = (
        reconciliation.budget.spent(&reconciliation.status, Scope::JobSet),
        reconciliation.observed.jobset.spec.max_restarts(),
    );
    format!(
        "all jobs are ready{epoch} after restart {}; {counted} of {max_restarts} counted",
        reconciliation.status.group_restarts
    )
}

fn all_are_ready(status: &JobSetStatus, groups: &[ReplicatedJob]) -> bool {
    groups.iter().all(|group| {
        let counted = status.replicated_job(&group.name);
        counted.is_some_and(|counted| {
            counted.suspended == 0 && counted.ready + counted.succeeded + counted.failed >= group.replicas()
        })
    })
}
