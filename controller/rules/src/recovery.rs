//! Records when all Jobs are ready: a group restart, or the first start, is over.

use jobset_api::{JobSetStatus, ReplicatedJob, Scope, conditions, event};

use crate::reconciliation::Reconciliation;
use crate::types::Fact;
use crate::{backoff, members};

pub(super) fn record(reconciliation: &mut Reconciliation<'_>) {
    let (status, groups) = (&reconciliation.status, reconciliation.groups());
    let restarts = conditions::is_true(&status.conditions, conditions::RESTARTING);
    let are_ready = all_are_ready(status, groups);
    let is_over = if restarts && reconciliation.in_place() {
        // The readiness of Jobs is not enough. The Job controller writes it and the agents report epochs, at different times, so it
        // may still be the readiness before the restart. The Jobs of newcomers are not ready, and the members run without them.
        let slots = members::slots(reconciliation);
        (are_ready || slots.newcomers > 0) && !status.epochs().is_closed() && slots.all_run()
    } else {
        are_ready
    };
    if !is_over {
        return;
    }
    let what = if are_ready { "all jobs are ready" } else { "all Pods run but new ones, which may follow" };
    if reconciliation.clear_condition(conditions::RESTARTING, conditions::JOBS_READY, what) {
        backoff::complete(reconciliation);
        if backoff::is_announced(reconciliation) {
            reconciliation.note(event::RESTARTED, restarted_message(reconciliation, what));
        }
        reconciliation.facts.push(Fact::Recovered);
    } else if reconciliation.status.group_restarts == 0 && !all_are_ready(&reconciliation.observed.status(), groups) {
        reconciliation.facts.push(Fact::Started);
    }
}

fn restarted_message(reconciliation: &Reconciliation<'_>, what: &str) -> String {
    let epoch = if reconciliation.in_place() {
        format!(" in epoch {}", reconciliation.status.synced_epoch)
    } else {
        String::new()
    };
    let counted = reconciliation.budget.spent(&reconciliation.status, Scope::JobSet);
    let max_restarts = reconciliation.observed.jobset.allowed_restarts();
    format!("{what}{epoch} after restart {}; {counted} of {max_restarts} counted", reconciliation.status.group_restarts)
}

fn all_are_ready(status: &JobSetStatus, groups: &[ReplicatedJob]) -> bool {
    groups.iter().enumerate().all(|(place, group)| {
        let counted = status.replicated_job_at(place, &group.name);
        counted.is_some_and(|counted| {
            counted.suspended == 0 && counted.ready + counted.succeeded + counted.failed >= group.replicas()
        })
    })
}
