//! The agent's decisions: one state machine that takes inputs and returns outputs.
//!
//! The state machine has no clock, no client and no randomness. It drives the agent of a Pod, the simulated agents of the
//! benchmarks and the model checker. Its rules are those of KEP-467 ("Agent sidecar") and of `docs/src/protocol.md`.
//!
//! Both modes follow the same epochs. A *sidecar* lets its worker start by lifting the barrier. It ends an epoch by exiting:
//! the kubelet restarts the Pod, and a new agent starts. A *supervisor* starts and stops its worker itself, and continues
//! with the next epoch without exiting.

mod interface;

use std::time::Duration;

use jobset_protocol::agent::FAILED_JOBSET_EXIT_CODE;
use jobset_protocol::epoch::{EpochVerdict, GroupEpochs};

use crate::backoff::exponential;
use crate::barrier::Barrier;
pub use interface::{Input, JobSetState, Mode, Output};

/// First wait before an epoch is reported again while the barrier is closed: a report can be lost or overwritten.
const REPEAT_FIRST: Duration = Duration::from_secs(30);
/// Longest such wait. The caller's jitter at most doubles it ([`crate::backoff::jittered`]), to five minutes.
const REPEAT_CAP: Duration = Duration::from_secs(150);
/// Exit code of a supervisor that gets SIGTERM before its worker has ended: 128 and the number of SIGTERM. It is never 0,
/// because the Job would count the Pod as succeeded.
const TERMINATED: u8 = 143;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WorkerState {
    /// The worker waits at the barrier. A supervised worker is not started, and no process of the last one is left.
    Waiting,
    /// The worker may run.
    Running,
    /// The epoch of the worker is deprecated: the worker saves its state, or the agent stops it.
    Stopping,
    /// The agent got SIGTERM and waits for the worker to end.
    Terminating,
    Ended,
}

/// The state of one agent, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct Agent {
    mode: Mode,
    uid: Option<String>,
    /// UID of an observed JobSet that has the right name and another UID.
    other_uid: Option<String>,
    synced: i32,
    deprecated: i32,
    bypass: bool,
    jobset_failed: bool,
    /// Whether the supervised worker of the last epoch failed. The agent did not ask it to end.
    worker_failed: bool,
    epoch: Option<i32>,
    worker: WorkerState,
    /// Whether a report has no answer yet. One is in flight at a time, so that an older epoch cannot overtake a newer one.
    is_reporting: bool,
    failures: u32,
    repeats: u32,
}

impl Agent {
    /// An agent that has just started. `uid` is the UID of the Pod's JobSet; `None` takes the UID of the first observed JobSet.
    pub fn new(uid: Option<String>, mode: Mode) -> Self {
        Self {
            mode,
            uid,
            other_uid: None,
            synced: 0,
            deprecated: 0,
            bypass: false,
            jobset_failed: false,
            worker_failed: false,
            epoch: None,
            worker: WorkerState::Waiting,
            is_reporting: false,
            failures: 0,
            repeats: 0,
        }
    }

    /// The newest synced and deprecated epochs that it has been told of.
    pub fn told(&self) -> (i32, i32) {
        (self.synced, self.deprecated)
    }

    pub fn barrier(&self) -> Barrier {
        match (self.epoch, &self.uid, &self.other_uid) {
            // The barrier of a sidecar stays lifted: the kubelet probes it again after a restart of the kubelet.
            (epoch, ..) if self.worker == WorkerState::Running || self.is_saving() => Barrier::Lifted { epoch },
            _ if matches!(self.worker, WorkerState::Stopping | WorkerState::Terminating) => Barrier::Stopping,
            (Some(epoch), ..) => Barrier::AwaitsSync { epoch, synced: self.synced },
            (None, Some(own), Some(observed)) => {
                Barrier::AwaitsOtherJobSet { own: own.clone(), observed: observed.clone() }
            }
            (None, ..) => Barrier::AwaitsJobSet,
        }
    }

    /// Takes one input and returns the outputs for it. There are none after [`Output::Restart`] or [`Output::Exit`].
    pub fn step(&mut self, input: Input) -> Vec<Output> {
        if self.worker == WorkerState::Ended {
            return Vec::new();
        }
        match input {
            Input::JobSet(state) => self.on_jobset(state),
            Input::Reported { epoch } => self.on_reported(epoch),
            Input::ReportFailed { retry_after, .. } => self.on_report_failed(retry_after),
            Input::Timer => self.on_timer(),
            Input::Saved => self.on_saved(),
            Input::WorkerExited { code } => self.on_worker_exited(code),
            Input::WorkerNotStarted { code } => self.exit(code),
            Input::Terminate => self.on_terminate(),
        }
    }

    fn on_jobset(&mut self, state: JobSetState) -> Vec<Output> {
        match &self.uid {
            Some(own) if *own != state.uid => {
                self.other_uid = Some(state.uid);
                return Vec::new();
            }
            Some(_) => {}
            None => self.uid = Some(state.uid),
        }
        // A new watch may be served by an API server that lags behind the last one, so epochs never go back.
        self.synced = self.synced.max(state.synced);
        self.deprecated = self.deprecated.max(state.deprecated);
        self.bypass = state.bypass;
        self.jobset_failed |= state.failed;
        if self.jobset_failed && self.worker_failed {
            return self.exit(FAILED_JOBSET_EXIT_CODE);
        }
        if self.bypass {
            return if self.worker == WorkerState::Waiting { self.lift() } else { Vec::new() };
        }
        match (self.epoch, self.worker) {
            (None, WorkerState::Waiting) => self.enter_next_epoch(),
            (None, WorkerState::Running) => {
                // The JobSet restarts in place from now on, and its worker already runs. The worker belongs to the synced
                // epoch, which it has not reported, so that it takes part in the next group restart.
                self.epoch = Some(self.synced);
                self.apply_epochs(self.synced)
            }
            (Some(epoch), WorkerState::Waiting | WorkerState::Running) => self.apply_epochs(epoch),
            (_, WorkerState::Stopping | WorkerState::Terminating | WorkerState::Ended) => Vec::new(),
        }
    }

    /// Enters the epoch after `synced` and reports it. A worker that has run before ran in `synced` or in an earlier epoch.
    fn enter_next_epoch(&mut self) -> Vec<Output> {
        let Some(epoch) = self.synced.checked_add(1) else { return Vec::new() };
        self.epoch = Some(epoch);
        (self.failures, self.repeats) = (0, 0);
        self.send(epoch)
    }

    /// The two rules of KEP-467 for each state of the JobSet: a deprecated epoch ends, and a synced epoch lifts the barrier.
    fn apply_epochs(&mut self, epoch: i32) -> Vec<Output> {
        let group = GroupEpochs { synced: self.synced, deprecated: self.deprecated };
        match group.verdict(epoch) {
            EpochVerdict::Run if self.worker == WorkerState::Waiting => return self.lift(),
            EpochVerdict::Run | EpochVerdict::Wait => return Vec::new(),
            EpochVerdict::Restart => {}
        }
        match (&self.mode, self.worker) {
            (Mode::Sidecar { saves: true }, WorkerState::Running) => {
                self.worker = WorkerState::Stopping;
                vec![Output::Save { epoch }]
            }
            (Mode::Sidecar { .. }, _) => self.restart(epoch),
            (Mode::Supervisor { .. }, WorkerState::Running) => {
                self.worker = WorkerState::Stopping;
                vec![Output::StopWorker { epoch, deprecated: self.deprecated }]
            }
            // The worker never ran in this epoch, so there is nothing to stop.
            (Mode::Supervisor { .. }, _) => self.enter_next_epoch(),
        }
    }

    fn lift(&mut self) -> Vec<Output> {
        (self.worker, self.worker_failed) = (WorkerState::Running, false);
        vec![Output::Lift { epoch: self.epoch }]
    }

    fn restart(&mut self, epoch: i32) -> Vec<Output> {
        self.worker = WorkerState::Ended;
        vec![Output::Restart { epoch, deprecated: self.deprecated }]
    }

    fn exit(&mut self, code: u8) -> Vec<Output> {
        self.worker = WorkerState::Ended;
        vec![Output::Exit { code }]
    }

    fn on_saved(&mut self) -> Vec<Output> {
        match self.epoch {
            Some(epoch) if self.is_saving() => self.restart(epoch),
            _ => Vec::new(),
        }
    }

    fn on_worker_exited(&mut self, code: u8) -> Vec<Output> {
        let Mode::Supervisor { fatal } = &self.mode else { return Vec::new() };
        let is_final = code == 0 || self.bypass || fatal.contains(&code);
        match self.worker {
            WorkerState::Running if is_final => self.exit(code),
            // Nothing restarts the worker. Its container ends, so that the Pod stays with its logs.
            WorkerState::Running if self.jobset_failed => self.exit(FAILED_JOBSET_EXIT_CODE),
            WorkerState::Running => {
                self.worker_failed = true;
                self.wait_for_next_epoch()
            }
            // The exit code of a stopped worker does not count, because its epoch is deprecated.
            WorkerState::Stopping => self.wait_for_next_epoch(),
            WorkerState::Terminating => self.exit(TERMINATED),
            WorkerState::Waiting | WorkerState::Ended => Vec::new(),
        }
    }

    /// Waits for the next epoch once no process of the worker is left. The agent of a worker that failed is the first to report
    /// that epoch.
    fn wait_for_next_epoch(&mut self) -> Vec<Output> {
        self.worker = WorkerState::Waiting;
        self.epoch = None;
        if self.bypass { self.lift() } else { self.enter_next_epoch() }
    }

    fn on_terminate(&mut self) -> Vec<Output> {
        match (&self.mode, self.worker) {
            (Mode::Sidecar { .. }, _) => self.exit(0),
            (Mode::Supervisor { .. }, WorkerState::Running | WorkerState::Stopping | WorkerState::Terminating) => {
                self.worker = WorkerState::Terminating;
                vec![Output::TerminateWorker]
            }
            (Mode::Supervisor { .. }, WorkerState::Waiting | WorkerState::Ended) => self.exit(TERMINATED),
        }
    }

    fn send(&mut self, epoch: i32) -> Vec<Output> {
        if std::mem::replace(&mut self.is_reporting, true) {
            return Vec::new();
        }
        vec![Output::Report { epoch }]
    }

    fn on_reported(&mut self, epoch: i32) -> Vec<Output> {
        self.is_reporting = false;
        self.failures = 0;
        if self.epoch != Some(epoch) {
            return self.on_timer();
        }
        if self.worker != WorkerState::Waiting {
            return Vec::new();
        }
        let wait = exponential(self.repeats, REPEAT_FIRST, REPEAT_CAP);
        self.repeats = self.repeats.saturating_add(1);
        vec![Output::SetTimer(wait)]
    }

    fn on_report_failed(&mut self, retry_after: Option<Duration>) -> Vec<Output> {
        self.is_reporting = false;
        if self.worker != WorkerState::Waiting || self.epoch.is_none() {
            return Vec::new();
        }
        let wait = crate::backoff::after_failures(self.failures, retry_after);
        self.failures = self.failures.saturating_add(1);
        vec![Output::SetTimer(wait)]
    }

    fn on_timer(&mut self) -> Vec<Output> {
        match (self.epoch, self.worker) {
            (Some(epoch), WorkerState::Waiting) => self.send(epoch),
            _ => Vec::new(),
        }
    }

    /// Whether the worker beside a sidecar saves its state.
    fn is_saving(&self) -> bool {
        self.worker == WorkerState::Stopping && matches!(self.mode, Mode::Sidecar { .. })
    }
}
