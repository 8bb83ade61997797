//! The kubelets: what they do to containers, and when they say so. A status that is not written before the next change is
//! never observed.

use jobset_objects::PartialCondition;

use super::agents::SimulatedAgent;
use super::api::PodObject;
use super::cluster::SimulatedCluster;
use super::machine::{DISRUPTION_TARGET, SimulatedMachine, SimulatedWorker, condition, has_ended, is_going};
use super::scenario::{FATAL, UID};
use crate::proof::{AgentProcess, CheckResult, Property, Violation, check_start};

/// Exit code of a worker that is ended by SIGTERM.
pub(super) const TERMINATED: i32 = 143;
/// Longest time that a slow worker takes to end, in milliseconds.
const LONGEST_END: i64 = 20_000;

impl SimulatedCluster {
    pub(super) fn machine_of(&self, pod: &str) -> Option<&SimulatedMachine> {
        self.machines.get(&format!("uid-of-{pod}"))
    }

    /// One thing that a kubelet does to the containers of a Pod, if there is one to do.
    pub(super) fn step_kubelet(&mut self, uid: &str) -> CheckResult {
        if self.waits_for_node(uid) {
            return Ok(());
        }
        let Some(machine) = self.machines.get(uid).filter(|machine| !machine.lost && machine.ended.is_none()) else {
            self.machines.retain(|other, machine| other != uid || self.api.pods.contains_key(&machine.pod));
            return Ok(());
        };
        let name = machine.pod.clone();
        let Some(pod) = self.api.pods.get(&name) else {
            self.trace(|| format!("what is left of {name} is stopped"));
            self.machines.remove(uid);
            self.worked = true;
            return Ok(());
        };
        if is_going(pod) {
            self.stop(uid);
            return Ok(());
        }
        if self.receive(uid) {
            return Ok(());
        }
        let clock = self.clock;
        let Some(machine) = self.machines.get_mut(uid).filter(|machine| !machine.is_given_up) else { return Ok(()) };
        if machine.must_reset {
            // An agent that was slow to be taken down may have entered another epoch than the one in which it was struck.
            let slot = machine.slot();
            self.truth.taken_along(slot, machine.agent.as_ref().and_then(|agent| agent.entered), false);
            machine.reset(clock);
            self.worked = true;
            self.trace(|| format!("{name}: all containers restart"));
        } else if machine.supervised && machine.agent.is_some() {
            return self.step_supervisor(uid);
        } else if let SimulatedWorker::Ended { code, .. } = machine.worker {
            if machine.has_agent && code != 0 && !(code == FATAL && self.scenario.has_fatal_code) {
                machine.must_reset = true;
            } else {
                machine.end(code == 0);
            }
            self.worked = true;
        } else if machine.has_agent && machine.agent.is_none() {
            if machine.resettled_at > clock {
                self.worked = true;
            } else if !self.is_blocked_by_sidecar(uid, true) {
                self.worked = true;
                self.start_agent(uid);
            }
        } else if !machine.runs() {
            return self.start_worker(uid);
        }
        Ok(())
    }

    /// The container of an agent starts.
    pub(super) fn start_agent(&mut self, uid: &str) {
        let process = AgentProcess::new(UID, self.scenario.mode(), self.network.is_on, self.broken);
        let now = self.now();
        let says_start = self.says_start.then(|| self.precise_now());
        let Some(machine) = self.machines.get_mut(uid) else { return };
        machine.resetting = false;
        machine.make_sandbox(&now);
        let container = machine.next_container();
        machine.agent = Some(SimulatedAgent::new(process, container, now, says_start));
        machine.status_is_outdated = true;
    }

    /// Whether the Pod has no node. One that is asked to go then is gone at once.
    fn waits_for_node(&mut self, uid: &str) -> bool {
        let Some(pod) = self.machines.get(uid).filter(|it| it.waits_for_node).map(|it| it.pod.clone()) else {
            return false;
        };
        if self.api.pods.get(&pod).is_none_or(is_going) {
            self.api.remove_pod(&pod);
            self.machines.remove(uid);
            self.worked = true;
        }
        true
    }

    fn start_worker(&mut self, uid: &str) -> CheckResult {
        let Some(machine) = self.machines.get(uid) else { return Ok(()) };
        if machine.agent.as_ref().is_some_and(|agent| !agent.is_lifted()) {
            return Ok(());
        }
        let epoch = machine.agent.as_ref().and_then(|agent| agent.entered);
        if self.is_blocked_by_sidecar(uid, false) {
            return Ok(());
        }
        self.worker_starts(uid, epoch)
    }

    pub(super) fn worker_starts(&mut self, uid: &str, epoch: Option<i32>) -> CheckResult {
        let (now, synced) = (self.now(), self.api.synced());
        let Some(machine) = self.machines.get_mut(uid) else { return Ok(()) };
        if machine.runs() {
            let message = format!("a second worker of {} starts in epoch {epoch:?} beside the first", machine.pod);
            return Err(Violation::new(Property::Barrier, message));
        }
        let last = std::mem::replace(&mut machine.last_run, epoch);
        machine.make_sandbox(&now);
        let container = machine.next_container();
        machine.worker = SimulatedWorker::Runs { epoch, container, since: now };
        machine.status_is_outdated = true;
        let pod = machine.pod.clone();
        self.worked = true;
        self.trace(|| format!("worker of {pod} starts in epoch {epoch:?}"));
        self.tell_of_progress(uid, &pod, epoch);
        epoch.map_or(Ok(()), |epoch| check_start(&pod, epoch, last, synced))
    }

    /// The Pod was asked to go.
    fn stop(&mut self, uid: &str) {
        if self.ends_later(uid) {
            return;
        }
        let now = self.now();
        let code = if self.scenario.ends_well_when_asked { 0 } else { TERMINATED };
        let Some(machine) = self.machines.get_mut(uid) else { return };
        let (slot, entered) = (machine.slot(), machine.agent.as_ref().and_then(|it| it.entered));
        let disrupted = |pod: &PodObject| pod.wire.status.conditions.iter().any(|it| it.type_ == DISRUPTION_TARGET);
        if self.api.pods.get(&machine.pod).is_some_and(disrupted) {
            self.truth.taken_along(slot, entered, true);
        } else {
            self.truth.asked_to_go(entered);
        }
        machine.end_worker(code, &now);
        if machine.supervised
            && let Some(process) = &mut machine.agent
        {
            // Whatever its worker says, the supervisor says that it was asked to end.
            let code = process.terminate(u8::try_from(code).unwrap_or(u8::MAX)).map_or(TERMINATED, i32::from);
            let since = process.started.clone();
            machine.worker = SimulatedWorker::Ended { code, container: process.container, since, at: now };
        }
        let well = matches!(machine.worker, SimulatedWorker::Ended { code: 0, .. });
        machine.end(well);
        let name = machine.pod.clone();
        self.worked = true;
        self.trace(|| format!("{name} is stopped{}", if well { ", its worker exits 0" } else { "" }));
    }

    /// Whether the worker takes its time to end, now that it was asked to.
    fn ends_later(&mut self, uid: &str) -> bool {
        let clock = self.clock;
        let Some(machine) = self.machines.get_mut(uid).filter(|it| self.scenario.ends_slowly && it.runs()) else {
            return false;
        };
        if machine.ends_at.is_none() {
            let wait = self.extra.i64(0..LONGEST_END);
            machine.ends_at = Some(clock + wait);
            if let Some(process) = machine.agent.as_mut().filter(|_| machine.supervised) {
                process.ask_to_end();
            }
        }
        let (pod, is_later) = (machine.pod.clone(), machine.ends_at > Some(clock));
        if is_later {
            self.trace(|| format!("{pod} takes its time to end"));
        }
        is_later
    }

    /// The kubelet writes the status of a Pod as it is now.
    pub(super) fn write_pod_status(&mut self, uid: &str) {
        let says = |it: &&mut SimulatedMachine| it.status_is_outdated && !it.lost && !it.waits_for_node;
        let Some(machine) = self.machines.get_mut(uid).filter(says) else {
            return;
        };
        machine.status_is_outdated = false;
        let name = machine.pod.clone();
        let Some(pod) = self.api.pods.get(&name) else { return };
        let status = machine.status(&pod.wire.status);
        self.trace(|| format!("status of {name}: {} {}", status.phase, brief(&status)));
        self.api.change_pod(&name, |wire| wire.status = status);
        self.note_success(uid);
        self.worked = true;
        self.reap(&name);
    }

    /// What the control plane does about a Pod whose node is dead: first it is asked to go, then it is failed.
    pub(super) fn give_up_on(&mut self, uid: &str) {
        let Some(machine) = self.machines.get(uid).filter(|machine| machine.lost) else { return };
        let name = machine.pod.clone();
        let Some(pod) = self.api.pods.get(&name) else {
            self.machines.remove(uid);
            return;
        };
        if has_ended(pod) {
            return self.reap(&name);
        }
        let (going, now) = (is_going(pod), self.now());
        let is_finished = !self.api.status().terminal_state.is_empty();
        if going && self.cordons.gives_up && !is_finished {
            // Nobody else does, as long as there is a Node object.
            return;
        }
        self.trace(|| format!("{name} is {}", if going { "failed by the Pod garbage collector" } else { "tainted" }));
        if going {
            self.api.change_pod(&name, |wire| "Failed".clone_into(&mut wire.status.phase));
            self.reap(&name);
        } else {
            self.disrupt(&name, "DeletionByTaintManager");
            self.api.delete_pod(&name, &now);
        }
        self.worked = true;
    }

    pub(super) fn disrupt(&mut self, pod: &str, reason: &str) {
        let now = self.now();
        self.api.change_pod(pod, |wire| {
            let disruption = PartialCondition {
                last_transition_time: Some(now),
                ..condition(DISRUPTION_TARGET, "True", reason, "")
            };
            wire.status.conditions.retain(|it| it.type_ != disruption.type_);
            wire.status.conditions.push(disruption);
        });
    }

    /// Pods on which a fault can strike: they neither go nor have ended.
    pub(super) fn standing_pods(&self) -> Vec<String> {
        let stands = |pod: &PodObject| !is_going(pod) && !has_ended(pod);
        self.api.pods.iter().filter(|(_, pod)| stands(pod)).map(|(name, _)| name.clone()).collect()
    }
}

fn brief(status: &jobset_objects::PartialPodStatus) -> String {
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses);
    let each: Vec<String> = containers
        .map(|it| match (&it.state.running, &it.state.terminated) {
            (Some(_), _) => format!("{} runs, {} restarts", it.container_id, it.restart_count),
            (_, Some(end)) => format!("{} exited {}", it.container_id, end.exit_code),
            _ => format!("{} waits, {} restarts", it.name, it.restart_count),
        })
        .collect();
    let conditions = status.conditions.iter().filter(|it| it.status == "True").map(|it| it.type_.as_str());
    each.into_iter().chain(conditions.map(str::to_owned)).collect::<Vec<_>>().join(", ")
}
