//! Counts the Jobs of each replicatedJob: each Job of the current attempt in one bucket, ready as an overlay.

use jobset_api::ReplicatedJobStatus;

use super::failure;
use super::pass::Pass;
use crate::store::{Finished, JobView};

pub(super) fn jobs(pass: &mut Pass<'_>) {
    let counted = pass.groups().iter().map(|group| {
        // Counters of individual restarts are the failure policy's, and stay.
        let mut stored = pass.status.replicated_job(&group.name).cloned().unwrap_or_default();
        failure::pad(&mut stored.job_restarts, group.replicas());
        failure::pad(&mut stored.job_restarts_count_towards_max, group.replicas());
        ReplicatedJobStatus {
            name: group.name.clone(),
            ready: 0,
            succeeded: 0,
            failed: 0,
            active: 0,
            suspended: 0,
            ..stored
        }
    });
    let mut counted: Vec<ReplicatedJobStatus> = counted.collect();
    for current in &pass.current {
        count(current.job, &mut counted[current.group]);
    }
    let ready: i64 = counted.iter().map(|group| i64::from(group.ready) + i64::from(group.succeeded)).sum();
    let all: i64 = pass.groups().iter().map(|group| i64::from(group.replicas())).sum();
    pass.status.jobs_ready = format!("{ready}/{all}");
    pass.status.replicated_jobs_status = counted;
}

fn count(job: &JobView, status: &mut ReplicatedJobStatus) {
    match &job.finished {
        Some(Finished::Completed) => status.succeeded += 1,
        Some(Finished::Failed { .. }) => status.failed += 1,
        // Until its Pods have gone, a queue must not give their quota to somebody else.
        None if job.suspended && job.active == 0 => status.suspended += 1,
        None => {
            // Between two Pods, or before the first, a Job is no less active: each is counted somewhere.
            status.active += 1;
            status.ready += i32::from(!job.suspended && job.ready + job.succeeded >= job.pods);
        }
    }
}
