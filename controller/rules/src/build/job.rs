//! Builds a child Job.

use std::collections::BTreeMap;

use jobset_api::effective::MAX_BACKOFF_LIMIT;
use jobset_api::{JobSet, JobSetStatus, RestartStrategy, labels, last_words, names, restart_rules};
use jobset_store::PriorityClasses;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use kube::api::ObjectMeta;

use super::labels::keys;
use super::owned::Owned;
use super::{claim, placement};

/// Maximum `completions` for which the Job API accepts `backoffLimitPerIndex` without `maxFailedIndexes`. Above it, the API
/// also limits `maxFailedIndexes` and `parallelism` to 10,000.
const COMPLETIONS_WITHOUT_MAX_FAILED_INDEXES: i32 = 100_000;

/// The position of a Job in its JobSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobPlace {
    /// Index of its replicatedJob in the specification.
    pub group_index: usize,
    pub job_index: i32,
}

/// The attempt of a Job. A Job with a lower number in `restarts` or `job` belongs to an earlier attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// How often the whole JobSet was recreated: `status.restarts`.
    pub restarts: i32,
    /// How often the Job was recreated without the rest of the JobSet: [`JobSetStatus::job_attempt`].
    pub job: i32,
    /// The execution of the JobSet (`status.executionAttempts`), for an annotation; `None` if Jobs get no such annotation.
    pub execution: Option<i32>,
}

impl Attempt {
    pub fn current(status: &JobSetStatus, replicated_job: &str, job_index: i32) -> Self {
        let job = status.job_attempt(replicated_job, job_index);
        Self { restarts: status.restarts, job, execution: status.execution_attempts }
    }
}

/// A Job as the JobSet wants it: what it is built from, beside the JobSet.
///
/// A plan has this in place of the Job. What a template weighs is spent when the request is sent, once for each request under
/// way, and not for each Job of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredJob {
    pub name: String,
    pub replicated_job: String,
    pub place: JobPlace,
    pub attempt: Attempt,
    /// The restart strategy in effect, which is Recreate in place of InPlaceRestart if in-place restart is disabled.
    pub strategy: RestartStrategy,
    /// Value of the label for the priority of its Pods.
    pub priority: String,
    /// Whether its Pods keep away from the nodes that the JobSet avoids.
    pub avoids_nodes: bool,
}

impl DesiredJob {
    /// The Job at `place`, whose Pods go to any node. `strategy` is the one in effect.
    ///
    /// # Panics
    /// If the JobSet has no replicatedJob with that index.
    pub fn of(
        jobset: &JobSet,
        place: JobPlace,
        attempt: Attempt,
        strategy: RestartStrategy,
        classes: &PriorityClasses,
    ) -> Self {
        let group = &jobset.spec.replicated_jobs[place.group_index];
        let name = names::job(jobset.metadata.name.as_deref().unwrap_or_default(), &group.name, place.job_index);
        let priority = placement::priority(group.template.spec.template.spec.as_ref(), classes);
        Self { name, replicated_job: group.name.clone(), place, attempt, strategy, priority, avoids_nodes: false }
    }
}

/// Builds a Job of this JobSet.
///
/// # Panics
/// If the Job belongs to another JobSet, which has no replicatedJob at that place.
pub fn job(jobset: &JobSet, desired: &DesiredJob) -> Job {
    let DesiredJob { name, place, attempt, strategy, priority, avoids_nodes, .. } = desired;
    let group = &jobset.spec.replicated_jobs[place.group_index];
    let keys = keys(jobset, *place, name, *attempt);
    let placement = placement::annotations(jobset, group);

    let template = group.template.metadata.as_ref();
    let mut metadata = ObjectMeta {
        labels: template.and_then(|template| template.labels.clone()),
        annotations: template.and_then(|template| template.annotations.clone()),
        ..super::metadata(jobset, name.clone())
    };
    let execution = attempt.execution.map(|execution| (labels::EXECUTION_ATTEMPT.to_owned(), execution.to_string()));
    let annotations: BTreeMap<String, String> = placement.into_iter().chain(execution).collect();
    mark(&mut metadata, &keys, &annotations);
    let owned = Owned::of(&group.template.spec.template);
    if owned != Owned::default() {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(labels::OWNED_BY_POD_TEMPLATE.to_owned(), owned.text());
    }

    let mut spec = group.template.spec.to_job_spec();
    spec.suspend = Some(jobset.spec.is_suspended());
    // The TTL controller would delete the finished Job, and the JobSet would create and run it again.
    spec.ttl_seconds_after_finished = None;
    let pod_metadata = spec.template.metadata.get_or_insert_default();
    mark(pod_metadata, &keys, &annotations);
    // Only the agent may report an epoch. A report in the template would lift the barrier before any agent has reached it.
    let annotations = pod_metadata.annotations.get_or_insert_default();
    annotations.remove(labels::EPOCH);
    annotations.remove(labels::IN_PLACE_RESTART_ATTEMPT);
    // The Pod webhook alone says that a Pod keeps away by a hard rule: the controller replaces such a Pod.
    annotations.remove(labels::AVOID_NODES);
    let pod = spec.template.spec.get_or_insert_default();
    if jobset.spec.dns_hostnames_enabled() {
        pod.subdomain = Some(jobset.subdomain().to_owned());
    }
    if placement::by_node_selector(metadata.annotations.get_or_insert_default()) {
        placement::select_nodes(pod, metadata.namespace.as_deref().unwrap_or_default(), name);
    } else {
        // Also without exclusive placement: the anti-affinity of other, exclusive JobSets reads this label.
        pod_metadata.labels.get_or_insert_default().insert(labels::PRIORITY.to_owned(), priority.clone());
    }
    if *avoids_nodes {
        pod_metadata.labels.get_or_insert_default().insert(labels::AVOIDS_NODES.to_owned(), "true".to_owned());
    }
    claim::add_volumes(jobset, pod);
    // A restart deletes the Pods or erases the logs of their containers; the cause of a restart has their last words.
    pod.containers.iter_mut().for_each(last_words::keep);
    // The strategy does not matter: the template may still have the agent when the JobSet falls back to Recreate.
    restart_rules::compile_pod(pod);
    if *strategy == RestartStrategy::InPlaceRestart {
        count_failures_by_index(&mut spec);
    }
    Job { metadata, spec: Some(spec), status: None }
}

/// Adds labels and annotations. They replace those of the template. Labels are annotations, too.
fn mark(metadata: &mut ObjectMeta, labels: &BTreeMap<String, String>, more: &BTreeMap<String, String>) {
    metadata.labels.get_or_insert_default().extend(labels.clone());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.extend(labels.clone());
    annotations.extend(more.clone());
}

/// Sets `backoffLimitPerIndex`, unless the user has set it or the Job API does not accept it. With it, the back-off of the Job
/// controller grows with the failures of one index, not with every failed or deleted Pod of the Job.
fn count_failures_by_index(spec: &mut JobSpec) {
    let indexed = spec.completion_mode.as_deref() == Some("Indexed");
    let never = spec.template.spec.as_ref().is_some_and(|pod| pod.restart_policy.as_deref() == Some("Never"));
    let few = spec.completions.is_none_or(|completions| completions <= COMPLETIONS_WITHOUT_MAX_FAILED_INDEXES);
    if indexed && never && few && spec.backoff_limit_per_index.is_none() {
        spec.backoff_limit_per_index = Some(MAX_BACKOFF_LIMIT);
    }
}
