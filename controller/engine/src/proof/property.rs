//! What is proved, against what has truly happened: `docs/src/protocol.md`, "What is proved", and what holds of the engine beside.

use std::fmt;

/// What has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Property {
    /// No worker runs in an epoch before every open slot has reported it.
    Barrier,
    /// No worker is started twice in one epoch of one slot, and none of an older epoch runs on.
    OneWorkerPerEpoch,
    /// When nothing is left to happen, all wanted workers run in one epoch, or the JobSet has ended for a true reason, or it is
    /// suspended.
    NoHang,
    /// No restart without a failure, and one for all failures until it is over.
    OneRestartPerIncident,
    /// Every restart is counted once, unless a rule or the controller's own action excuses it. Counters only grow, and one
    /// restart more than `maxRestarts` fails the JobSet.
    ExactBudget,
    /// Every status counts the Jobs as the Go JobSet counts them.
    CountsOfJobs,
    /// The controller's own deletions (recreation, suspension, resizing) never count as failures.
    OwnDeletionsAreNoFailures,
    /// While nothing else moves, the controller soon has nothing to write, to request or to say.
    Rest,
    /// The engine's sums are those of the observed objects.
    EngineCounts,
    /// A Job loses Pods of the group only once all others are told to restart.
    ShrinkRestarts,
    /// A free epoch is announced only while the group restarts into it.
    FreeEpoch,
    /// The metrics count each epoch that a controller begins once, although answers get lost. A panic may cost one.
    Facts,
    /// A group that keeps failing waits before it runs again, and no change of leader shortens the wait.
    Backoff,
    /// A JobSet fails by its deadline only when that has passed. Then it is never completed, and none of its Jobs runs.
    Deadline,
    /// Each resume and each restart of all Jobs begins an execution with the next number, and nothing else does.
    ExecutionAttempts,
    /// No bulk work begins while urgent work waits.
    UrgentFirst,
    /// A Job that meets its success policy is neither restarted nor taken for failed because of Pods of its own that failed.
    SuccessIsFinal,
    /// No epoch begins while a Pod outside of the specified size could start its worker in it.
    LeavingStayOut,
    /// Pods that their nodes refuse are no failures of workers: no JobSet fails because of them.
    RefusalsAreFree,
    /// Only Pods that cannot come back are replaced.
    HealthyPodsStay,
    /// Pods are moved by the stored status alone, and in JobSets that ask for it alone. No epoch begins with one that has to leave.
    MovesAreStored,
    /// Pods that select their node are not moved.
    PinnedPodsStay,
    /// Only Pods are moved whose successors are kept away from the node.
    MovedPodsKeepAway,
    /// A node is avoided for so many strikes, for its cool-down at most, and not cleared before without a reason.
    AvoidedNodesLast,
    /// A node is blamed for what has failed on it, and before all others that are observed to have failed, or it proves to be bad.
    BlameIsTrue,
    /// A node that all Pods have left strikes no more while it is avoided.
    BadNodesCostLittle,
    /// With a settle time, no epoch begins before the youngest address is that old.
    NamesSettle,
    /// However relays drop, delay, reorder and repeat messages, each agent soon knows the epochs that are stored.
    ToldInTime,
    /// A request to restart is carried out once, by the write that remembers it, or is noted.
    RequestsOnce,
    /// Pods leave cordoned nodes by one restart that does not count, and not again within the cool-down.
    CordonsAreFree,
    /// No Pod of a lost node is given up before its loss is stored.
    LossesFirst,
    /// A stall strikes the node of the one worker that is seen to hold the others up, and once.
    StallsStrikeOnce,
    /// A JobSet fails for want of progress after so many restarts in a row, and not before: restarts because workers failed, before which
    /// no worker had truly come further, whoever led and however late that was told.
    NoProgress,
    /// The ledger has all the time since the JobSet was created, whoever led, and no more, and each bucket the time that was truly spent
    /// in it.
    Ledger,
    /// A plan is as large as the children that exist, whatever sizes are specified.
    BoundedPlans,
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Violation {
    pub property: Property,
    message: String,
}

pub(super) type CheckResult = Result<(), Violation>;

impl Violation {
    pub(super) fn new(property: Property, message: impl Into<String>) -> Self {
        Self { property, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.property, self.message)
    }
}

pub(super) fn ensure(holds: bool, property: Property, message: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(Violation::new(property, message())) }
}
