//! What the state machine takes and returns.

use std::collections::BTreeSet;
use std::time::Duration;

/// How the agent starts its worker and ends an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The agent runs in a container of its own, beside the worker.
    Sidecar {
        /// Whether the worker may save its state before the Pod restarts.
        saves: bool,
    },
    /// The agent is the parent process of the worker.
    Supervisor {
        /// Exit codes of the worker that end the container instead of restarting the group. The podFailurePolicy and the
        /// failure policy can then match them.
        fatal: BTreeSet<u8>,
    },
}

/// The state of a JobSet that its agents act on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobSetState {
    /// `metadata.uid`. A JobSet that was created again under the same name has another UID and other Pods.
    pub uid: String,
    /// `status.syncedEpoch`: the epoch whose workers may run. Written by the controller.
    pub synced: i32,
    /// `status.deprecatedEpoch`: Pods in this epoch or an earlier one must restart. Written by the controller.
    pub deprecated: i32,
    /// Whether the JobSet has failed (`status.terminalState`). Written by the controller.
    pub failed: bool,
    /// The JobSet does not restart in place: it has another restart strategy, or an annotation disables in-place restart.
    pub bypass: bool,
}

/// An event that the state machine takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A state of the JobSet was observed. The first state after [`Agent::new`](super::Agent::new) must come from a consistent read: with a
    /// stale `synced` the agent would report an epoch that already runs, and its worker alone would join it late.
    JobSet(JobSetState),
    /// The API server accepted the report of this epoch.
    Reported { epoch: i32 },
    /// The report of this epoch failed or was rejected. The API server may have applied it nevertheless.
    ReportFailed {
        epoch: i32,
        /// The wait that the API server asked for.
        retry_after: Option<Duration>,
    },
    /// The time of the last [`Output::SetTimer`] has elapsed.
    Timer,
    /// The answer to [`Output::Save`]: the worker has saved its state, or its time limit has elapsed.
    Saved,
    /// The supervised worker has ended, and none of its processes is left.
    WorkerExited {
        /// Its exit code, or 128 plus the number of the signal that ended it.
        code: u8,
    },
    WorkerNotStarted {
        /// The code that a shell returns: 127 if the program was not found, 126 if it cannot be run.
        code: u8,
    },
    /// SIGTERM.
    Terminate,
}

/// An action for the caller. The caller carries out outputs in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Write this epoch to the annotation of the agent's Pod. The answer is [`Input::Reported`] or [`Input::ReportFailed`].
    /// Cancels the timer.
    Report { epoch: i32 },
    /// Send [`Input::Timer`] after this time, plus jitter. Replaces the current timer.
    SetTimer(Duration),
    /// Lift the barrier. A sidecar keeps it lifted until it exits. A supervisor starts the worker; the answer is
    /// [`Input::WorkerExited`] or [`Input::WorkerNotStarted`]. Cancels the timer.
    Lift {
        /// The epoch of the worker; `None` if the JobSet does not restart in place.
        epoch: Option<i32>,
    },
    /// Let the worker beside the sidecar save its state in this epoch, which ends. The answer is [`Input::Saved`], within a limited
    /// time.
    Save { epoch: i32 },
    /// Stop the supervised worker of this epoch and all processes that it has started, by SIGKILL when its grace period has elapsed.
    /// The deprecated epoch is this one or a later one. The answer is [`Input::WorkerExited`].
    StopWorker { epoch: i32, deprecated: i32 },
    /// Send SIGTERM to the supervised worker. The kubelet enforces the grace period.
    TerminateWorker,
    /// Restart the Pod in place, because its epoch is deprecated. This is the last output.
    Restart { epoch: i32, deprecated: i32 },
    /// Exit. This is the last output.
    Exit {
        /// 0 for a sidecar that gets SIGTERM. For a supervisor, the exit code of its worker, or
        /// [`FAILED_JOBSET_EXIT_CODE`](jobset_protocol::agent::FAILED_JOBSET_EXIT_CODE).
        code: u8,
    },
}
