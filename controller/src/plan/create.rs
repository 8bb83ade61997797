//! Creates the Jobs that are missing.

use jobset_api::{RestartStrategy, names};

use super::{Action, Pass};
use crate::build;

pub(super) fn missing_jobs(pass: &mut Pass<'_>) {
    let seen = pass.seen;
    let jobset = &seen.jobset;
    let attempt = pass.status.restarts;
    // Jobs are deleted in the foreground: one that is left may still have Pods.
    let previous_left = seen.jobs.values().any(|job| job.attempt.is_none_or(|of| of < attempt));
    if previous_left && jobset.spec.restart_strategy() == RestartStrategy::BlockingRecreate {
        return;
    }
    let jobset_name = jobset.metadata.name.as_deref().unwrap_or_default();
    for (group_index, group) in jobset.spec.replicated_jobs.iter().enumerate() {
        for job_index in 0..group.replicas() {
            let name = names::job(jobset_name, &group.name, job_index);
            if let Some(foreign) = seen.foreign_jobs.get(&name) {
                // One that is being deleted makes room by itself.
                if !foreign.deleting {
                    let owner = foreign.controller_uid.as_deref().unwrap_or("nobody");
                    pass.warn(
                        "JobNameTaken",
                        format!("Job {name} exists and is controlled by {owner}: delete it, or rename the JobSet"),
                    );
                }
            } else if !seen.jobs.contains_key(&name) {
                let job = build::job(jobset, build::Place { group_index, job_index }, attempt);
                pass.actions.push(Action::CreateJob(Box::new(job)));
            }
        }
    }
}
