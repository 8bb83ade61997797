//! The agents: the real state machines, with a watch on the JobSet that lags, and reports that get lost. Some know a relay
//! beside: [`super::streams`].

use std::ops::{Deref, DerefMut};

use jobset_agent::channels::ChannelInput;
use jobset_agent::decide::{Input, Output};
use jobset_api::agent::DEFAULT_EXIT_CODE;
use jobset_api::labels;
use jobset_stream::message::Report;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::cluster::SimulatedCluster;
use super::machine::SimulatedWorker;
use crate::proof::{AgentDeed, AgentProcess, AgentWait, CheckResult, check_report};

/// How long an agent waits for the stream, in milliseconds.
const STREAM_TIMEOUT: i64 = 1_000;
/// Longest delay of an annotation, in milliseconds.
const SPREAD: i64 = 5_000;

/// An agent's process, and what the simulation knows of it. Times are in milliseconds.
#[derive(Debug)]
pub(super) struct SimulatedAgent {
    process: AgentProcess,
    pub container: u32,
    pub started: Time,
    /// When it started, as it says; an older agent does not.
    pub says_start: Option<String>,
    /// The newest state of the JobSet that its watch has shown, of those that there were.
    observed: Option<usize>,
    /// The number of its connection to a relay.
    pub link: Option<u64>,
    /// The epoch in which its worker failed, and when, until it starts the next one.
    pub failed_in: Option<(i32, String)>,
    /// What it says of the worker before, beside the epoch that it has entered.
    says_last: Option<String>,
    /// Since when there are epochs that it does not know, while everybody does what there is to do.
    pub behind_since: Option<i64>,
}

/// What becomes of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stored,
    /// It was stored, and the answer got lost.
    StoredUnanswered,
    Lost,
}

impl SimulatedAgent {
    pub(super) fn new(process: AgentProcess, container: u32, started: Time, says_start: Option<String>) -> Self {
        Self {
            process,
            container,
            started,
            says_start,
            observed: None,
            link: None,
            failed_in: None,
            says_last: None,
            behind_since: None,
        }
    }

    /// What it says of this epoch over the stream.
    pub(super) fn report(&self, epoch: i32) -> Report {
        let progress = self.says_last.clone();
        Report { epoch, exit: self.failed_in.as_ref().map(exit_text), started: self.says_start.clone(), progress }
    }

    /// The supervisor is asked to end, and asks its worker to.
    pub(super) fn ask_to_end(&mut self) {
        self.process.agent.step(Input::Terminate);
    }

    /// The code with which a supervisor ends that is asked to, whose worker then exits with this one.
    pub(super) fn terminate(&mut self, worker: u8) -> Option<u8> {
        let exit = |outputs: Vec<Output>| {
            outputs.into_iter().find_map(|output| if let Output::Exit { code } = output { Some(code) } else { None })
        };
        let agent = &mut self.process.agent;
        exit(agent.step(Input::Terminate)).or_else(|| exit(agent.step(Input::WorkerExited { code: worker })))
    }
}

impl Deref for SimulatedAgent {
    type Target = AgentProcess;

    fn deref(&self) -> &AgentProcess {
        &self.process
    }
}

impl DerefMut for SimulatedAgent {
    fn deref_mut(&mut self) -> &mut AgentProcess {
        &mut self.process
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
        let input = if process.writing.is_some()
            && (fair || self.rng.u8(..3) != 0)
            && let Some(epoch) = process.take_write()
        {
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
        let failed_in = machine.agent.as_ref().and_then(|process| process.failed_in.clone());
        let started = machine.agent.as_ref().and_then(|process| process.says_start.clone());
        let last = machine.agent.as_ref().and_then(|process| process.says_last.clone());
        let is_there = self.api.pods.contains_key(&pod);
        let leaves = if self.leaves(&pod) { ", and leaves" } else { "" };
        self.trace(|| format!("agent of {pod} reports {epoch}: {fate:?}{leaves}"));
        if fate != Fate::Lost && is_there {
            check_report(&pod, epoch, self.api.synced())?;
            self.api.change_pod(&pod, |wire| {
                let annotations = wire.metadata.annotations.get_or_insert_default();
                annotations.insert(labels::EPOCH.to_owned(), epoch.to_string());
                if let Some(started) = started {
                    annotations.insert(labels::AGENT_STARTED.to_owned(), started);
                }
                if let Some(last) = last {
                    annotations.insert(labels::PROGRESS.to_owned(), last);
                }
                if let Some(failed) = &failed_in {
                    annotations.insert(labels::WORKER_EXIT.to_owned(), exit_text(failed));
                }
            });
            self.truth.reported(slot, epoch);
        }
        let answered = fate == Fate::Stored && is_there;
        let agent = self.machines.get(uid).and_then(|machine| machine.agent.as_ref());
        let answer = agent.and_then(|agent| agent.answer(epoch, answered));
        answer.map_or(Ok(()), |answer| self.happens_to_agent(uid, answer))
    }

    /// Something happens on the channels of an agent.
    pub(super) fn happens_to_agent(&mut self, uid: &str, input: ChannelInput) -> CheckResult {
        self.move_agent(uid, |process, when| process.happen(input, when))
    }

    /// Something happens to an agent beside its channels.
    pub(super) fn tell_agent(&mut self, uid: &str, input: Input) -> CheckResult {
        self.move_agent(uid, |process, when| process.tell(input, when))
    }

    fn move_agent(
        &mut self,
        uid: &str,
        step: impl FnOnce(&mut AgentProcess, &mut dyn FnMut(AgentWait) -> i64) -> Vec<AgentDeed>,
    ) -> CheckResult {
        let (clock, rng) = (self.clock, &mut self.network.rng);
        let Some(agent) = self.machines.get_mut(uid).and_then(|machine| machine.agent.as_mut()) else {
            return Ok(());
        };
        let before = agent.process.clone();
        let deeds = step(agent, &mut |wait| {
            clock
                + match wait {
                    AgentWait::Stream => STREAM_TIMEOUT,
                    AgentWait::Annotation => rng.i64(0..SPREAD),
                    AgentWait::Timer(wait) => i64::try_from(wait.as_millis()).unwrap_or(i64::MAX),
                }
        });
        // Agents of a hostile relay connect, watch and connect again.
        let has_changed = |now: &AgentProcess| {
            (&before.agent, before.writing, before.write_due) != (&now.agent, now.writing, now.write_due)
        };
        let watches = deeds.contains(&AgentDeed::Watch);
        self.worked |= !self.network.hostility.is_on() || watches || has_changed(&agent.process);
        deeds.into_iter().try_for_each(|deed| self.carry_out_deed(uid, deed))
    }

    fn carry_out_deed(&mut self, uid: &str, deed: AgentDeed) -> CheckResult {
        let now = self.now();
        let last = if let AgentDeed::Enter(epoch) = deed { self.last_step(uid, epoch) } else { None };
        let Some(machine) = self.machines.get_mut(uid) else { return Ok(()) };
        let Some(agent) = &mut machine.agent else { return Ok(()) };
        match deed {
            AgentDeed::Enter(epoch) => {
                machine.epoch = Some(epoch);
                self.stalls.say_with(uid, last.as_deref());
                agent.says_last = last;
            }
            AgentDeed::Watch => agent.observed = None,
            AgentDeed::StopWatch => {}
            AgentDeed::Send(epoch) => self.network.send(agent.link, agent.report(epoch)),
            AgentDeed::Lift(epoch) => {
                (agent.failed_in, agent.says_last) = (None, None);
                if machine.supervised {
                    return self.worker_starts(uid, epoch);
                }
            }
            AgentDeed::StopWorker(_) => return self.stop_supervised(uid),
            AgentDeed::Restart => {
                machine.agent_end = Some((DEFAULT_EXIT_CODE.into(), agent.started.clone(), now));
                machine.agent = None;
                machine.must_reset = true;
                machine.status_is_outdated = true;
            }
            AgentDeed::Exit(code) => {
                if machine.supervised {
                    let (container, since) = (agent.container, agent.started.clone());
                    machine.worker = SimulatedWorker::Ended { code: code.into(), container, since, at: now };
                    machine.status_is_outdated = true;
                }
                machine.agent = None;
            }
        }
        Ok(())
    }
}

/// How the worker of an epoch has failed, as the agent says it.
fn exit_text((epoch, at): &(i32, String)) -> String {
    format!(r#"{{"epoch": {epoch}, "code": 1, "finishedAt": "{at}"}}"#)
}
