//! Names Jobs and Pods that carry the JobSet's label and are not its own. They are left alone, and count for nothing.

use jobset_api::names;

use super::pass::{Pass, first_few};
use crate::store::JobView;

pub(super) fn name(pass: &mut Pass<'_>) {
    let jobset = pass.seen.jobset.metadata.name.as_deref().unwrap_or_default();
    // The Jobs of a deleted JobSet of this name go by themselves.
    let left_behind = |job: &JobView| job.controller.as_ref().is_some_and(|owner| owner.is_jobset(jobset));
    // One that has the name of one of ours is told of when that cannot be created.
    let in_the_way = |name: &str, job: &JobView| {
        let group = pass.groups().iter().find(|group| group.name == job.replicated_job);
        let index = group.and_then(|group| job.index.filter(|index| (0..group.replicas()).contains(index)));
        index.is_some_and(|index| names::job(jobset, &job.replicated_job, index) == name)
    };
    let is_stray = |name: &str, job: &JobView| !job.deleting && !left_behind(job) && !in_the_way(name, job);
    let jobs = pass.seen.foreign_jobs().filter(|(name, job)| is_stray(name, job));
    let jobs: Vec<String> = jobs.map(|(name, _)| format!("Job {name}")).collect();
    let strays = jobs.into_iter().chain(pass.seen.stray_pods().map(|name| format!("Pod {name}")));
    let strays: Vec<String> = strays.collect();
    if strays.is_empty() {
        return;
    }
    let strays = first_few(&strays);
    pass.warn(
        "NotControlled",
        format!("left alone, because they carry the label of this JobSet and are not its own: {strays}"),
    );
}
