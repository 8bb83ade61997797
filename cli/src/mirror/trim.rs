//! Drops the fields of objects that no report reads. A report of the trimmed objects equals that of the whole ones.

use std::collections::BTreeMap;

use jobset_api::{JobSet, labels};
use jobset_objects::{ALL_CONTAINERS_RESTARTING, PartialCondition, PartialContainerStatus, PartialJob, PartialPod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

const POD_LABELS: [&str; 5] =
    [labels::JOBSET_NAME, labels::JOBSET_UID, labels::REPLICATED_JOB_NAME, labels::JOB_NAME, labels::PRIORITY];
const POD_ANNOTATIONS: [&str; 7] = [
    labels::EPOCH,
    labels::IN_PLACE_RESTART_ATTEMPT,
    labels::COMPLETION_INDEX,
    labels::WORKER_EXIT,
    labels::PROGRESS,
    labels::EXCLUSIVE_TOPOLOGY,
    labels::NODE_SELECTOR_STRATEGY,
];
const POD_CONDITIONS: [&str; 4] = ["Ready", "PodScheduled", "DisruptionTarget", ALL_CONTAINERS_RESTARTING];
/// The manifest that `kubectl apply` writes into an annotation, as large as the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The Pod with the fields that reports read.
pub(super) fn trimmed_pod(mut pod: PartialPod) -> PartialPod {
    trim_metadata(&mut pod.metadata);
    keep(&mut pod.metadata.labels, &POD_LABELS);
    keep(&mut pod.metadata.annotations, &POD_ANNOTATIONS);
    // Those of an agent tell its restarts from its failures.
    for container in &mut pod.spec.containers {
        container.restart_policy_rules = Vec::new();
    }
    pod.spec.containers.shrink_to_fit();
    pod.spec.init_containers.shrink_to_fit();
    let status = &mut pod.status;
    status.conditions.retain(|condition| POD_CONDITIONS.contains(&condition.type_.as_str()));
    status.conditions.shrink_to_fit();
    status.container_statuses.iter_mut().chain(&mut status.init_container_statuses).for_each(trim_container);
    status.container_statuses.shrink_to_fit();
    status.init_container_statuses.shrink_to_fit();
    pod
}

/// The Job with the fields that reports read.
pub(super) fn trimmed_job(mut job: PartialJob) -> PartialJob {
    trim_metadata(&mut job.metadata);
    job.metadata.annotations = None;
    job.status.conditions.retain(PartialCondition::is_true);
    job
}

/// The JobSet without what other programs keep in its metadata.
pub(super) fn trimmed_jobset(mut jobset: JobSet) -> JobSet {
    jobset.metadata.managed_fields = None;
    if let Some(annotations) = &mut jobset.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    jobset
}

fn trim_metadata(metadata: &mut ObjectMeta) {
    metadata.owner_references = None;
    metadata.resource_version = None;
    metadata.deletion_grace_period_seconds = None;
}

fn trim_container(status: &mut PartialContainerStatus) {
    status.container_id = String::new();
}

/// Keeps the entries with these keys, in a map without room for others.
fn keep(entries: &mut Option<BTreeMap<String, String>>, keys: &[&str]) {
    *entries = entries.take().map(|all| all.into_iter().filter(|(key, _)| keys.contains(&key.as_str())).collect());
}
