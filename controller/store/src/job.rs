//! What the rules read of a Job.

use std::collections::BTreeMap;

use jobset_api::effective::MAX_BACKOFF_LIMIT;
use jobset_api::labels;
use jobset_api::restart_rules::restarts_pod;
use jobset_objects::{PartialCondition, PartialJob, PartialJobSpec, PartialPodTemplate, PartialTemplateSpec};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::Ranges;

/// Condition of a Job whose failure is decided, while its Pods end.
const FAILURE_TARGET: &str = "FailureTarget";
/// Condition of a Job whose success is decided, while its Pods end.
const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

/// Finalizers of objects whose children go first, or stay.
const OF_GARBAGE_COLLECTOR: [&str; 2] = ["foregroundDeletion", "orphan"];

/// More restarts than any JobSet lives to see.
const HIGHEST_ATTEMPT: i32 = 1_000_000_000;

// Each is said by itself, and read by itself.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobView {
    pub uid: String,
    /// resourceVersion.
    pub version: u64,
    /// The object that controls it: its JobSet, if all is well.
    pub controller: Option<ControllerRef>,
    /// replicatedJob that its label names.
    pub replicated_job: String,
    /// Its index in that replicatedJob; `None` where the label is absent or not a number.
    pub index: Option<i32>,
    /// `status.restarts` of the JobSet when it was created; `None` where the label is absent or not a number.
    pub attempt: Option<i32>,
    pub created: Option<Timestamp>,
    pub deleting: bool,
    /// A finalizer of somebody else that keeps it, if it is being deleted.
    pub held_by: Option<Box<str>>,
    pub suspended: bool,
    pub finished: Option<Finished>,
    /// Whether the Job controller is about to fail it: it has given up, and deletes the Pods that are left.
    pub failing: bool,
    /// Whether the Job controller is about to complete it: its success policy is met, or all its indexes have completed.
    pub succeeding: bool,
    /// Seconds that it may be active for (`activeDeadlineSeconds`).
    pub deadline: Option<i64>,
    /// When it started, or was resumed: its deadline counts from there.
    pub started: Option<Timestamp>,
    /// Whether the next Pod that fails is more than it bears (`backoffLimit`).
    pub bears_no_failure: bool,
    pub active: i32,
    pub ready: i32,
    pub succeeded: i32,
    /// Number of Pods that it runs at once.
    pub pods: i32,
    pub parallelism: i32,
    pub completions: Option<i32>,
    /// How often it was recreated without the rest of the set ([`labels::JOB_RESTART_ATTEMPT`]); 0 where the label is
    /// absent or not a number.
    pub job_attempt: i32,
    /// Completion indexes that have succeeded.
    pub completed: Ranges,
    /// Completion indexes that have failed for good.
    pub failed: Ranges,
    /// Whether the API server has kept the rules that restart all containers; one that does not know them drops them.
    pub restarts_in_place: bool,
    /// Whether no number of failed Pods fails it or one of its indexes for good.
    pub spares_failures: bool,
    /// Whether its Pods have the label by which they keep away from avoided nodes.
    pub avoids_nodes: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Finished {
    Completed,
    /// Failed, with reason and message of the condition, and its time.
    Failed {
        reason: String,
        message: String,
        /// When the condition became true.
        at: Timestamp,
    },
}

impl JobView {
    pub fn of(job: impl Into<PartialJob>) -> Self {
        let job: PartialJob = job.into();
        let (spec, status) = (&job.spec, &job.status);
        let parallelism = spec.parallelism.unwrap_or(1);
        let completions = spec.completions.unwrap_or(parallelism);
        Self {
            uid: job.uid().unwrap_or_default(),
            version: super::version(&job),
            controller: controller(&job),
            replicated_job: job.labels().get(labels::REPLICATED_JOB_NAME).cloned().unwrap_or_default(),
            index: number(job.labels(), labels::JOB_INDEX),
            attempt: attempt(job.labels(), labels::RESTART_ATTEMPT),
            created: job.metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleting: job.metadata.deletion_timestamp.is_some(),
            held_by: held_by(&job).map(Into::into),
            suspended: spec.suspend.unwrap_or(false),
            finished: finished(&status.conditions),
            failing: job.condition(FAILURE_TARGET).is_some(),
            succeeding: job.condition(SUCCESS_CRITERIA_MET).is_some(),
            deadline: spec.active_deadline_seconds,
            started: status.start_time.as_ref().map(|time| time.0),
            bears_no_failure: spec.backoff_limit.is_some_and(|limit| status.failed.unwrap_or(0) >= limit),
            active: status.active.unwrap_or(0),
            ready: status.ready.unwrap_or(0),
            succeeded: status.succeeded.unwrap_or(0),
            pods: parallelism.min(completions),
            parallelism,
            completions: spec.completions,
            job_attempt: attempt(job.labels(), labels::JOB_RESTART_ATTEMPT).unwrap_or(0),
            completed: Ranges::parse(&status.completed_indexes),
            failed: Ranges::parse(&status.failed_indexes),
            restarts_in_place: restarts_in_place(&spec.template.spec),
            spares_failures: spares_failures(spec),
            avoids_nodes: avoids_nodes(&spec.template),
        }
    }

    /// Whether it differs from `other` by more than numbers that only people read.
    pub(crate) fn differs_in_decisions(&self, other: &Self) -> bool {
        let without_counts = |job: &Self| {
            let (completed, failed) = (Ranges::default(), Ranges::default());
            Self { version: 0, active: 0, ready: 0, succeeded: 0, completed, failed, ..job.clone() }
        };
        self.is_ready() != other.is_ready() || without_counts(self) != without_counts(other)
    }

    /// Whether as many of its Pods are ready or have succeeded as it runs at once.
    pub fn has_ready_pods(&self) -> bool {
        self.ready.saturating_add(self.succeeded) >= self.pods
    }

    /// Whether it runs with all of its Pods. The status of a Job that was just suspended may still count Pods.
    pub fn is_ready(&self) -> bool {
        self.finished.is_none() && !self.suspended && self.has_ready_pods()
    }

    /// Number of completion indexes that have succeeded or failed for good, of those that the Job runs.
    pub fn done_count(&self) -> i64 {
        self.completed.count_below(self.pods.into()).saturating_add(self.failed.count_below(self.pods.into()))
    }
}

/// The object that controls another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerRef {
    pub kind: String,
    pub name: String,
    pub uid: String,
}

impl ControllerRef {
    /// Whether it is, or was, a JobSet of this name.
    pub fn is_jobset(&self, name: &str) -> bool {
        self.kind == "JobSet" && self.name == name
    }
}

pub fn controller(object: &impl ResourceExt) -> Option<ControllerRef> {
    let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    Some(ControllerRef { kind: controller.kind.clone(), name: controller.name.clone(), uid: controller.uid.clone() })
}

/// A label or annotation that is a number.
pub(crate) fn number(values: &BTreeMap<String, String>, key: &str) -> Option<i32> {
    values.get(key)?.parse().ok()
}

/// The finalizer that keeps an object that is being deleted, if it is not one of the garbage collector.
fn held_by(object: &impl ResourceExt) -> Option<&str> {
    let finalizers = object.meta().deletion_timestamp.as_ref().map(|_| object.finalizers())?;
    finalizers.iter().map(String::as_str).find(|finalizer| !OF_GARBAGE_COLLECTOR.contains(finalizer))
}

/// A label that counts attempts. One that nobody counted up to is as good as none: a restart could not go above it.
fn attempt(labels: &BTreeMap<String, String>, key: &str) -> Option<i32> {
    number(labels, key).filter(|attempt| (0..=HIGHEST_ATTEMPT).contains(attempt))
}

fn restarts_in_place(pod: &PartialTemplateSpec) -> bool {
    let containers = pod.init_containers.iter().chain(&pod.containers);
    containers.flat_map(|container| &container.restart_policy_rules).any(restarts_pod)
}

/// Whether the Pod webhook sees the Pods of this template.
fn avoids_nodes(template: &PartialPodTemplate) -> bool {
    let value = template.metadata.labels.as_ref().and_then(|all| all.get(labels::AVOIDS_NODES));
    value.is_some_and(|value| value == "true")
}

/// Failures are counted by index, and all limits are those that the controller sets.
fn spares_failures(job: &PartialJobSpec) -> bool {
    let indexed = job.completion_mode == "Indexed";
    // The API server sets the same limit for the whole Job where there is one for each index.
    let limits = [job.backoff_limit_per_index, job.backoff_limit.or(Some(MAX_BACKOFF_LIMIT))];
    indexed && limits == [Some(MAX_BACKOFF_LIMIT); 2] && job.max_failed_indexes.is_none()
}

fn finished(conditions: &[PartialCondition]) -> Option<Finished> {
    conditions.iter().filter(|condition| condition.is_true()).find_map(|condition| match condition.type_.as_str() {
        "Complete" => Some(Finished::Completed),
        "Failed" => Some(Finished::Failed {
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            at: condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        }),
        _ => None,
    })
}
