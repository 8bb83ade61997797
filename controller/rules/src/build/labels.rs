//! The labels of a Job and of its Pods. The same keys and values are also annotations.

use std::collections::BTreeMap;

use jobset_api::{JobSet, ReplicatedJob, labels, names};
use kube::ResourceExt;

use super::{Attempt, JobPlace};

/// The labels and annotations of the Job `name` at `place`.
pub(super) fn keys(jobset: &JobSet, place: JobPlace, name: &str, attempt: Attempt) -> BTreeMap<String, String> {
    let groups = &jobset.spec.replicated_jobs;
    let group = &groups[place.group_index];
    let same_group = |other: &&ReplicatedJob| other.group_name() == group.group_name();
    let before = &groups[..place.group_index];
    // i64 holds the sum also for invalid specifications.
    let replicas = |group: &ReplicatedJob| i64::from(group.replicas());
    let job_index = i64::from(place.job_index);
    let global_index = before.iter().map(replicas).sum::<i64>() + job_index;
    let group_index = before.iter().filter(same_group).map(replicas).sum::<i64>() + job_index;
    let group_replicas = groups.iter().filter(same_group).map(replicas).sum::<i64>();
    let namespace = jobset.namespace().unwrap_or_default();

    let mut keys: BTreeMap<String, String> = [
        (labels::JOBSET_NAME, jobset.name_any()),
        (labels::JOBSET_UID, jobset.uid().unwrap_or_default()),
        (labels::REPLICATED_JOB_NAME, group.name.clone()),
        (labels::REPLICATED_JOB_REPLICAS, group.replicas().to_string()),
        (labels::GLOBAL_REPLICAS, jobset.spec.global_replicas().to_string()),
        (labels::JOB_INDEX, place.job_index.to_string()),
        (labels::JOB_GLOBAL_INDEX, global_index.to_string()),
        (labels::JOB_KEY, names::job_key(&namespace, name)),
        (labels::RESTART_ATTEMPT, attempt.restarts.to_string()),
        (labels::JOB_RESTART_ATTEMPT, attempt.job.to_string()),
        (labels::GROUP_NAME, group.group_name().to_owned()),
        (labels::GROUP_REPLICAS, group_replicas.to_string()),
        (labels::JOB_GROUP_INDEX, group_index.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    if let Some(coordinator) = &jobset.spec.coordinator {
        let job = names::job(&jobset.name_any(), &coordinator.replicated_job, coordinator.job_index);
        let pod = names::pod_hostname(&job, coordinator.pod_index);
        keys.insert(labels::COORDINATOR.to_owned(), format!("{pod}.{}", jobset.subdomain()));
    }
    keys
}
