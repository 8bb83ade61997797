//! Notes when all Jobs are ready: a restart of the group, or its first start, is over.

use jobset_api::{JobSetStatus, ReplicatedJob, conditions};

use super::Fact;
use super::pass::Pass;

pub(super) fn note(pass: &mut Pass<'_>) {
    let (status, groups) = (&pass.status, pass.groups());
    // In place, epoch and readiness have different writers: the Jobs may still be as ready as before the restart.
    let lifted = !pass.in_place() || status.synced_epoch > status.deprecated_epoch;
    if !lifted || !all_are_ready(status, groups) {
        return;
    }
    if pass.clear_condition(conditions::RESTARTING, conditions::JOBS_READY, "all jobs are ready") {
        pass.tell("Restarted", "all jobs are ready".to_owned());
        pass.facts.push(Fact::Recovered);
    } else if pass.status.group_restarts == 0 && !all_are_ready(&pass.seen.status(), groups) {
        pass.facts.push(Fact::Started);
    }
}

fn all_are_ready(status: &JobSetStatus, groups: &[ReplicatedJob]) -> bool {
    groups.iter().all(|group| {
        let counted = status.replicated_job(&group.name);
        counted.is_some_and(|counted| counted.ready + counted.succeeded + counted.failed >= group.replicas())
    })
}
