//! The agent's decisions: one state machine that is told what happened and says what to do.
//!
//! No clock, no client, no randomness: the same value drives a Pod's agent, the simulated agents of the benchmarks and
//! the model checker. The rules are those of the seeds (000, "Implementation details - Agent"; 003, "Agent sidecar").
//!
//! Both modes follow the same epochs. A *sidecar* lets its worker start by opening the barrier, and ends an epoch by
//! exiting, so that the kubelet restarts the Pod and a new agent begins. A *supervisor* starts and stops its worker
//! itself, and goes on to the next epoch without exiting.

use std::collections::BTreeSet;
use std::time::Duration;

use jobset_protocol::epoch::{EpochVerdict, GroupEpochs};

use crate::backoff::exponential;
use crate::barrier::Barrier;

/// First wait before an epoch is reported again while the barrier stays closed. A report can be lost or overwritten.
const REPEAT_FIRST: Duration = Duration::from_secs(30);
/// Longest such wait. The caller at most doubles it ([`crate::backoff::jittered`]): five minutes.
const REPEAT_CAP: Duration = Duration::from_secs(150);
/// Exit code of a supervisor that was asked to end before its worker had: 128 and the number of SIGTERM. Never 0, by which
/// the Job would count the work as done.
const TERMINATED: u8 = 143;

/// How the agent lets its worker run and ends an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In a container of its own.
    Sidecar {
        /// Whether the worker may save its state before the Pod restarts.
        saves: bool,
    },
    /// As the parent of the worker.
    Supervisor {
        /// Exit codes of the worker that are not answered with a restart: they end the container, so that the
        /// podFailurePolicy and the failure policy see them.
        fatal: BTreeSet<u8>,
    },
}

/// What a JobSet says to all of its agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobSetState {
    /// `metadata.uid`. A JobSet that was deleted and created again under its name shares nothing with old Pods.
    pub uid: String,
    /// `status.syncedEpoch`: the epoch whose workers may run. Written by the controller.
    pub synced: i32,
    /// `status.deprecatedEpoch`: Pods in this epoch or an earlier one must restart. Written by the controller.
    pub deprecated: i32,
    /// The JobSet does not restart in place: its strategy is another, or an annotation switches it off.
    pub bypass: bool,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The JobSet was seen. The first one after [`Agent::new`] must come from a consistent read: with a stale `synced`
    /// the agent would report the epoch that is already running, and its worker would join it alone.
    JobSet(JobSetState),
    /// The JobSet was deleted. Its Pods follow by garbage collection; until then the worker runs on.
    Deleted,
    /// The API server accepted the report of this epoch.
    Reported {
        /// The epoch that was reported.
        epoch: i32,
    },
    /// The report of this epoch failed or was refused. It may have been applied all the same.
    ReportFailed {
        /// The epoch that was reported.
        epoch: i32,
        /// How long the API server asked to wait.
        retry_after: Option<Duration>,
    },
    /// The time of the last [`Output::SetTimer`] is over.
    Timer,
    /// The time in which the worker may save its state is over, or it has saved it: answer to [`Output::Save`].
    Saved,
    /// The supervised worker has ended, and no process of it is left.
    WorkerExited {
        /// Its exit code, or 128 and the number of the signal that ended it.
        code: u8,
    },
    /// The supervised worker could not be started.
    WorkerNotStarted {
        /// 127 if its program was not found, 126 if it cannot run: a shell's codes.
        code: u8,
    },
    /// SIGTERM.
    Terminate,
}

/// Something to do. Outputs are carried out in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Write this epoch to the annotation of the own Pod; answer with [`Input::Reported`] or [`Input::ReportFailed`].
    /// Takes the timer back.
    Report {
        /// The epoch to write.
        epoch: i32,
    },
    /// Give [`Input::Timer`] after this time, jittered upwards. Replaces the timer that was set before.
    SetTimer(Duration),
    /// Let the worker start: a sidecar opens the barrier, which stays open, a supervisor starts the worker and answers with
    /// [`Input::WorkerExited`] or [`Input::WorkerNotStarted`]. Takes the timer back.
    Lift {
        /// The epoch of the worker; none if the JobSet does not restart in place.
        epoch: Option<i32>,
    },
    /// Let the worker beside the sidecar save its state; answer with [`Input::Saved`] within a limited time.
    Save {
        /// The epoch that is over.
        epoch: i32,
    },
    /// Stop the supervised worker and all that it has started, by force when its grace is over. It ends with
    /// [`Input::WorkerExited`].
    StopWorker {
        /// The epoch that is over.
        epoch: i32,
        /// The deprecated epoch that ended it, `epoch` or later.
        deprecated: i32,
    },
    /// Pass SIGTERM on to the supervised worker. How long it may take is the kubelet's affair.
    TerminateWorker,
    /// Restart the Pod in place. Nothing follows.
    Restart {
        /// The epoch that is over.
        epoch: i32,
        /// The deprecated epoch that ended it, `epoch` or later.
        deprecated: i32,
    },
    /// End with this exit code. Nothing follows.
    Exit {
        /// 0 of a sidecar that was asked to end, the worker's own of a supervisor.
        code: u8,
    },
}

/// The report of the own epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Report {
    /// Not on its way; the timer says when to send it again.
    Idle,
    /// Sent, not answered. One at a time, so that an older epoch cannot overtake a newer one.
    InFlight,
}

/// What has become of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    /// It waits at the barrier. A supervised one has not been started, and nothing is left of the one before.
    Waits,
    /// It may run.
    Runs,
    /// Its epoch is over: it saves its state, or is being stopped.
    Stops,
    /// The agent was asked to end and waits for it.
    Leaves,
    /// The agent has ended.
    Gone,
}

/// One agent, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    mode: Mode,
    uid: Option<String>,
    foreign: Option<String>,
    synced: i32,
    deprecated: i32,
    bypass: bool,
    epoch: Option<i32>,
    worker: Worker,
    report: Report,
    failures: u32,
    repeats: u32,
}

impl Agent {
    /// An agent that has just started. `uid` is the UID of the Pod's JobSet; without it, the first JobSet seen counts.
    pub fn new(uid: Option<String>, mode: Mode) -> Self {
        Self {
            mode,
            uid,
            foreign: None,
            synced: 0,
            deprecated: 0,
            bypass: false,
            epoch: None,
            worker: Worker::Waits,
            report: Report::Idle,
            failures: 0,
            repeats: 0,
        }
    }

    /// What the worker waits for.
    pub fn barrier(&self) -> Barrier {
        match (self.epoch, &self.uid, &self.foreign) {
            (epoch, ..) if self.worker == Worker::Runs => Barrier::Lifted { epoch },
            // What was lifted for a sidecar stays so: the kubelet asks again after a restart of its own.
            (epoch, ..) if self.worker == Worker::Stops && self.is_sidecar() => Barrier::Lifted { epoch },
            _ if matches!(self.worker, Worker::Stops | Worker::Leaves) => Barrier::Stopping,
            (Some(epoch), ..) => Barrier::AwaitsSync { epoch, synced: self.synced },
            (None, Some(own), Some(seen)) => Barrier::AwaitsOtherJobSet { own: own.clone(), seen: seen.clone() },
            (None, ..) => Barrier::AwaitsJobSet,
        }
    }

    /// Takes one input and says what to do. After [`Output::Restart`] or [`Output::Exit`] there is nothing more to do.
    pub fn step(&mut self, input: Input) -> Vec<Output> {
        if self.worker == Worker::Gone {
            return Vec::new();
        }
        match input {
            Input::JobSet(state) => self.on_jobset(state),
            Input::Deleted => Vec::new(),
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
                self.foreign = Some(state.uid);
                return Vec::new();
            }
            Some(_) => {}
            None => self.uid = Some(state.uid),
        }
        // A watch that begins anew may come from an API server that lags behind the last one.
        self.synced = self.synced.max(state.synced);
        self.deprecated = self.deprecated.max(state.deprecated);
        self.bypass = state.bypass;
        if self.bypass {
            return if self.worker == Worker::Waits { self.lift() } else { Vec::new() };
        }
        match (self.epoch, self.worker) {
            (None, Worker::Waits) => self.enter(),
            (None, Worker::Runs) => {
                // The worker was let through while the JobSet did not restart in place, and now it does. It belongs to
                // the epoch that runs, without having reported it, so that it takes part in the next group restart.
                self.epoch = Some(self.synced);
                self.follow(self.synced)
            }
            (Some(epoch), Worker::Waits | Worker::Runs) => self.follow(epoch),
            (_, Worker::Stops | Worker::Leaves | Worker::Gone) => Vec::new(),
        }
    }

    /// Takes the next epoch, and reports it. A worker that has run did so in `synced` or before.
    fn enter(&mut self) -> Vec<Output> {
        let Some(epoch) = self.synced.checked_add(1) else { return Vec::new() };
        self.epoch = Some(epoch);
        (self.failures, self.repeats) = (0, 0);
        self.send(epoch)
    }

    /// The seeds' two rules, for each state of the JobSet.
    fn follow(&mut self, epoch: i32) -> Vec<Output> {
        let group = GroupEpochs { synced: self.synced, deprecated: self.deprecated };
        match group.verdict(epoch) {
            EpochVerdict::Run if self.worker == Worker::Waits => return self.lift(),
            EpochVerdict::Run | EpochVerdict::Wait => return Vec::new(),
            EpochVerdict::Restart => {}
        }
        match (&self.mode, self.worker) {
            (Mode::Sidecar { saves: true }, Worker::Runs) => {
                self.worker = Worker::Stops;
                vec![Output::Save { epoch }]
            }
            (Mode::Sidecar { .. }, _) => self.restart(epoch),
            (Mode::Supervisor { .. }, Worker::Runs) => {
                self.worker = Worker::Stops;
                vec![Output::StopWorker { epoch, deprecated: self.deprecated }]
            }
            // Nothing has to be stopped: it never ran in this epoch.
            (Mode::Supervisor { .. }, _) => self.enter(),
        }
    }

    fn lift(&mut self) -> Vec<Output> {
        self.worker = Worker::Runs;
        vec![Output::Lift { epoch: self.epoch }]
    }

    fn restart(&mut self, epoch: i32) -> Vec<Output> {
        self.worker = Worker::Gone;
        vec![Output::Restart { epoch, deprecated: self.deprecated }]
    }

    fn exit(&mut self, code: u8) -> Vec<Output> {
        self.worker = Worker::Gone;
        vec![Output::Exit { code }]
    }

    fn on_saved(&mut self) -> Vec<Output> {
        match self.epoch {
            Some(epoch) if self.worker == Worker::Stops && self.is_sidecar() => self.restart(epoch),
            _ => Vec::new(),
        }
    }

    fn on_worker_exited(&mut self, code: u8) -> Vec<Output> {
        let Mode::Supervisor { fatal } = &self.mode else { return Vec::new() };
        let is_final = code == 0 || self.bypass || fatal.contains(&code);
        match self.worker {
            Worker::Runs if is_final => self.exit(code),
            // It failed, or it was stopped and whatever it said on its way out is about an epoch that is over.
            Worker::Runs | Worker::Stops => self.go_on(),
            Worker::Leaves => self.exit(TERMINATED),
            Worker::Waits | Worker::Gone => Vec::new(),
        }
    }

    /// Nothing is left of the worker: it waits for the next epoch, which it is the first to report if it failed.
    fn go_on(&mut self) -> Vec<Output> {
        self.worker = Worker::Waits;
        self.epoch = None;
        if self.bypass { self.lift() } else { self.enter() }
    }

    fn on_terminate(&mut self) -> Vec<Output> {
        match (&self.mode, self.worker) {
            (Mode::Sidecar { .. }, _) => self.exit(0),
            (Mode::Supervisor { .. }, Worker::Runs | Worker::Stops | Worker::Leaves) => {
                self.worker = Worker::Leaves;
                vec![Output::TerminateWorker]
            }
            (Mode::Supervisor { .. }, Worker::Waits | Worker::Gone) => self.exit(TERMINATED),
        }
    }

    fn send(&mut self, epoch: i32) -> Vec<Output> {
        if self.report == Report::InFlight {
            return Vec::new();
        }
        self.report = Report::InFlight;
        vec![Output::Report { epoch }]
    }

    fn on_reported(&mut self, epoch: i32) -> Vec<Output> {
        self.report = Report::Idle;
        self.failures = 0;
        if self.epoch != Some(epoch) {
            return self.on_timer();
        }
        if self.worker != Worker::Waits {
            return Vec::new();
        }
        let wait = exponential(self.repeats, REPEAT_FIRST, REPEAT_CAP);
        self.repeats = self.repeats.saturating_add(1);
        vec![Output::SetTimer(wait)]
    }

    fn on_report_failed(&mut self, retry_after: Option<Duration>) -> Vec<Output> {
        self.report = Report::Idle;
        if self.worker != Worker::Waits || self.epoch.is_none() {
            return Vec::new();
        }
        let wait = crate::backoff::after_failures(self.failures, retry_after);
        self.failures = self.failures.saturating_add(1);
        vec![Output::SetTimer(wait)]
    }

    fn on_timer(&mut self) -> Vec<Output> {
        match (self.epoch, self.worker) {
            (Some(epoch), Worker::Waits) => self.send(epoch),
            _ => Vec::new(),
        }
    }

    fn is_sidecar(&self) -> bool {
        matches!(self.mode, Mode::Sidecar { .. })
    }
}
