//! The agents: the real state machine, with a watch on the JobSet that lags, and reports that get lost.

use jobset_agent::decide::{Agent, Input, Mode, Output};
use jobset_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::cluster::SimulatedCluster;
use super::machine::SimulatedWorker;
use super::scenario::UID;
use crate::proof::{CheckResult, Property, Violation};

/// An agent's process, from its start to its end.
#[derive(Debug)]
pub(super) struct AgentProcess {
    pub container: u32,
    pub started: Time,
    agent: Agent,
    /// The newest state of the JobSet that it has observed, of those that there were.
    observed: Option<usize>,
    /// The report that is on its way.
    reporting: Option<i32>,
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
    pub(super) fn new(container: u32, started: Time, mode: Mode) -> Self {
        let agent = Agent::new(Some(UID.to_owned()), mode);
        Self {
            container,
            started,
            agent,
            observed: None,
            reporting: None,
            timer: None,
            lifted: false,
            entered: None,
            failed_in: None,
        }
    }
}

impl AgentProcess {
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
        let Some(machine) = self.machines.get_mut(uid).filter(|machine| !machine.lost) else { return Ok(()) };
        let Some(process) = &mut machine.agent else { return Ok(()) };
        let input = if let Some(epoch) = process.reporting
            && (fair || self.rng.u8(..3) != 0)
        {
            process.reporting = None;
            return self.answer_report(uid, epoch, fair);
        } else if process.timer.is_some_and(|timer| timer <= clock) {
            process.timer = None;
            Input::Timer
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
        self.tell_agent(uid, input)
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
        let is_there = self.api.pods.contains_key(&pod);
        self.trace(|| format!("agent of {pod} reports {epoch}: {fate:?}"));
        if fate != Fate::Lost && is_there {
            if epoch > self.api.synced() + 1 {
                let message = format!("{pod} reports {epoch}, and the synced epoch is {}", self.api.synced());
                return Err(Violation::new(Property::Barrier, message));
            }
            self.api.change_pod(&pod, |wire| {
                let annotations = wire.metadata.annotations.get_or_insert_default();
                annotations.insert(labels::EPOCH.to_owned(), epoch.to_string());
                if let Some(epoch) = failed_in {
                    let exit = format!(r#"{{"epoch": {epoch}, "code": 1}}"#);
                    annotations.insert(labels::WORKER_EXIT.to_owned(), exit);
                }
            });
            self.truth.reported(slot, epoch);
        }
        let answered = fate == Fate::Stored && is_there;
        let failed = Input::ReportFailed { epoch, retry_after: None };
        self.tell_agent(uid, if answered { Input::Reported { epoch } } else { failed })
    }

    pub(super) fn tell_agent(&mut self, uid: &str, input: Input) -> CheckResult {
        let (clock, now) = (self.clock, self.now());
        let Some(machine) = self.machines.get_mut(uid) else { return Ok(()) };
        let Some(process) = &mut machine.agent else { return Ok(()) };
        let (mut starts, mut stops) = (None, false);
        for output in process.agent.step(input) {
            match output {
                Output::Report { epoch } => {
                    process.timer = None;
                    process.reporting = Some(epoch);
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
                    machine.agent = None;
                    machine.must_reset = true;
                    machine.status_is_outdated = true;
                    break;
                }
                Output::Exit { code } => {
                    if machine.supervised {
                        machine.worker =
                            SimulatedWorker::Ended { code: code.into(), container: process.container, at: now };
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
        starts.map_or(Ok(()), |epoch| self.worker_starts(uid, epoch))
    }
}
