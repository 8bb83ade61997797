//! Counts the Jobs of each replicatedJob for the status, with the definitions of the Go JobSet.
//!
//! `ready`, `active` and `suspended` count Jobs that have not finished. They are independent of each other, and a Job may be
//! in none of them. A rule that needs the state of one Job uses the Job itself ([`JobView::is_ready`]).

use std::collections::HashMap;

use jobset_api::ReplicatedJobStatus;
use jobset_store::{Finished, JobView};

use crate::failure;
use crate::reconciliation::{Reconciliation, has_completed};

pub(super) fn count_jobs(reconciliation: &mut Reconciliation<'_>) {
    let groups = reconciliation.groups();
    let mut stored = std::mem::take(&mut reconciliation.status.replicated_jobs_status);
    if !stored.iter().map(|status| &status.name).eq(groups.iter().map(|group| &group.name)) {
        let mut known: HashMap<String, ReplicatedJobStatus> =
            stored.into_iter().map(|status| (status.name.clone(), status)).collect();
        let of_name = |name: &String| ReplicatedJobStatus { name: name.clone(), ..ReplicatedJobStatus::default() };
        stored = groups.iter().map(|group| known.remove(&group.name).unwrap_or_else(|| of_name(&group.name))).collect();
    }
    // The failure policy writes the counters of individual restarts. This rule keeps them.
    let mut counted = stored;
    for (status, group) in counted.iter_mut().zip(groups) {
        failure::pad(&mut status.job_restarts, group.replicas());
        failure::pad(&mut status.job_restarts_count_towards_max, group.replicas());
        (status.ready, status.succeeded, status.failed, status.active, status.suspended) = (0, 0, 0, 0, 0);
    }
    for current in &reconciliation.current {
        count(current.job, &mut counted[current.group]);
    }
    let ready =
        reconciliation.current.iter().filter(|current| current.job.is_ready() || has_completed(current.job)).count();
    let all = reconciliation.observed.jobset.spec.global_replicas();
    reconciliation.status.jobs_ready = format!("{ready}/{all}");
    reconciliation.status.replicated_jobs_status = counted;
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
