//! What a pass of the rules decides.

use std::time::Duration;

use jobset_api::gates::Gates;
use jobset_api::{FailurePolicyAction, JobSetStatus, RestartStrategy};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;

/// How the controller was told to work, the same for all JobSets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which features are on.
    pub gates: Gates,
    /// Pods on a node that is unreachable for longer than this are deleted without waiting for its kubelet. `None`, the
    /// default: never.
    pub force_delete_after: Option<Duration>,
    /// ClusterRole of the agents.
    pub agent_cluster_role: String,
}

impl Default for Settings {
    fn default() -> Self {
        let agent_cluster_role = jobset_api::agent::NAME.to_owned();
        Self { gates: Gates::default(), force_delete_after: None, agent_cluster_role }
    }
}

/// What shall be done for a JobSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The status to store, if it differs from the stored one.
    pub status: JobSetStatus,
    /// Requests to carry out, in order, before the status is written.
    pub actions: Vec<Action>,
    /// What to tell the user once the status is written.
    pub notes: Vec<Note>,
    /// What to count once the status is written.
    pub facts: Vec<Fact>,
    /// When to look again although nothing has changed.
    pub requeue: Option<Timestamp>,
}

/// One request. Every request on an object that exists names its UID: another object of that name is left alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create a Job.
    CreateJob(Box<Job>),
    /// Delete a Job and its Pods; the Job stays until they are gone.
    DeleteJob {
        /// Name of the Job.
        name: String,
        /// UID of the Job.
        uid: String,
    },
    /// Suspend a Job: its Pods are deleted.
    SuspendJob {
        /// Name of the Job.
        name: String,
        /// UID of the Job.
        uid: String,
    },
    /// Resume a suspended Job, with what may change in its template as it is in `desired`.
    ResumeJob {
        /// UID of the Job.
        uid: String,
        /// The Job as it would be created now.
        desired: Box<Job>,
    },
    /// Change the number of Pods of a Job.
    ResizeJob {
        /// Name of the Job.
        name: String,
        /// UID of the Job.
        uid: String,
        /// New `parallelism`.
        parallelism: i32,
        /// New `completions`.
        completions: Option<i32>,
    },
    /// Create a Service.
    CreateService(Box<Service>),
    /// Create a RoleBinding.
    CreateRoleBinding(Box<RoleBinding>),
    /// Create a PersistentVolumeClaim.
    CreateClaim(Box<PersistentVolumeClaim>),
    /// Delete a Pod.
    DeletePod {
        /// Name of the Pod.
        name: String,
        /// UID of the Pod.
        uid: String,
        /// Why, which decides how.
        reason: PodDeletion,
    },
    /// Delete the JobSet itself: its time after the end is over, or its namespace is being deleted.
    DeleteJobSet,
    /// Annotate the JobSet so that its agents let their workers run: it does not restart in place, for this cause.
    DisableInPlaceRestart(&'static str),
}

/// Why a Pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodDeletion {
    /// It reports an epoch above the largest valid one. Only if a read from the API server confirms that.
    EpochAbove(i32),
    /// Its agent restarted alone: its worker is of an earlier epoch than the agent reports.
    AgentAlone,
    /// It was placed in another topology domain than its leader. It gets the condition `DisruptionTarget` first, so that
    /// a podFailurePolicy can tell it from a failure.
    Misplaced,
    /// Its node is unreachable: nobody is waited for.
    Unreachable,
}

/// Something that the user should know: an Event on the JobSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// Whether it is a Warning.
    pub warning: bool,
    /// Reason, in CamelCase.
    pub reason: &'static str,
    /// Message.
    pub message: String,
    /// Of a restart that begins: when the first failure happened, if that was seen.
    pub failed_at: Option<Timestamp>,
}

impl Note {
    /// A Warning.
    pub(crate) fn warning(reason: &'static str, message: String) -> Self {
        Self { warning: true, reason, message, failed_at: None }
    }

    /// No Warning.
    pub(crate) fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, ..Self::warning(reason, message) }
    }
}

/// Something that the metrics count. True once the status of its plan is written, and not before.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A restart began.
    RestartBegan {
        /// How it is carried out.
        strategy: RestartStrategy,
        /// What it restarts, as an action of the failure policy.
        action: FailurePolicyAction,
        /// Whether it counts towards maxRestarts.
        counted: bool,
        /// What caused it.
        trigger: Trigger,
        /// When the first failure happened, if that was seen.
        failed_at: Option<Timestamp>,
    },
    /// In place: all Pods have reported the new epoch, and their workers may run.
    BarrierLifted,
    /// All Jobs are ready, or have succeeded, after a restart of the whole group.
    Recovered,
    /// All Jobs are ready, or have succeeded, for the first time.
    Started,
    /// An action of the failure policy was carried out; `rule` is the index of the rule, `None` for the default action.
    PolicyApplied {
        /// The action.
        action: FailurePolicyAction,
        /// Index of the rule.
        rule: Option<usize>,
    },
    /// The JobSet has completed.
    Completed,
    /// The JobSet has failed.
    Failed {
        /// Whether because its budget of restarts is spent.
        budget_exhausted: bool,
    },
}

/// What caused a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// A container of a worker ended.
    ContainerExit(ExitClass),
    /// A Pod failed as a whole or was deleted.
    PodFailed(ExitClass),
    /// The Pod's node was lost.
    NodeLost,
    /// The Pod was evicted or preempted.
    Eviction,
    /// A Job failed.
    JobFailed,
}

/// Class of an exit code. The kubelet erases exit codes when it restarts a Pod in place; one that was not seen before is
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitClass {
    /// 0.
    Success,
    /// 1 to 127.
    Error,
    /// 128 and above: ended by a signal.
    Signal,
    /// Out of memory.
    OutOfMemory,
    /// Not seen.
    Unknown,
}
