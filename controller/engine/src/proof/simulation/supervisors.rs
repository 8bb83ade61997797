//! The supervisors: agents that are the parents of their workers, in one container with them. The real state machine says when
//! a worker starts and when it is stopped; here it does so.

use jobset_agent::decide::Input;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::agents::SimulatedAgent;
use super::cluster::SimulatedCluster;
use super::kubelets::TERMINATED;
use super::machine::{SimulatedMachine, SimulatedWorker};
use crate::proof::{CheckResult, RuleMutation};

impl SimulatedCluster {
    /// The supervisor notices that its worker has ended, or the worker does what it was asked to.
    pub(super) fn step_supervisor(&mut self, uid: &str) -> CheckResult {
        let (now, ends_well) = (self.now(), self.scenario.ends_well_when_asked);
        let failed_at = self.last_end(uid);
        let Some(machine) = self.machines.get_mut(uid) else { return Ok(()) };
        match machine.worker {
            SimulatedWorker::Ended { code, .. } => {
                machine.worker = SimulatedWorker::NotYet;
                let was_asked = std::mem::take(&mut machine.stopping);
                if let Some(process) = machine.agent.as_mut().filter(|_| !was_asked && code != 0) {
                    process.failed_in = process.entered.map(|epoch| (epoch, failed_at));
                }
                let code = u8::try_from(code).unwrap_or(u8::MAX);
                self.worked = true;
                self.tell_agent(uid, Input::WorkerExited { code })
            }
            SimulatedWorker::Runs { .. } if machine.stopping => {
                machine.end_worker(if ends_well { 0 } else { TERMINATED }, &now);
                self.worked = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The supervisor asks its worker to end.
    pub(super) fn stop_supervised(&mut self, uid: &str) -> CheckResult {
        let Some(machine) = self.machines.get_mut(uid) else { return Ok(()) };
        let waits = self.broken != Some(RuleMutation::SupervisorsDoNotWait);
        machine.stopping = waits;
        let pod = machine.pod.clone();
        self.trace(|| format!("the supervisor of {pod} stops its worker"));
        // Broken, it takes the worker to have ended, which runs on.
        if waits { Ok(()) } else { self.tell_agent(uid, Input::WorkerExited { code: 143 }) }
    }
}

impl SimulatedMachine {
    /// The supervisor is killed, and the worker with it: the container has ended.
    pub(super) fn kill_supervisor(&mut self, code: i32, now: Time) {
        let Some(process) = self.agent.take() else { return };
        let SimulatedAgent { container, started: since, .. } = process;
        self.worker = SimulatedWorker::Ended { code, container, since, at: now };
        self.status_is_outdated = true;
    }
}
