//! The agents: the real state machines, with a watch on the JobSet that lags, and reports that get lost. Some know a relay
//! beside: [`super::streams`].

use std::collections::VecDeque;

use jobset_agent::channels::{ChannelInput, ChannelOutput, Channels};
use jobset_agent::decide::{Agent, Input, Mode, Output};
use jobset_api::agent::DEFAULT_EXIT_CODE;
use jobset_api::labels;
use jobset_stream::message::Report;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::cluster::SimulatedCluster;
use super::machine::SimulatedWorker;
use super::scenario::UID;
use crate::proof::{CheckResult, Property, RuleMutation, Violation};

/// How long an agent waits for the stream, in milliseconds.
const STREAM_TIMEOUT: i64 = 1_000;
/// Longest delay of an annotation, in milliseconds.
const SPREAD: i64 = 5_000;

/// An agent's process, from its start to its end.
#[derive(Debug)]
pub(super) struct AgentProcess {
    pub container: u32,
    pub started: Time,
    /// When it started, as it says; an older agent does not.
    pub says_start: Option<String>,
    agent: Agent,
    channels: Channels,
    /// Whether it watches the JobSet.
    watches: bool,
    /// The newest state of the JobSet that its watch has shown, of those that there were.
    observed: Option<usize>,
    /// The annotation that is on its way.
    reporting: Option<i32>,
    /// An older one beside it: what a real agent never has.
    overtaken: Option<i32>,
    /// The number of its connection to a relay.
    pub link: Option<u64>,
    /// When it no longer waits for the stream, in milliseconds.
    pub stream_deadline: Option<i64>,
    /// When its annotation is due, in milliseconds.
    pub write_due: Option<i64>,
    /// When its timer is over, in milliseconds.
    timer: Option<i64>,
    /// Whether it has lifted the barrier.
    pub lifted: bool,
    /// The epoch that it has entered.
    pub entered: Option<i32>,
    /// The epoch in which its worker failed, until it starts the next one.
    pub failed_in: Option<i32>,
}

/// What becomes of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stored,
    /// It was stored, and the answer got lost.
    StoredUnanswered,
    Lost,
}

impl AgentProcess {
    /// An agent that starts now. `has_stream` says whether it knows a relay.
    pub(super) fn new(container: u32, started: Time, mode: Mode, has_stream: bool) -> Self {
        let agent = Agent::new(Some(UID.to_owned()), mode);
        let (channels, first) = Channels::new(has_stream);
        Self {
            container,
            started,
            says_start: None,
            agent,
            channels,
            watches: first == ChannelOutput::Watch,
            observed: None,
            reporting: None,
            overtaken: None,
            link: None,
            // At once, or later.
            stream_deadline: (first == ChannelOutput::AwaitStream).then_some(0),
            write_due: None,
            timer: None,
            lifted: false,
            entered: None,
            failed_in: None,
        }
    }
}

impl AgentProcess {
    /// What it says of this epoch over the stream.
    pub(super) fn report(&self, epoch: i32) -> Report {
        Report { epoch, exit: self.failed_in.map(exit_text), started: self.says_start.clone() }
    }

    /// The supervisor is asked to end, and asks its worker to.
    pub(super) fn ask_to_end(&mut self) {
        self.agent.step(Input::Terminate);
    }

    /// The code with which a supervisor ends that is asked to, whose worker then exits with this one.
    pub(super) fn terminate(&mut self, worker: u8) -> Option<u8> {
        let exit = |outputs: Vec<Output>| {
            outputs.into_iter().find_map(|output| if let Output::Exit { code } = output { Some(code) } else { None })
        };
        exit(self.agent.step(Input::Terminate)).or_else(|| exit(self.agent.step(Input::WorkerExited { code: worker })))
    }
}

impl SimulatedCluster {
    /// One thing happens to the agent of this Pod, if there is one to happen. If `fair`, nothing gets lost.
    pub(super) fn step_agent(&mut self, uid: &str, fair: bool) -> CheckResult {
        let newest = self.api.states.len() - 1;
        let clock = self.clock;
        if self.step_stream_of_agent(uid, fair)? {
            return Ok(());
        }
        let Some(machine) = self.machines.get_mut(uid).filter(|machine| !machine.lost) else { return Ok(()) };
        let Some(process) = &mut machine.agent else { return Ok(()) };
        let input = if let Some(epoch) = process.reporting
            && (fair || self.rng.u8(..3) != 0)
        {
            process.reporting = process.overtaken.take();
            return self.answer_report(uid, epoch, fair);
        } else if process.timer.is_some_and(|timer| timer <= clock) {
            process.timer = None;
            return self.tell_agent(uid, Input::Timer);
        } else if !process.watches {
            return Ok(());
        } else {
            let next = match process.observed {
                // The first one comes from a consistent read.
                None => newest,
                Some(observed) if observed < newest => self.rng.usize(observed + 1..=newest),
                Some(_) => return Ok(()),
            };
            process.observed = Some(next);
            Input::JobSet(self.api.states[next].clone())
        };
        self.happens_to_agent(uid, ChannelInput::Watched(input))
    }

    fn answer_report(&mut self, uid: &str, epoch: i32, fair: bool) -> CheckResult {
        let fate = match self.rng.u8(..8) {
            0 if !fair => Fate::Lost,
            1 if !fair => Fate::StoredUnanswered,
            _ => Fate::Stored,
        };
        let Some(machine) = self.machines.get(uid) else { return Ok(()) };
        let (pod, slot) = (machine.pod.clone(), machine.slot());
        let failed_in = machine.agent.as_ref().and_then(|process| process.failed_in);
        let started = machine.agent.as_ref().and_then(|process| process.says_start.clone());
        let is_there = self.api.pods.contains_key(&pod);
        let leaves = if self.leaves(&pod) { ", and leaves" } else { "" };
        self.trace(|| format!("agent of {pod} reports {epoch}: {fate:?}{leaves}"));
        if fate != Fate::Lost && is_there {
            if epoch > self.api.synced() + 1 {
                let message = format!("{pod} reports {epoch}, and the synced epoch is {}", self.api.synced());
                return Err(Violation::new(Property::Barrier, message));
            }
            self.api.change_pod(&pod, |wire| {
                let annotations = wire.metadata.annotations.get_or_insert_default();
                annotations.insert(labels::EPOCH.to_owned(), epoch.to_string());
                if let Some(started) = started {
                    annotations.insert(labels::AGENT_STARTED.to_owned(), started);
                }
                if let Some(epoch) = failed_in {
                    annotations.insert(labels::WORKER_EXIT.to_owned(), exit_text(epoch));
                }
            });
            self.truth.reported(slot, epoch);
        }
        let answered = fate == Fate::Stored && is_there;
        if self.answers_at_once() {
            return Ok(());
        }
        self.happens_to_agent(uid, written(epoch, answered))
    }

    /// Something happens on the channels of an agent.
    pub(super) fn happens_to_agent(&mut self, uid: &str, input: ChannelInput) -> CheckResult {
        let is_cut = input == ChannelInput::Disconnected;
        let Some(process) = self.machines.get_mut(uid).and_then(|machine| machine.agent.as_mut()) else {
            return Ok(());
        };
        let outputs = process.channels.step(input);
        self.worked = true;
        let mut ready = VecDeque::new();
        for output in outputs {
            self.carry_out_channel(uid, output, is_cut, &mut ready);
        }
        ready.into_iter().try_for_each(|input| self.tell_agent(uid, input))
    }

    fn carry_out_channel(&mut self, uid: &str, output: ChannelOutput, is_cut: bool, ready: &mut VecDeque<Input>) {
        let (clock, answers_at_once) = (self.clock, self.answers_at_once());
        let is_older = is_cut && self.broken == Some(RuleMutation::FallBackReportsOlderEpoch);
        let Some(process) = self.machines.get_mut(uid).and_then(|machine| machine.agent.as_mut()) else { return };
        match output {
            ChannelOutput::Tell(input) => ready.push_back(input),
            ChannelOutput::AwaitStream => process.stream_deadline = Some(clock + STREAM_TIMEOUT),
            ChannelOutput::Watch => (process.watches, process.observed) = (true, None),
            ChannelOutput::StopWatch => process.watches = false,
            ChannelOutput::Send(report) => self.network.send(process.link, report),
            ChannelOutput::WriteLater { .. } => process.write_due = Some(clock + self.network.rng.i64(0..SPREAD)),
            ChannelOutput::Write { epoch } => {
                process.overtaken = process.reporting.replace(if is_older { epoch - 1 } else { epoch });
                if answers_at_once {
                    let outputs = process.channels.step(written(epoch, true));
                    for output in outputs {
                        self.carry_out_channel(uid, output, false, ready);
                    }
                }
            }
        }
    }

    /// Whether agents do not wait for the answer to a write: broken.
    fn answers_at_once(&self) -> bool {
        self.network.is_on && self.broken == Some(RuleMutation::WritesOvertakeEachOther)
    }

    pub(super) fn tell_agent(&mut self, uid: &str, input: Input) -> CheckResult {
        let (clock, now) = (self.clock, self.now());
        let Some(machine) = self.machines.get_mut(uid) else { return Ok(()) };
        let Some(process) = &mut machine.agent else { return Ok(()) };
        let (mut starts, mut stops) = (None, false);
        let mut reports = None;
        for output in process.agent.step(input) {
            match output {
                Output::Report { epoch } => {
                    process.timer = None;
                    reports = Some(process.report(epoch));
                    process.entered = Some(epoch);
                    machine.epoch = Some(epoch);
                }
                Output::SetTimer(wait) => {
                    process.timer = Some(clock + i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
                }
                Output::Lift { epoch } => {
                    (process.lifted, process.failed_in) = (true, None);
                    starts = machine.supervised.then_some(epoch);
                }
                Output::StopWorker { .. } => stops = true,
                Output::Restart { .. } => {
                    machine.agent_end = Some((DEFAULT_EXIT_CODE.into(), process.started.clone(), now));
                    machine.agent = None;
                    machine.must_reset = true;
                    machine.status_is_outdated = true;
                    break;
                }
                Output::Exit { code } => {
                    if machine.supervised {
                        let (container, since) = (process.container, process.started.clone());
                        machine.worker = SimulatedWorker::Ended { code: code.into(), container, since, at: now };
                        machine.status_is_outdated = true;
                    }
                    machine.agent = None;
                    break;
                }
                // Of sidecars whose workers save their state, and of supervisors that are asked to end.
                Output::Save { .. } | Output::TerminateWorker => {}
            }
        }
        self.worked = true;
        if stops {
            self.stop_supervised(uid)?;
        }
        if let Some(epoch) = starts {
            self.worker_starts(uid, epoch)?;
        }
        reports.map_or(Ok(()), |report| self.happens_to_agent(uid, ChannelInput::Report(report)))
    }
}

fn written(epoch: i32, is_ok: bool) -> ChannelInput {
    ChannelInput::Written(if is_ok {
        Input::Reported { epoch }
    } else {
        Input::ReportFailed { epoch, retry_after: None }
    })
}

/// How the worker of an epoch has failed, as the agent says it.
fn exit_text(epoch: i32) -> String {
    format!(r#"{{"epoch": {epoch}, "code": 1}}"#)
}
