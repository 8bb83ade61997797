//! Makes the tree of a JobSet from its objects.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jobset_api::{
    AgentStreamStatus, AvoidedNode, JobSet, JobSetStatus, Ledger, NodeStrike, ReplicatedJob, RestartBudget,
    RestartStrategy, Scope, labels,
};
use jobset_objects::{PartialJob, PartialPod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use k8s_openapi::jiff::SignedDuration;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;

use super::barrier::{Barrier, Epochs, PodBarrier};
use super::pod::PodNode;
use super::state::{self, JobSetState};
use super::workers::Workers;
use crate::leader::Leader;

/// A JobSet with its replicatedJobs, Jobs and Pods.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSetTree {
    pub name: String,
    pub namespace: String,
    pub state: JobSetState,
    /// The controller that leads; none if the user may not read Leases, or there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// Its workers, by its Jobs and Pods; none if no worker should run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<Workers>,
    pub strategy: RestartStrategy,
    pub restarts: RestartCount,
    /// Its epochs; none without in-place restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<Epochs>,
    /// Its barrier; none without in-place restart, or if no Pod is to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier: Option<Barrier>,
    /// How many of its agents are on the agent stream, as its status says; none if no worker should run, or nobody has told yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_stream: Option<AgentStreamStatus>,
    /// Jobs that are ready or have succeeded.
    pub jobs_ready: i64,
    pub jobs: i64,
    /// Until when it waits before it restarts, because it keeps failing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier_until: Option<MicroTime>,
    /// When its activeDeadlineSeconds have passed, and it fails; none if it has no deadline, has ended or is suspended, or if the
    /// controller does not enforce deadlines (feature gate JobSetActiveDeadlineSeconds).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    pub created: Option<Time>,
    pub conditions: Vec<Condition>,
    /// Failures that are blamed on nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_strikes: Vec<NodeStrike>,
    /// Nodes that its new Pods keep away from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoided_nodes: Vec<AvoidedNode>,
    /// Where its time went, as its status says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
    /// Its replicatedJobs, in the order of the specification.
    pub replicated_jobs: Vec<ReplicatedJobNode>,
    /// Pods whose Job does not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_pods: Vec<PodNode>,
}

/// How often a JobSet has restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartCount {
    /// Group restarts, in place or by recreation.
    pub total: i32,
    /// Whether restarts share one limit.
    pub budget: RestartBudget,
    /// Restarts that count towards the limit; of separate budgets, those of the most spent one.
    pub counted: i32,
    /// The owner of that budget, if budgets are separate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_of: Option<String>,
    /// The limit of counted restarts: maxRestarts and additional restarts.
    pub max: i32,
    /// The limit in words.
    #[serde(skip)]
    pub limit: String,
}

impl RestartCount {
    /// The restarts of a JobSet.
    pub fn of(jobset: &JobSet) -> Self {
        let (status, budget) = (jobset.status.as_ref(), RestartBudget::of(jobset));
        let (scope, counted) = status.map_or((Scope::JobSet, 0), |status| budget.most_spent(status));
        let whose = scope.describe(jobset.metadata.name.as_deref().unwrap_or_default());
        Self {
            // The Go controller writes only `restarts`, which counts recreations.
            total: status.map_or(0, |status| status.group_restarts.max(status.restarts)),
            budget,
            counted,
            counted_of: (budget == RestartBudget::Separate).then_some(whose),
            max: jobset.allowed_restarts(),
            limit: jobset.restart_limit(),
        }
    }

    /// `3 of maxRestarts 10 are spent`, with the owner of the budget if budgets are separate.
    pub fn spent(&self) -> String {
        let whose = self.counted_of.as_ref().map(|whose| format!(" of {whose}")).unwrap_or_default();
        format!("{} of {} are spent{whose}", self.counted, self.limit)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedJobNode {
    pub name: String,
    pub replicas: i32,
    /// Jobs that are ready, by the JobSet's status.
    pub ready: i32,
    pub succeeded: i32,
    pub failed: i32,
    /// Recreations of its Jobs without the rest of the JobSet.
    pub restarts: i32,
    pub jobs: Vec<JobNode>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobNode {
    pub name: String,
    /// Its index in its replicatedJob.
    pub index: i32,
    /// Complete, Failed, Suspended, Deleting, Ready or Active.
    pub state: &'static str,
    /// Pods that should run at once.
    pub parallelism: i32,
    /// Pods that should run now, by those that have succeeded.
    pub remaining_pods: i32,
    /// Pods that are ready, by the Job's status.
    pub ready: i32,
    pub succeeded: i32,
    /// Recreations: with the whole JobSet, with its replicatedJob, or alone.
    pub recreations: i32,
    pub created: Option<Time>,
    /// Its Pods, by completion index.
    pub pods: Vec<PodNode>,
}

/// The objects of this JobSet, without those of an earlier one of its name, which go after it.
pub fn own<K: Resource>(jobset: &JobSet, objects: &[Arc<K>]) -> Vec<Arc<K>> {
    objects.iter().filter(|object| is_own(jobset, object.as_ref())).cloned().collect()
}

/// Whether an object with the name of the JobSet is its own, and not of an earlier one of its name.
pub fn is_own(jobset: &JobSet, object: &impl Resource) -> bool {
    object.labels().get(labels::JOBSET_UID).is_none_or(|uid| Some(uid) == jobset.metadata.uid.as_ref())
}

/// The tree of a JobSet. Workers that wait contradict a status by which all Jobs are ready.
pub fn report(
    jobset: &JobSet,
    jobs: &[Arc<PartialJob>],
    pods: &[Arc<PartialPod>],
    leader: Option<Leader>,
) -> JobSetTree {
    let none = JobSetStatus::default();
    let status = jobset.status.as_ref().unwrap_or(&none);
    let epochs = Epochs::of(jobset);
    let (jobs, pods) = (own(jobset, jobs), own(jobset, pods));
    let (jobs, pods) = (jobs.as_slice(), pods.as_slice());
    let mut nodes = pods_by_job(jobset, pods, epochs);
    let groups: Vec<ReplicatedJobNode> =
        jobset.spec.replicated_jobs.iter().map(|group| self::group(group, status, jobs, &mut nodes)).collect();
    let mut other_pods: Vec<PodNode> = nodes.into_values().flatten().collect();
    other_pods.sort_by(|a, b| a.name.cmp(&b.name));
    let by_status = state::state(jobset);
    let (jobs_ready, jobs) = state::jobs(jobset);
    let starts = jobset.is_managed_here()
        && !matches!(
            by_status,
            JobSetState::Completed
                | JobSetState::Failed
                | JobSetState::Suspended
                | JobSetState::Deleting
                | JobSetState::NoJobs
        );
    let workers = starts.then(|| Workers::of(jobset, &groups));
    let waits = workers.is_some_and(|workers| workers.waiting > 0);
    let state = if by_status == JobSetState::Running && waits { JobSetState::NotReady } else { by_status };
    let barrier = epochs.filter(|_| starts).map(|epochs| {
        // The controller does not wait for the Pods of a Job that stays failed.
        let of_job = |job: &JobNode| if job.state == "Failed" { job.parallelism } else { job.succeeded };
        let done: i64 = groups.iter().flat_map(|group| &group.jobs).map(|job| i64::from(of_job(job))).sum();
        Barrier::of(epochs, reported(&groups), (jobset.spec.expected_pods() - done).max(0))
    });
    JobSetTree {
        name: jobset.name_any(),
        namespace: jobset.namespace().unwrap_or_default(),
        state,
        leader,
        workers,
        strategy: jobset.spec.restart_strategy(),
        restarts: RestartCount::of(jobset),
        epochs,
        barrier,
        agent_stream: status.agent_stream.clone().filter(|_| starts),
        jobs_ready,
        jobs,
        barrier_until: status.barrier_until.clone(),
        deadline: deadline(jobset, status),
        created: jobset.metadata.creation_timestamp.clone(),
        conditions: status.conditions.clone(),
        node_strikes: status.node_strikes.clone(),
        avoided_nodes: status.avoided_nodes.clone(),
        ledger: status.ledger.clone(),
        replicated_jobs: groups,
        other_pods,
    }
}

/// When the JobSet fails by its deadline.
fn deadline(jobset: &JobSet, status: &JobSetStatus) -> Option<Time> {
    let is_active = !jobset.spec.is_suspended() && !status.is_finished();
    let seconds = jobset.spec.active_deadline_seconds.filter(|_| is_active)?;
    let Time(start) = status.start_time.as_ref()?;
    start.checked_add(SignedDuration::from_secs(seconds)).ok().map(Time)
}

/// The number of completion indices of which a Pod waits at the barrier.
fn reported(groups: &[ReplicatedJobNode]) -> usize {
    let pods = groups.iter().flat_map(|group| &group.jobs).flat_map(|job| job.pods.iter().map(|pod| (&job.name, pod)));
    let waiting = pods.filter(|(_, pod)| pod.barrier == Some(PodBarrier::Waiting));
    waiting.map(|(job, pod)| (job, pod.index)).collect::<BTreeSet<_>>().len()
}

/// The Pods of this JobSet by the Job that owns them. Pods of an earlier JobSet of the same name are left out.
fn pods_by_job(jobset: &JobSet, pods: &[Arc<PartialPod>], epochs: Option<Epochs>) -> HashMap<String, Vec<PodNode>> {
    let uid = jobset.uid();
    let mut nodes: HashMap<String, Vec<PodNode>> = HashMap::new();
    for pod in pods {
        let labels = pod.labels();
        if labels.get(labels::JOBSET_UID).is_some_and(|label| Some(label) != uid.as_ref()) {
            continue;
        }
        let job = labels.get(labels::JOB_NAME).cloned().unwrap_or_default();
        nodes.entry(job).or_default().push(PodNode::of(pod, epochs));
    }
    for pods in nodes.values_mut() {
        pods.sort_by(|a, b| (a.index, &a.created, &a.name).cmp(&(b.index, &b.created, &b.name)));
    }
    nodes
}

fn group(
    group: &ReplicatedJob,
    status: &JobSetStatus,
    jobs: &[Arc<PartialJob>],
    pods: &mut HashMap<String, Vec<PodNode>>,
) -> ReplicatedJobNode {
    let counts = status.replicated_job(&group.name).cloned().unwrap_or_default();
    let own = jobs.iter().filter(|job| job.labels().get(labels::REPLICATED_JOB_NAME) == Some(&group.name));
    let mut jobs: Vec<JobNode> =
        own.map(|job| self::job(job, pods.remove(&job.name_any()).unwrap_or_default())).collect();
    jobs.sort_by(|a, b| (a.index, &a.name).cmp(&(b.index, &b.name)));
    ReplicatedJobNode {
        name: group.name.clone(),
        replicas: group.replicas(),
        ready: counts.ready,
        succeeded: counts.succeeded,
        failed: counts.failed,
        restarts: counts.restarts,
        jobs,
    }
}

fn job(job: &PartialJob, pods: Vec<PodNode>) -> JobNode {
    let number = |label: &str| job.labels().get(label).and_then(|value| value.parse().ok());
    let (wanted, ready) = (job.pods(), job.status.ready.unwrap_or(0));
    let succeeded = job.status.succeeded.unwrap_or(0);
    let state = if job.metadata.deletion_timestamp.is_some() {
        "Deleting"
    } else if job.condition("Complete").is_some() {
        "Complete"
    } else if job.condition("Failed").is_some() || job.condition("FailureTarget").is_some() {
        "Failed"
    } else if job.spec.suspend == Some(true) {
        "Suspended"
    } else if ready + succeeded >= wanted {
        "Ready"
    } else {
        "Active"
    };
    let attempts: [i32; 2] =
        [labels::RESTART_ATTEMPT, labels::JOB_RESTART_ATTEMPT].map(|label| number(label).unwrap_or(0));
    JobNode {
        name: job.name_any(),
        index: number(labels::JOB_INDEX).unwrap_or(0),
        state,
        parallelism: wanted,
        remaining_pods: job.remaining_pods(),
        ready,
        succeeded,
        recreations: attempts[0].saturating_add(attempts[1]),
        created: job.metadata.creation_timestamp.clone(),
        pods,
    }
}
