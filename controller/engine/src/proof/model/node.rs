//! A node: the containers of a Pod, the agent among them as the real state machine, and the status that the kubelet would
//! write.

use std::collections::VecDeque;

use jobset_agent::barrier::Barrier;
use jobset_agent::channels::{ChannelInput, ChannelOutput, Channels};
use jobset_agent::decide::{self, Agent, Input, JobSetState, Output};
use jobset_stream::message::Report;

use super::link::Link;
use super::setting::Mode;
use super::state::PodStatus;
use crate::proof::RuleMutation;

const UID: &str = "u";

/// The containers of one Pod.
// Each is true or not whatever the others are.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(super) struct ModelMachine {
    mode: Mode,
    /// Whether its agents know a relay.
    has_stream: bool,
    broken: Option<RuleMutation>,
    /// The agent's process.
    pub agent: Option<Process>,
    pub worker: ModelWorker,
    /// A container has ended in a way that restarts them all.
    pub must_reset: bool,
    /// They have been stopped, and are not started again.
    resetting: bool,
    agent_restarts: u8,
    worker_restarts: u8,
    /// Containers of workers that were started, each with another identity.
    containers: u8,
    /// The agent has restarted and the worker has not.
    pub agent_is_younger: bool,
    /// The newest epoch that an agent of this Pod has entered.
    pub entered: Option<i32>,
}

/// An agent.
// Each is true or not whatever the others are.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct Process {
    agent: Agent,
    channels: Channels,
    /// Whether it watches the JobSet.
    pub watches: bool,
    /// How many versions of the JobSet its watch has not shown.
    pub age: usize,
    /// The annotation that is on its way.
    pub in_flight: Option<i32>,
    /// An older annotation that is on its way beside it: what a real agent never has.
    pub overtaken: Option<i32>,
    /// Its connection to a relay.
    pub link: Link,
    /// Whether it waits for the stream before it watches.
    pub awaits_stream: bool,
    /// Whether an annotation is due later.
    pub write_due: bool,
    /// Whether a timer runs.
    pub timer: bool,
    /// The epoch that it has entered.
    pub entered: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum ModelWorker {
    /// The worker has not been started.
    #[default]
    Waits,
    /// It runs in this epoch.
    Runs(i32),
    /// Its supervisor stops it.
    Stops(i32),
    /// Its container has ended, with a code that restarts the Pod.
    Failed,
}

/// What a kubelet does next, or a supervisor in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Reset,
    StartAgent,
    StartWorker,
    /// The worker that its supervisor stops has ended.
    WorkerEnds,
}

impl ModelMachine {
    pub(super) fn new(mode: Mode, has_stream: bool, broken: Option<RuleMutation>) -> Self {
        Self { mode, has_stream, broken, ..Self::default() }
    }

    /// The epoch of the worker that runs.
    pub(super) fn runs_in(&self) -> Option<i32> {
        match self.worker {
            ModelWorker::Runs(epoch) | ModelWorker::Stops(epoch) => Some(epoch),
            ModelWorker::Waits | ModelWorker::Failed => None,
        }
    }

    pub(super) fn next_deed(&self) -> Option<Deed> {
        match (&self.agent, self.worker) {
            _ if self.must_reset => Some(Deed::Reset),
            (None, _) => Some(Deed::StartAgent),
            (_, ModelWorker::Stops(_)) => Some(Deed::WorkerEnds),
            (Some(process), ModelWorker::Waits) if self.mode == Mode::Sidecar && process.is_lifted() => {
                Some(Deed::StartWorker)
            }
            _ => None,
        }
    }

    /// Does what is next. An agent without a stream that starts sees the newest JobSet.
    pub(super) fn act(&mut self, newest: (i32, i32)) {
        match self.next_deed() {
            Some(Deed::Reset) => self.reset(),
            Some(Deed::StartAgent) => self.start_agent(newest, 0),
            Some(Deed::StartWorker) => self.start_worker(),
            Some(Deed::WorkerEnds) => self.end_worker(143),
            None => {}
        }
    }

    /// All containers are stopped, to be started again.
    pub(super) fn reset(&mut self) {
        self.agent = None;
        self.worker = ModelWorker::Waits;
        (self.must_reset, self.agent_is_younger) = (false, false);
        match self.mode {
            Mode::Sidecar => {
                self.resetting = true;
                self.agent_restarts += 1;
            }
            Mode::Supervisor => {}
        }
        self.worker_restarts += 1;
    }

    /// The agent starts. Without a stream it sees the JobSet for the first time, as it was `age` versions ago.
    pub(super) fn start_agent(&mut self, jobset: (i32, i32), age: usize) {
        let mode = match self.mode {
            Mode::Sidecar => decide::Mode::Sidecar { saves: false },
            Mode::Supervisor => {
                self.containers += 1;
                decide::Mode::Supervisor { fatal: [3].into() }
            }
        };
        let agent = Agent::new(Some(UID.to_owned()), mode);
        let (channels, first) = Channels::new(self.has_stream);
        self.agent = Some(Process {
            agent,
            channels,
            watches: false,
            age,
            in_flight: None,
            overtaken: None,
            link: Link::default(),
            awaits_stream: false,
            write_due: false,
            timer: false,
            entered: None,
        });
        self.resetting = false;
        self.carry_out(vec![first], jobset, false);
    }

    /// The agent's container restarts. A sidecar's worker runs on.
    pub(super) fn restart_agent(&mut self) {
        self.agent = None;
        if self.mode == Mode::Supervisor {
            self.reset();
            return;
        }
        self.agent_restarts += 1;
        self.agent_is_younger = matches!(self.worker, ModelWorker::Runs(_));
    }

    /// The barrier is open, and the kubelet starts the worker.
    fn start_worker(&mut self) {
        let Some(epoch) = self.agent.as_ref().and_then(|agent| agent.entered) else { return };
        self.worker = ModelWorker::Runs(epoch);
        self.agent_is_younger = false;
        self.containers += 1;
    }

    /// The worker exits with a code that restarts it.
    pub(super) fn fail_worker(&mut self) {
        match self.mode {
            Mode::Sidecar => (self.worker, self.must_reset) = (ModelWorker::Failed, true),
            Mode::Supervisor => self.end_worker(1),
        }
    }

    /// The supervised worker has ended.
    fn end_worker(&mut self, code: u8) {
        self.worker = ModelWorker::Waits;
        self.tell(Input::WorkerExited { code });
    }

    /// The watch of the agent shows the JobSet as it was `age` versions ago.
    pub(super) fn see(&mut self, jobset: (i32, i32), age: usize) {
        if let Some(process) = &mut self.agent {
            process.age = age;
        }
        self.happen(ChannelInput::Watched(Input::JobSet(state(jobset))), jobset);
    }

    /// The agent gets the answer to its report.
    pub(super) fn answer(&mut self, is_ok: bool) {
        let Some(epoch) = self.agent.as_mut().and_then(|process| process.in_flight.take()) else { return };
        if self.answers_at_once() {
            if let Some(process) = &mut self.agent {
                process.in_flight = process.overtaken.take();
            }
            return;
        }
        self.happen(written(epoch, is_ok), (0, 0));
    }

    /// The agent's timer is over.
    pub(super) fn ring(&mut self) {
        if let Some(process) = &mut self.agent {
            process.timer = false;
        }
        self.tell(Input::Timer);
    }

    pub(super) fn change_agent(&mut self, change: impl FnOnce(&mut Process)) {
        if let Some(process) = &mut self.agent {
            change(process);
        }
    }

    fn tell(&mut self, input: Input) {
        self.run(VecDeque::from([input]));
    }

    /// Something happens on the channels of the agent. A watch that begins shows `newest`.
    pub(super) fn happen(&mut self, input: ChannelInput, newest: (i32, i32)) {
        let Some(process) = &mut self.agent else { return };
        let is_cut = input == ChannelInput::Disconnected;
        let outputs = process.channels.step(input);
        self.carry_out(outputs, newest, is_cut);
    }

    fn carry_out(&mut self, outputs: Vec<ChannelOutput>, newest: (i32, i32), is_cut: bool) {
        // A watch begins with a consistent read.
        let begins_watch = outputs.contains(&ChannelOutput::Watch);
        let mut ready = VecDeque::new();
        for output in outputs {
            self.carry_out_one(output, &mut ready, is_cut);
        }
        self.run(ready);
        if begins_watch {
            self.happen(ChannelInput::Watched(Input::JobSet(state(newest))), newest);
        }
    }

    fn carry_out_one(&mut self, output: ChannelOutput, ready: &mut VecDeque<Input>, is_cut: bool) {
        let Some(process) = &mut self.agent else { return };
        match output {
            ChannelOutput::Tell(input) => ready.push_back(input),
            ChannelOutput::AwaitStream => process.awaits_stream = true,
            ChannelOutput::Watch => process.watches = true,
            ChannelOutput::StopWatch => (process.watches, process.age) = (false, 0),
            ChannelOutput::Send(report) => process.link.report = Some(report.epoch),
            ChannelOutput::WriteLater { .. } => process.write_due = true,
            ChannelOutput::Write { epoch } => {
                let is_older = is_cut && self.broken == Some(RuleMutation::FallBackReportsOlderEpoch);
                process.overtaken = process.in_flight.take();
                process.in_flight = Some(if is_older { epoch - 1 } else { epoch });
                if self.answers_at_once() {
                    self.happen(written(epoch, true), (0, 0));
                }
            }
        }
    }

    /// Whether the agent does not wait for the answer to a write: broken.
    fn answers_at_once(&self) -> bool {
        self.has_stream && self.broken == Some(RuleMutation::WritesOvertakeEachOther)
    }

    /// The state machine of the agent takes inputs that are known, and those that follow at once.
    fn run(&mut self, mut ready: VecDeque<Input>) {
        while let Some(input) = ready.pop_front() {
            let Some(process) = &mut self.agent else { return };
            for output in process.agent.step(input) {
                let Some(process) = &mut self.agent else { return };
                match output {
                    Output::Report { epoch } => {
                        process.timer = false;
                        process.entered = Some(epoch);
                        self.entered = self.entered.max(Some(epoch));
                        let report = Report { epoch, exit: None, started: None };
                        for output in process.channels.step(ChannelInput::Report(report)) {
                            self.carry_out_one(output, &mut ready, false);
                        }
                    }
                    Output::SetTimer(_) => process.timer = true,
                    Output::Lift { epoch } => {
                        process.timer = false;
                        if let (Mode::Supervisor, Some(epoch)) = (self.mode, epoch) {
                            self.worker = ModelWorker::Runs(epoch);
                        }
                    }
                    Output::StopWorker { epoch, .. } => self.worker = ModelWorker::Stops(epoch),
                    Output::Restart { .. } => {
                        self.agent = None;
                        self.must_reset = true;
                        return;
                    }
                    Output::Exit { .. } => {
                        self.agent = None;
                        return;
                    }
                    // Of sidecars whose workers save their state, and of those that are asked to end.
                    Output::Save { .. } | Output::TerminateWorker => {}
                }
            }
        }
    }

    /// A broken supervisor takes the worker that it stops to have ended, and the worker runs on.
    pub(super) fn ignore_running_worker(&mut self) {
        if let ModelWorker::Stops(epoch) = self.worker {
            self.tell(Input::WorkerExited { code: 143 });
            self.worker = ModelWorker::Stops(epoch);
        }
    }

    /// The status that the kubelet observes.
    pub(super) fn status(&self) -> PodStatus {
        let worker_runs = match self.mode {
            Mode::Sidecar => matches!(self.worker, ModelWorker::Runs(_)),
            // It is one container with its agent.
            Mode::Supervisor => self.agent.is_some(),
        };
        PodStatus {
            agent_restarts: self.agent_restarts,
            worker_restarts: self.worker_restarts,
            worker: if worker_runs { self.containers } else { 0 },
            worker_ended: self.worker == ModelWorker::Failed,
            agent: self.agent.is_some(),
            agent_is_younger: self.agent_is_younger,
            restarting: self.mode == Mode::Sidecar && (self.resetting || self.worker == ModelWorker::Failed),
            failed: false,
        }
    }
}

impl Process {
    fn is_lifted(&self) -> bool {
        matches!(self.agent.barrier(), Barrier::Lifted { .. })
    }

    pub(super) fn awaits_sync(&self) -> bool {
        matches!(self.agent.barrier(), Barrier::AwaitsSync { .. })
    }
}

fn written(epoch: i32, is_ok: bool) -> ChannelInput {
    ChannelInput::Written(if is_ok {
        Input::Reported { epoch }
    } else {
        Input::ReportFailed { epoch, retry_after: None }
    })
}

pub(super) fn state((synced, deprecated): (i32, i32)) -> JobSetState {
    JobSetState { uid: UID.to_owned(), synced, deprecated, failed: false, bypass: false }
}
