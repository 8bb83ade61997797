//! Notes when all Jobs are ready: a restart of the group, or its first start, is over.

use jobset_api::{JobSetStatus, ReplicatedJob, Scope, conditions};

use super::pass::Pass;
use super::{Fact, members};

pub(super) fn note(pass: &mut Pass<'_>) {
    let (status, groups) = (&pass.status, pass.groups());
    let restarts = conditions::is_true(&status.conditions, conditions::RESTARTING);
    if !all_are_ready(status, groups) || restarts && !all_run_again(pass) {
        return;
    }
    if pass.clear_condition(conditions::RESTARTING, conditions::JOBS_READY, "all jobs are ready") {
        pass.tell("Restarted", again(pass));
        pass.facts.push(Fact::Recovered);
    } else if pass.status.group_restarts == 0 && !all_are_ready(&pass.seen.status(), groups) {
        pass.facts.push(Fact::Started);
    }
}

/// In place, epoch and readiness have different writers: the Jobs may still be as ready as before the restart.
fn all_run_again(pass: &Pass<'_>) -> bool {
    let lifted = !pass.status.epochs().is_closed();
    !pass.in_place() || lifted && members::slots(pass).all_run()
}

fn again(pass: &Pass<'_>) -> String {
    let epoch = if pass.in_place() { format!(" in epoch {}", pass.status.synced_epoch) } else { String::new() };
    let (counted, max_restarts) =
        (pass.budget.spent(&pass.status, Scope::JobSet), pass.seen.jobset.spec.max_restarts());
    format!(
        "all jobs are ready{epoch} after restart {}; {counted} of {max_restarts} counted",
        pass.status.group_restarts
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
