//! The tree of a JobSet, from its objects.

use std::collections::{BTreeMap, HashMap};

use jobset_api::{JobSet, JobSetStatus, ReplicatedJob, RestartBudget, RestartStrategy, Scope, labels};
use jobset_objects::{PartialJob, PartialPod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use serde::Serialize;

use super::barrier::{Barrier, Epochs, PodBarrier};
use super::pod::PodNode;
use super::state::{self, State};

/// A JobSet, all of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What it is doing.
    pub state: State,
    /// How it restarts.
    pub strategy: RestartStrategy,
    /// How often it has.
    pub restarts: Restarts,
    /// Its epochs; none where it does not restart in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<Epochs>,
    /// Its barrier; none where it does not restart in place, or has nothing to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier: Option<Barrier>,
    /// Jobs that are ready or have succeeded.
    pub jobs_ready: i64,
    /// Jobs that there should be.
    pub jobs: i64,
    /// When it was created.
    pub created: Option<Time>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its replicatedJobs, in the order of the specification.
    pub replicated_jobs: Vec<Group>,
    /// Pods whose Job is gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_pods: Vec<PodNode>,
}

/// How often a JobSet has restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restarts {
    /// As a whole, in place or by recreation.
    pub total: i32,
    /// What shares one maxRestarts.
    pub budget: RestartBudget,
    /// How much of the budget is spent; of separate ones, of the one of which most is.
    pub counted: i32,
    /// Whose budget that is, in words, where budgets are separate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_of: Option<String>,
    /// How much may.
    pub max: i32,
}

impl Restarts {
    /// Those of a JobSet.
    pub fn of(jobset: &JobSet) -> Self {
        let (status, budget) = (jobset.status.as_ref(), RestartBudget::of(jobset));
        let (scope, counted) = status.map_or((Scope::JobSet, 0), |status| budget.most_spent(status));
        let whose = scope.describe(jobset.metadata.name.as_deref().unwrap_or_default());
        Self {
            // A controller that does not know the counter of all restarts still counts recreations.
            total: status.map_or(0, |status| status.group_restarts.max(status.restarts)),
            budget,
            counted,
            counted_of: (budget == RestartBudget::Separate).then_some(whose),
            max: jobset.spec.max_restarts(),
        }
    }

    /// `3 of maxRestarts 10 are spent`, and of whose where not all share them.
    pub fn spent(&self) -> String {
        let whose = self.counted_of.as_ref().map(|whose| format!(" of {whose}")).unwrap_or_default();
        format!("{} of maxRestarts {} are spent{whose}", self.counted, self.max)
    }
}

/// A replicatedJob.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Jobs that it should have.
    pub replicas: i32,
    /// Jobs that are ready, by the JobSet's status.
    pub ready: i32,
    /// Jobs that have succeeded.
    pub succeeded: i32,
    /// Jobs that have failed.
    pub failed: i32,
    /// How often its Jobs were recreated without the rest of the set, together.
    pub restarts: i32,
    /// The Jobs that it has.
    pub jobs: Vec<JobNode>,
}

/// A Job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobNode {
    /// Its name.
    pub name: String,
    /// Its index in its replicatedJob.
    pub index: i32,
    /// Complete, Failed, Suspended, Deleting, Ready or Active.
    pub state: &'static str,
    /// Pods that it should have at once.
    pub parallelism: i32,
    /// Pods that are ready, by the Job's status.
    pub ready: i32,
    /// Pods that have succeeded.
    pub succeeded: i32,
    /// How often it was made anew: with the whole set, its replicatedJob, or alone.
    pub recreations: i32,
    /// When it was created.
    pub created: Option<Time>,
    /// Its Pods, by completion index.
    pub pods: Vec<PodNode>,
}

/// The tree of a JobSet.
pub fn report(jobset: &JobSet, jobs: &[PartialJob], pods: &[PartialPod]) -> Status {
    let none = JobSetStatus::default();
    let status = jobset.status.as_ref().unwrap_or(&none);
    let in_place = jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    let epochs = in_place.then_some(Epochs { synced: status.synced_epoch, deprecated: status.deprecated_epoch });
    let mut nodes = pods_by_job(jobset, pods, epochs);
    let groups: Vec<Group> =
        jobset.spec.replicated_jobs.iter().map(|group| self::group(group, status, jobs, &mut nodes)).collect();
    let other_pods: Vec<PodNode> = nodes.into_values().flatten().collect();
    let state = state::state(jobset);
    let (jobs_ready, jobs) = state::jobs(jobset);
    let starts =
        !matches!(state, State::Completed | State::Failed | State::Suspended | State::Deleting | State::NoJobs);
    let barrier = epochs.filter(|_| starts).map(|epochs| {
        let done: i64 = groups.iter().flat_map(|group| &group.jobs).map(|job| i64::from(job.succeeded)).sum();
        Barrier::of(epochs, slots(&groups), (jobset.spec.expected_pods() - done).max(0))
    });
    Status {
        name: jobset.name_any(),
        namespace: jobset.namespace().unwrap_or_default(),
        state,
        strategy: jobset.spec.restart_strategy(),
        restarts: Restarts::of(jobset),
        epochs,
        barrier,
        jobs_ready,
        jobs,
        created: jobset.metadata.creation_timestamp.clone(),
        conditions: status.conditions.clone(),
        replicated_jobs: groups,
        other_pods,
    }
}

/// Where each completion index is at the barrier: of several Pods, one that is as far as any.
fn slots(groups: &[Group]) -> impl Iterator<Item = PodBarrier> {
    let mut slots = BTreeMap::new();
    for job in groups.iter().flat_map(|group| &group.jobs) {
        for pod in &job.pods {
            if let Some(barrier) = pod.barrier {
                let slot = slots.entry((job.name.as_str(), pod.index)).or_insert(barrier);
                if barrier == PodBarrier::Waiting {
                    *slot = barrier;
                }
            }
        }
    }
    slots.into_values().collect::<Vec<_>>().into_iter()
}

/// The Pods of this very JobSet, and not of one of its name before it, by the Job that made them.
fn pods_by_job(jobset: &JobSet, pods: &[PartialPod], epochs: Option<Epochs>) -> HashMap<String, Vec<PodNode>> {
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
    jobs: &[PartialJob],
    pods: &mut HashMap<String, Vec<PodNode>>,
) -> Group {
    let counts = status.replicated_job(&group.name).cloned().unwrap_or_default();
    let own = jobs.iter().filter(|job| job.labels().get(labels::REPLICATED_JOB_NAME) == Some(&group.name));
    let mut jobs: Vec<JobNode> =
        own.map(|job| self::job(job, pods.remove(&job.name_any()).unwrap_or_default())).collect();
    jobs.sort_by(|a, b| (a.index, &a.name).cmp(&(b.index, &b.name)));
    Group {
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
        ready,
        succeeded,
        recreations: attempts[0].saturating_add(attempts[1]),
        created: job.metadata.creation_timestamp.clone(),
        pods,
    }
}
