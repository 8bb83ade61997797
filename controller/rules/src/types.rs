//! The result of a reconciliation: requests, status, events and metrics.

use std::time::Duration;

use jobset_api::gates::Gates;
use jobset_api::{
    FailurePolicyAction, JobSetLimits, JobSetStatus, LeaveCordoned, RestartBudget, RestartStrategy, event,
};
use k8s_openapi::jiff::Timestamp;

use crate::build::{ClaimPlace, DesiredJob};

/// Default of [`Settings::longest_restart_backoff`]: 25 minutes, below the 30 minutes that Kueue waits by default for Pods
/// to be ready again.
pub const LONGEST_RESTART_BACKOFF: Duration = Duration::from_mins(25);

/// Settings of the controller, the same for all JobSets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub gates: Gates,
    /// When Pods leave a node that is cordoned, where their JobSet does not say that.
    pub leave_cordoned: LeaveCordoned,
    /// The longest wait between restarts, whatever a JobSet specifies.
    pub longest_restart_backoff: Duration,
    /// How old the youngest address of a group must be when an epoch begins, where its JobSet does not say that. Zero, the default,
    /// waits for no names.
    pub settle_names: Duration,
    /// After how many failures that are blamed on one node a group leaves it, where its JobSet does not say that. `None`, the default:
    /// its Pods stay.
    pub move_after_failures: Option<u32>,
    pub agent_cluster_role: String,
    pub limits: JobSetLimits,
    /// Memory that all JobSets of one namespace may take, in bytes; 0 sets no limit.
    pub memory_of_namespace: usize,
}

/// Default of [`Settings::memory_of_namespace`]: a quarter of the memory that the chart gives the controller.
pub const MEMORY_OF_NAMESPACE: usize = 512 << 20;

impl Default for Settings {
    fn default() -> Self {
        let agent_cluster_role = jobset_api::agent::NAME.to_owned();
        Self {
            gates: Gates::default(),
            leave_cordoned: LeaveCordoned::default(),
            longest_restart_backoff: LONGEST_RESTART_BACKOFF,
            settle_names: Duration::ZERO,
            move_after_failures: None,
            agent_cluster_role,
            limits: JobSetLimits::default(),
            memory_of_namespace: MEMORY_OF_NAMESPACE,
        }
    }
}

/// The result of one reconciliation of a JobSet.
///
/// # Order of its requests
///
/// Actions on the JobSet itself ([`Action::is_on_jobset`]) are sent first, one after the other: some of them name the version of
/// the JobSet that the status write changes. The status is written next, beside all other actions. Neither waits for the other, so
/// that a creation that hangs does not delay the epochs of the group: either may be carried out first, late, or never. The other
/// actions are sent in order, several at a time.
///
/// So no action may need the status of its own plan to be stored. A rule whose actions need that writes its decision and breaks,
/// and the next reconciliation, which reads the stored decision, plans the actions. Nor may the status say that an action of its
/// own plan was carried out: a rule says so once it is observed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The new status. The shell writes it if it differs from the stored one.
    pub status: JobSetStatus,
    pub actions: Vec<Action>,
    /// Events to create once the status is written, one for each reason.
    pub notes: Vec<Note>,
    /// Facts to count in the metrics once the status is written.
    pub facts: Vec<Fact>,
    /// When to reconcile again even if nothing has changed.
    pub requeue: Option<Timestamp>,
    /// Whether agents are missing on the agent stream; `None` while nobody looks, as the JobSet restarts.
    pub misses_agents: Option<bool>,
}

/// One request to the API server. A request for an existing object carries its UID, so that it never changes another object
/// of the same name. An object to create is built from the JobSet of the plan when the request is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    CreateJob(Box<DesiredJob>),
    /// Delete a Job in the foreground: the Job exists until its Pods are gone.
    DeleteJob {
        name: String,
        uid: String,
    },
    /// Suspend a Job. The Job controller then deletes its Pods.
    SuspendJob {
        name: String,
        uid: String,
    },
    /// Resume a suspended Job and update the mutable fields of its template from `desired`.
    ResumeJob {
        uid: String,
        /// Whether requests and limits of containers are among these fields (KEP-1150).
        with_resources: bool,
        /// The Job as the controller would create it now.
        desired: Box<DesiredJob>,
    },
    /// End a Job that still runs: its active Pods are deleted, and those that have ended stay.
    EndJob {
        name: String,
        uid: String,
    },
    /// Change the number of Pods of a Job.
    ResizeJob {
        name: String,
        uid: String,
        parallelism: i32,
        completions: Option<i32>,
    },
    CreateService {
        name: String,
    },
    /// Create the RoleBinding of injected agents.
    CreateRoleBinding {
        name: String,
        cluster_role: String,
    },
    /// Create a PersistentVolumeClaim.
    CreateClaim {
        name: String,
        place: ClaimPlace,
    },
    DeletePod {
        name: String,
        uid: String,
        /// Why the Pod is deleted. This decides how it is deleted.
        reason: PodDeletion,
    },
    /// Remove the finalizer `batch.kubernetes.io/job-tracking` from a failed Pod.
    ReleasePod {
        name: String,
        uid: String,
    },
    /// Read from the Events of a Job why the API server refuses its Pods to the Job controller. What it refuses there counts as refused
    /// to this controller.
    FindRefusal {
        job: String,
        uid: String,
    },
    /// Read what a Pod that does not start was warned of last, since this time. Its node says that in Events of the Pod alone.
    FindWarning {
        pod: String,
        uid: String,
        since: Timestamp,
    },
    /// Delete the JobSet itself: its `ttlSecondsAfterFinished` has expired, or its namespace is being deleted.
    DeleteJobSet,
    /// Annotate the JobSet so that its agents start their workers without a barrier. The text says why the JobSet does not
    /// restart in place.
    DisableInPlaceRestart(&'static str),
    /// Annotate the JobSet with the kind of budget that its restarts have spent so far. The request applies to the observed
    /// resource version only, because the status of that version shows how the restarts were counted.
    AnnotateRestartBudget(RestartBudget),
}

impl Action {
    /// Whether the action changes the JobSet itself.
    pub fn is_on_jobset(&self) -> bool {
        matches!(self, Self::DeleteJobSet | Self::DisableInPlaceRestart(_) | Self::AnnotateRestartBudget(_))
    }
}

/// Why a Pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodDeletion {
    /// It reports an epoch above this one, the largest valid epoch. The shell confirms the report with a read from the API
    /// server before it deletes the Pod.
    EpochAbove(i32),
    /// Its agent restarted alone: its worker runs in an earlier epoch than the agent reports.
    AgentAlone,
    /// It is in another topology domain than its leader. The shell sets the condition `DisruptionTarget` first, so that a
    /// podFailurePolicy can tell this deletion from a failure.
    Misplaced,
    /// It cannot come back: its node has restarted, or a container of it ends by itself whenever it starts.
    CannotReturn,
    /// It keeps failing before its worker runs. Another Pod may find what it does not.
    FailsBeforeWorker,
    /// It is on a node that its JobSet avoids. The shell marks it as Misplaced ones.
    Moved,
    /// It found no node because its JobSet avoids some.
    Unschedulable,
    /// Its node is lost. The shell sets the phase Failed and the condition `DisruptionTarget` first. The grace period is zero, because
    /// no kubelet will confirm the deletion.
    NodeLost,
    /// Its node is cordoned, and its JobSet says that it leaves. The shell sets the condition `DisruptionTarget` first.
    LeavesCordoned,
}

impl PodDeletion {
    /// The reason of the Event that says why.
    pub(crate) fn event(self) -> &'static str {
        match self {
            Self::EpochAbove(_) => event::EPOCH_INVALID,
            Self::AgentAlone => event::AGENT_RESTARTED_ALONE,
            Self::Misplaced => event::EXCLUSIVE_PLACEMENT_VIOLATION,
            Self::CannotReturn | Self::FailsBeforeWorker | Self::Moved | Self::Unschedulable => event::POD_REPLACED,
            Self::NodeLost => event::NODE_LOST,
            Self::LeavesCordoned => event::LEAVES_CORDONED_NODE,
        }
    }
}

/// An Event on the JobSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// Whether the type of the Event is Warning.
    pub warning: bool,
    /// Event reason, in CamelCase.
    pub reason: &'static str,
    pub message: String,
    /// For the Event of a restart: when the first failure happened, if the controller observed it.
    pub failed_at: Option<Timestamp>,
}

impl Note {
    pub fn warning(reason: &'static str, message: String) -> Self {
        Self { warning: true, reason, message, failed_at: None }
    }

    pub fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, ..Self::warning(reason, message) }
    }
}

/// A fact that the metrics count. It becomes true when the status of its plan is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    RestartBegan {
        strategy: RestartStrategy,
        action: FailurePolicyAction,
        counted: bool,
        trigger: Trigger,
        /// When the first failure happened, if the controller observed it.
        failed_at: Option<Timestamp>,
    },
    /// A restart that began in place goes on by recreation.
    RestartRecreates {
        strategy: RestartStrategy,
    },
    /// A restart waits, because the group keeps failing soon after it began to run.
    BackedOff,
    /// A failure is blamed on a node.
    NodeStruck,
    /// No worker makes progress.
    Stalls {
        blamed: bool,
    },
    /// A worker makes no progress while others do.
    Straggles,
    /// A restart moves so many Pods away from a node.
    PodsMove(usize),
    /// All Pods have reported the new epoch of an in-place restart, and their workers may run.
    BarrierLifted,
    /// All Jobs are ready, or have succeeded, after a restart of the whole group.
    Recovered,
    /// All Jobs are ready, or have succeeded, for the first time.
    Started,
    /// An action of the failure policy was carried out; `rule` is the index of the rule, `None` for the default action.
    PolicyApplied {
        action: FailurePolicyAction,
        rule: Option<usize>,
    },
    /// The JobSet fails because its deadline has passed. [`Fact::Failed`] follows.
    DeadlineExceeded,
    Completed,
    Failed {
        /// Whether `maxRestarts` caused the failure.
        budget_exhausted: bool,
    },
}

/// What caused a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    ContainerExit(ExitClass),
    PodFailed(ExitClass),
    /// A user or another program deleted the Pod.
    PodDeleted,
    /// The Pod's node does not admit it any more.
    Refused,
    NodeLost,
    /// The Pod was evicted or preempted.
    Eviction,
    JobFailed,
    /// A change of the JobSet: it is resumed, or it grows. Nothing has failed.
    Requested,
    /// Somebody has asked for the restart.
    RestartRequest,
    /// Pods leave cordoned nodes. Nothing has failed.
    Cordoned,
    /// No worker makes progress.
    Stalled,
}

impl Trigger {
    /// Its name in metrics and strikes.
    pub fn word(self) -> &'static str {
        match self {
            Self::ContainerExit(_) => "container_exit",
            Self::PodFailed(_) => "pod_failed",
            Self::PodDeleted => "pod_deleted",
            Self::Refused => "refused",
            Self::NodeLost => "node_lost",
            Self::Eviction => "eviction",
            Self::JobFailed => "job_failed",
            Self::Requested => "requested",
            Self::RestartRequest => "restart_request",
            Self::Cordoned => "cordoned",
            Self::Stalled => "progress_stalled",
        }
    }
}

/// Class of an exit code. The kubelet erases exit codes when it restarts a Pod in place, so a code that the controller has
/// not observed before that is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitClass {
    Success,
    /// 1 to 127.
    Error,
    /// 128 and above: a signal ended the container.
    Signal,
    /// The kernel killed the container because it was out of memory.
    OutOfMemory,
    Unknown,
}
