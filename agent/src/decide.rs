//! The agent's decisions: one state machine that is told what happened and says what to do.
//!
//! No clock, no client, no randomness: the same value drives a Pod's agent, the simulated agents of the benchmarks and
//! the model checker. The rules are those of the seeds (000, "Implementation details - Agent"; 003, "Agent sidecar").

use std::time::Duration;

use crate::backoff::exponential;

/// First wait before an epoch is reported again while the barrier stays closed. A report can be lost or overwritten.
const REPEAT_FIRST: Duration = Duration::from_secs(30);
/// Longest such wait. The caller at most doubles it ([`crate::backoff::jittered`]): five minutes.
const REPEAT_CAP: Duration = Duration::from_secs(150);

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
    /// SIGTERM.
    Terminate,
}

/// Something to do. Outputs are carried out in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Write this epoch to the annotation of the own Pod; answer with [`Input::Reported`] or [`Input::ReportFailed`].
    Report {
        /// The epoch to write.
        epoch: i32,
    },
    /// Give [`Input::Timer`] after this time, jittered upwards. Replaces the timer that was set before.
    SetTimer(Duration),
    /// Let the worker start. Given once; the barrier stays lifted.
    Lift {
        /// The epoch of the worker; none if the JobSet does not restart in place.
        epoch: Option<i32>,
    },
    /// Restart the Pod in place. Nothing follows.
    Restart {
        /// The epoch that is over.
        epoch: i32,
        /// The deprecated epoch that ended it, `epoch` or later.
        deprecated: i32,
    },
    /// End with exit code 0. Nothing follows.
    Exit,
}

/// Why the worker may or may not start, for the person who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Barrier {
    /// No state of the JobSet was seen yet.
    AwaitsJobSet,
    /// The JobSet of that name is another one than this Pod belongs to.
    AwaitsOtherJobSet {
        /// UID of the JobSet that the Pod belongs to.
        own: String,
        /// UID of the JobSet that was seen.
        seen: String,
    },
    /// The Pod waits until all others report its epoch.
    AwaitsSync {
        /// The epoch of this Pod.
        epoch: i32,
        /// The last epoch that all Pods reached.
        synced: i32,
    },
    /// The worker may run.
    Lifted {
        /// The epoch of the worker; none if the JobSet does not restart in place.
        epoch: Option<i32>,
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

/// One agent, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    uid: Option<String>,
    foreign: Option<String>,
    synced: i32,
    deprecated: i32,
    epoch: Option<i32>,
    lifted: bool,
    ended: bool,
    report: Report,
    failures: u32,
    repeats: u32,
}

impl Agent {
    /// An agent that has just started. `uid` is the UID of the Pod's JobSet; without it, the first JobSet seen counts.
    pub fn new(uid: Option<String>) -> Self {
        Self {
            uid,
            foreign: None,
            synced: 0,
            deprecated: 0,
            epoch: None,
            lifted: false,
            ended: false,
            report: Report::Idle,
            failures: 0,
            repeats: 0,
        }
    }

    /// What the worker waits for.
    pub fn barrier(&self) -> Barrier {
        match (self.epoch, &self.uid, &self.foreign) {
            (epoch, ..) if self.lifted => Barrier::Lifted { epoch },
            (Some(epoch), ..) => Barrier::AwaitsSync { epoch, synced: self.synced },
            (None, Some(own), Some(seen)) => Barrier::AwaitsOtherJobSet { own: own.clone(), seen: seen.clone() },
            (None, ..) => Barrier::AwaitsJobSet,
        }
    }

    /// Takes one input and says what to do. After [`Output::Restart`] or [`Output::Exit`] there is nothing more to do.
    pub fn step(&mut self, input: Input) -> Vec<Output> {
        if self.ended {
            return Vec::new();
        }
        match input {
            Input::JobSet(state) => self.on_jobset(state),
            Input::Deleted => Vec::new(),
            Input::Reported { epoch } => self.on_reported(epoch),
            Input::ReportFailed { epoch, retry_after } => self.on_report_failed(epoch, retry_after),
            Input::Timer => self.on_timer(),
            Input::Terminate => {
                self.ended = true;
                vec![Output::Exit]
            }
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

        if state.bypass {
            return self.lift();
        }
        let Some(epoch) = self.epoch else { return self.enter() };
        self.follow(epoch)
    }

    /// Takes the epoch in which this agent begins.
    fn enter(&mut self) -> Vec<Output> {
        if self.lifted {
            // The worker was let through while the JobSet did not restart in place, and now it does. It belongs to the
            // epoch that runs, without having reported it, so that it takes part in the next group restart.
            self.epoch = Some(self.synced);
            return self.follow(self.synced);
        }
        let Some(epoch) = self.synced.checked_add(1) else { return Vec::new() };
        self.epoch = Some(epoch);
        self.send(epoch)
    }

    /// The seeds' two rules, for each state of the JobSet.
    fn follow(&mut self, epoch: i32) -> Vec<Output> {
        if epoch <= self.deprecated {
            self.ended = true;
            return vec![Output::Restart { epoch, deprecated: self.deprecated }];
        }
        if epoch == self.synced { self.lift() } else { Vec::new() }
    }

    fn lift(&mut self) -> Vec<Output> {
        if self.lifted {
            return Vec::new();
        }
        self.lifted = true;
        vec![Output::Lift { epoch: self.epoch }]
    }

    fn send(&mut self, epoch: i32) -> Vec<Output> {
        self.report = Report::InFlight;
        vec![Output::Report { epoch }]
    }

    fn on_reported(&mut self, epoch: i32) -> Vec<Output> {
        self.report = Report::Idle;
        self.failures = 0;
        if self.epoch != Some(epoch) {
            return self.on_timer();
        }
        if self.lifted {
            return Vec::new();
        }
        let wait = exponential(self.repeats, REPEAT_FIRST, REPEAT_CAP);
        self.repeats = self.repeats.saturating_add(1);
        vec![Output::SetTimer(wait)]
    }

    fn on_report_failed(&mut self, epoch: i32, retry_after: Option<Duration>) -> Vec<Output> {
        self.report = Report::Idle;
        if self.lifted && self.epoch == Some(epoch) {
            return Vec::new();
        }
        let wait = crate::backoff::after_failures(self.failures, retry_after);
        self.failures = self.failures.saturating_add(1);
        vec![Output::SetTimer(wait)]
    }

    fn on_timer(&mut self) -> Vec<Output> {
        match (self.epoch, self.report) {
            (Some(epoch), Report::Idle) if !self.lifted => self.send(epoch),
            _ => Vec::new(),
        }
    }
}
