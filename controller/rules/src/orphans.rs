//! Warns of Jobs and Pods that carry the label of the JobSet but are not controlled by it. The rules neither change nor
//! count them.

use jobset_api::{event, names};
use jobset_store::JobView;

use crate::reconciliation::{Reconciliation, first_few};

pub(super) fn warn(reconciliation: &mut Reconciliation<'_>) {
    let observed = reconciliation.observed;
    // The rule that creates Jobs warns of a foreign Job with the name of one of the JobSet's Jobs.
    let is_orphan = |name: &str, job: &JobView| {
        observed.is_taken(job.controller.as_ref(), job.deleting) && !has_our_name(reconciliation, name, job)
    };
    let jobs = observed.foreign_jobs().filter(|(name, job)| is_orphan(name, job));
    let jobs: Vec<String> = jobs.map(|(name, _)| format!("Job {name}")).collect();
    let orphans = jobs.into_iter().chain(observed.entry.orphans.iter().map(|name| format!("Pod {name}")));
    let orphans: Vec<String> = orphans.collect();
    if orphans.is_empty() {
        return;
    }
    let orphans = first_few(&orphans);
    reconciliation.warn(
        event::NOT_CONTROLLED,
        format!("left alone, because they carry the label of this JobSet but are not its own: {orphans}"),
    );
}

/// The foreign and orphaned Jobs that have the name of a Job of the JobSet, as after a deletion of an earlier JobSet that
/// has left its Jobs: the JobSet waits for them.
pub(super) fn with_our_names(reconciliation: &Reconciliation<'_>) -> Vec<String> {
    let observed = reconciliation.observed;
    let is_in_the_way = |name: &str, job: &JobView| {
        observed.is_taken(job.controller.as_ref(), job.deleting) && has_our_name(reconciliation, name, job)
    };
    let jobs = observed.foreign_jobs().filter(|(name, job)| is_in_the_way(name, job));
    jobs.map(|(name, job)| in_the_way(name, job)).collect()
}

/// What to do about a Job that has the name of a Job of the JobSet.
pub(super) fn in_the_way(name: &str, job: &JobView) -> String {
    let owner = job.controller.as_ref().map_or("nobody", |owner| &owner.name);
    format!("Job {name} exists and is controlled by {owner}: delete it, or rename the JobSet")
}

fn has_our_name(reconciliation: &Reconciliation<'_>, name: &str, job: &JobView) -> bool {
    let group = reconciliation.group_named(&job.replicated_job);
    let index = group.and_then(|(_, group)| job.index.filter(|index| (0..group.replicas()).contains(index)));
    index.is_some_and(|index| names::job(reconciliation.observed.name(), &job.replicated_job, index) == name)
}
