//! A node: the containers of a Pod, the agent among them as the real state machine, and the status that the kubelet would
//! write.

use std::ops::Deref;

use jobset_agent::barrier::Barrier;
use jobset_agent::channels::ChannelInput;
use jobset_agent::decide::{self, Input, JobSetState};
use jobset_store::pods::PodView;
use k8s_openapi::jiff::Timestamp;

use super::link::Link;
use super::setting::Mode;
use crate::proof::{AgentDeed, AgentProcess, ProgressWord, RuleMutation};

pub(super) const UID: &str = "u";

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
    pub agent: Option<ModelAgent>,
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

/// An agent, and what the model knows of it. Its times are true or not: `Some(0)` while it waits.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct ModelAgent {
    process: AgentProcess,
    /// How many versions of the JobSet its watch has not shown.
    pub age: usize,
    /// Its connection to a relay.
    pub link: Link,
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
            (Some(agent), ModelWorker::Waits) if self.mode == Mode::Sidecar && agent.is_lifted() => {
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
        let process = AgentProcess::new(UID, mode, self.has_stream, self.broken);
        let watches = process.watches;
        self.agent = Some(ModelAgent { process, age, link: Link::default() });
        self.resetting = false;
        if watches {
            self.read(jobset);
        }
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

    /// Whether the worker makes no progress, as its agent knows.
    pub(super) fn stalls(&self) -> bool {
        let stalls = |epoch| ProgressWord { epoch, stalls: true };
        let known = self.agent.as_ref().and_then(|agent| agent.progress);
        matches!(self.worker, ModelWorker::Runs(epoch) if known == Some(stalls(epoch)))
    }

    /// The worker makes no progress any longer.
    pub(super) fn stall(&mut self, newest: (i32, i32)) {
        let Some(agent) = &mut self.agent else { return };
        let deeds = agent.process.stall(|_| 0);
        self.carry_out(deeds, newest);
    }

    /// The supervised worker has ended.
    fn end_worker(&mut self, code: u8) {
        self.worker = ModelWorker::Waits;
        self.tell(Input::WorkerExited { code });
    }

    /// The watch of the agent shows the JobSet as it was `age` versions ago.
    pub(super) fn see(&mut self, jobset: (i32, i32), age: usize) {
        self.change_agent(|agent| agent.age = age);
        self.read(jobset);
    }

    /// The newest epochs that its agent knows once it no longer relies on a relay, and its watch has shown the JobSet. `notices_silence`
    /// says whether it ends a connection that brings nothing.
    pub(super) fn told_without_stream(mut self, newest: (i32, i32), notices_silence: bool) -> Option<(i32, i32)> {
        if notices_silence && self.agent.as_ref()?.link.up {
            self.change_agent(|agent| agent.link = Link::default());
            self.happen(ChannelInput::Disconnected, newest);
        }
        if self.agent.as_ref()?.stream_deadline.is_some() {
            self.end_wait(newest);
        }
        if self.agent.as_ref()?.watches {
            self.see(newest, 0);
        }
        Some(self.agent?.agent.told())
    }

    fn read(&mut self, jobset: (i32, i32)) {
        self.happen(ChannelInput::Watched(Input::JobSet(state(jobset))), jobset);
    }

    /// The agent gets the answer to its report.
    pub(super) fn answer(&mut self, is_ok: bool) {
        let Some(agent) = &mut self.agent else { return };
        let answer = agent.process.take_write().and_then(|epoch| agent.process.answer(epoch, is_ok));
        if let Some(answer) = answer {
            self.happen(answer, (0, 0));
        }
    }

    /// The agent's timer is over.
    pub(super) fn ring(&mut self) {
        self.change_agent(|agent| agent.process.timer = None);
        self.tell(Input::Timer);
    }

    /// The agent no longer waits for the stream.
    pub(super) fn end_wait(&mut self, newest: (i32, i32)) {
        self.change_agent(|agent| agent.process.stream_deadline = None);
        self.happen(ChannelInput::StreamTimeout, newest);
    }

    /// The delay of the agent's annotation is over.
    pub(super) fn end_delay(&mut self, newest: (i32, i32)) {
        self.change_agent(|agent| agent.process.write_due = None);
        self.happen(ChannelInput::WriteDue, newest);
    }

    pub(super) fn change_agent(&mut self, change: impl FnOnce(&mut ModelAgent)) {
        if let Some(agent) = &mut self.agent {
            change(agent);
        }
    }

    fn tell(&mut self, input: Input) {
        let Some(agent) = &mut self.agent else { return };
        let deeds = agent.process.tell(input, |_| 0);
        self.carry_out(deeds, (0, 0));
    }

    /// Something happens on the channels of the agent. A watch that begins shows `newest`.
    pub(super) fn happen(&mut self, input: ChannelInput, newest: (i32, i32)) {
        let Some(agent) = &mut self.agent else { return };
        let deeds = agent.process.happen(input, |_| 0);
        self.carry_out(deeds, newest);
    }

    fn carry_out(&mut self, deeds: Vec<AgentDeed>, newest: (i32, i32)) {
        let begins_watch = deeds.contains(&AgentDeed::Watch);
        for deed in deeds {
            let Some(agent) = &mut self.agent else { return };
            match deed {
                AgentDeed::Enter(epoch) => self.entered = self.entered.max(Some(epoch)),
                AgentDeed::Watch => {}
                AgentDeed::StopWatch => agent.age = 0,
                AgentDeed::Send(epoch) => agent.link.report = Some(agent.says(epoch)),
                AgentDeed::Lift(epoch) => {
                    if let (Mode::Supervisor, Some(epoch)) = (self.mode, epoch) {
                        self.worker = ModelWorker::Runs(epoch);
                    }
                }
                AgentDeed::StopWorker(epoch) => self.worker = ModelWorker::Stops(epoch),
                AgentDeed::Restart => (self.agent, self.must_reset) = (None, true),
                AgentDeed::Exit(_) => self.agent = None,
            }
        }
        // A watch begins with a consistent read.
        if begins_watch {
            self.read(newest);
        }
    }

    /// A broken supervisor takes the worker that it stops to have ended, and the worker runs on.
    pub(super) fn ignore_running_worker(&mut self) {
        if let ModelWorker::Stops(epoch) = self.worker {
            self.tell(Input::WorkerExited { code: 143 });
            self.worker = ModelWorker::Stops(epoch);
        }
    }

    /// The status that the kubelet observes, as the engine reduces it. Containers start at 0, or at 1 if they have restarted alone.
    pub(super) fn status(&self) -> PodView {
        let is_sidecar = self.mode == Mode::Sidecar;
        let agent_runs = is_sidecar && self.agent.is_some();
        // A supervisor and its worker are one container.
        let worker_runs = if is_sidecar { self.runs_in().is_some() } else { self.agent.is_some() };
        let has_failed = self.worker == ModelWorker::Failed;
        let second = |second, is: bool| Timestamp::from_second(second).ok().filter(|_| is);
        PodView {
            workers: if worker_runs { self.containers.into() } else { 0 },
            workers_started: second(0, worker_runs),
            workers_ended: second(0, has_failed),
            sidecar: is_sidecar,
            agents: u64::from(agent_runs),
            agent_started: second(i64::from(self.agent_is_younger), agent_runs),
            restarts: i32::from(self.agent_restarts) + i32::from(self.worker_restarts),
            agent_restarts: i32::from(self.agent_restarts),
            restarting: is_sidecar && (self.resetting || has_failed),
            ..PodView::default()
        }
    }
}

impl ModelAgent {
    pub(super) fn awaits_sync(&self) -> bool {
        matches!(self.agent.barrier(), Barrier::AwaitsSync { .. })
    }
}

impl Deref for ModelAgent {
    type Target = AgentProcess;

    fn deref(&self) -> &AgentProcess {
        &self.process
    }
}

pub(super) fn state((synced, deprecated): (i32, i32)) -> JobSetState {
    JobSetState { uid: UID.to_owned(), synced, deprecated, failed: false, bypass: false }
}
