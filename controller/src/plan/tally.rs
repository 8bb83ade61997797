//! Counts the Jobs of each replicatedJob as the Go JobSet counts them, for those who read the status.
//!
//! `ready`, `active` and `suspended` of Jobs that have not finished are independent of each other, and a Job may be in none
//! of them. A rule that needs to know where a Job stands asks the Job ([`JobView::is_ready`]).

use jobset_api::ReplicatedJobStatus;

use super::failure;
use super::pass::{Pass, has_completed};
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
    let ready = pass.current.iter().filter(|current| current.job.is_ready() || has_completed(current.job)).count();
    let all: i64 = pass.groups().iter().map(|group| i64::from(group.replicas())).sum();
    pass.status.jobs_ready = format!("{ready}/{all}");
    pass.status.replicated_jobs_status = counted;
}

fn count(job: &JobView, status: &mut ReplicatedJobStatus) {
    match &job.finished {
        Some(Finished::Completed) => status.succeeded += 1,
        Some(Finished::Failed { .. }) => status.failed += 1,
        None => {
            status.ready += i32::from(job.has_ready_pods());
            status.active += i32::from(job.active > 0);
            status.suspended += i32::from(job.suspended);
        }
    }
}
