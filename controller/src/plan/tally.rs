//! Counts the Jobs of each replicatedJob: each Job of the current attempt in one bucket, ready as an overlay.

use jobset_api::ReplicatedJobStatus;

use super::Pass;
use crate::store::{Finished, JobView};

pub(super) fn jobs(pass: &mut Pass<'_>) {
    let counted = pass.seen.jobset.spec.replicated_jobs.iter().map(|group| {
        // Counters of individual restarts are the failure policy's, and stay.
        let stored = pass.status.replicated_jobs_status.iter().find(|status| status.name == group.name);
        let mut status = ReplicatedJobStatus {
            name: group.name.clone(),
            ready: 0,
            succeeded: 0,
            failed: 0,
            active: 0,
            suspended: 0,
            ..stored.cloned().unwrap_or_default()
        };
        for (_, job) in pass.current_jobs().filter(|(_, job)| job.replicated_job == group.name) {
            count(job, &mut status);
        }
        status
    });
    pass.status.replicated_jobs_status = counted.collect();
}

fn count(job: &JobView, status: &mut ReplicatedJobStatus) {
    match &job.finished {
        Some(Finished::Completed) => status.succeeded += 1,
        Some(Finished::Failed { .. }) => status.failed += 1,
        None if job.suspended => status.suspended += 1,
        None => {
            status.active += i32::from(job.active > 0);
            status.ready += i32::from(job.ready + job.succeeded >= job.pods);
        }
    }
}
