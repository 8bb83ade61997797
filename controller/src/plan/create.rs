//! Creates the Jobs that are missing.

use jobset_api::{RestartStrategy, names};

use super::{Action, Pass};
use crate::build;
use crate::store::PriorityClasses;

/// Jobs created in one pass. The next pass, which sees these, creates the rest: a JobSet of a million Jobs takes its turn
/// with others.
const AT_ONCE: usize = 1000;

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
    let places = jobset.spec.replicated_jobs.iter().enumerate().flat_map(|(group_index, group)| {
        (0..group.replicas()).map(move |job_index| (group, build::Place { group_index, job_index }))
    });
    let mut created = 0;
    for (group, place) in places {
        let name = names::job(jobset_name, &group.name, place.job_index);
        if let Some(foreign) = seen.foreign_jobs.get(&name) {
            // The Jobs of a deleted JobSet of this name make room by themselves.
            let predecessor = foreign.controller.as_ref().is_some_and(|owner| owner.is_jobset(jobset_name));
            if !foreign.deleting && !predecessor {
                let owner = foreign.controller.as_ref().map_or("nobody", |owner| &owner.name);
                pass.warn(
                    "JobNameTaken",
                    format!("Job {name} exists and is controlled by {owner}: delete it, or rename the JobSet"),
                );
            }
        } else if !seen.jobs.contains_key(&name) {
            let attempt = build::Attempt::current(&pass.status, &group.name, place.job_index);
            let strategy = jobset.spec.restart_strategy();
            let job = build::job(jobset, place, attempt, strategy, &PriorityClasses::default());
            pass.actions.push(Action::CreateJob(Box::new(job)));
            created += 1;
            if created == AT_ONCE {
                break;
            }
        }
    }
}
