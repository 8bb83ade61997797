//! Warns of Jobs and Pods that carry the label of the JobSet but are not controlled by it. The rules neither change nor
//! count them.

use jobset_api::{event, names};
use jobset_store::JobView;

use crate::reconciliation::{Reconciliation, first_few};

pub(super) fn warn(reconciliation: &mut Reconciliation<'_>) {
    let observed = reconciliation.observed;
    // The rule that creates Jobs warns of a foreign Job with the name of one of the JobSet's Jobs.
    let has_our_name = |name: &str, job: &JobView| {
        let group = reconciliation.group_named(&job.replicated_job);
        let index = group.and_then(|(_, group)| job.index.filter(|index| (0..group.replicas()).contains(index)));
        index.is_some_and(|index| names::job(observed.name(), &job.replicated_job, index) == name)
    };
    let is_orphan = |name: &str, job: &JobView| {
        observed.is_taken(job.controller.as_ref(), job.deleting) && !has_our_name(name, job)
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
