//! What truly runs of a Pod on its node, and the status that its kubelet would write of it.

use jobset_objects::{
    ContainerRunning, ContainerState, ContainerTerminated, ContainerWaiting, PartialCondition, PartialContainer,
    PartialContainerStatus, PartialPodSpec, PartialPodStatus,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::agents::SimulatedAgent;
use super::api::PodObject;
use super::nodes::{Reception, Sandbox};
use super::returns::BrokenSidecar;
use super::truth::SlotId;

/// Shortest time from the end of a container to its next start, in milliseconds: what the fastest kubelet was measured to take.
const RESET: i64 = 1_600;
pub(super) const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Exit code that the kubelet gives to a container that was lost with its node.
pub(super) const LOST: i32 = 255;

/// The containers of a Pod. Of a Pod that does not restart in place, the worker alone.
// Each is true or not whatever the others are.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Default)]
pub(super) struct SimulatedMachine {
    pub pod: String,
    pub job_uid: String,
    pub index: i32,
    pub node: String,
    pub has_agent: bool,
    /// The agent is the parent of the worker, in one container with it.
    pub supervised: bool,
    /// The supervisor has asked the worker to end.
    pub stopping: bool,
    /// The Pod has no node yet: nothing runs, and no kubelet knows of it.
    pub waits_for_node: bool,
    /// The node is dead: nothing runs, and no status says so.
    pub lost: bool,
    /// What its kubelet has made of it when it got to know it.
    pub reception: Option<Reception>,
    pub sandbox: Sandbox,
    /// Its kubelet starts none of its containers any more.
    pub is_given_up: bool,
    /// A sidecar beside the agent that does not start again.
    pub broken_sidecar: Option<BrokenSidecar>,
    pub agent: Option<SimulatedAgent>,
    pub worker: SimulatedWorker,
    /// A container has ended in a way that restarts them all.
    pub must_reset: bool,
    /// All containers are being restarted.
    pub resetting: bool,
    /// When the kubelet is able to start the first of them, in milliseconds.
    pub resettled_at: i64,
    /// Exit code, begin and end of an agent that has had its Pod restarted, or was lost with its node.
    pub agent_end: Option<(i32, Time, Time)>,
    /// Whether the Pod has succeeded, once it has ended.
    pub ended: Option<bool>,
    pub agent_restarts: i32,
    pub worker_restarts: i32,
    /// Newest epoch in which its worker was started.
    pub last_run: Option<i32>,
    /// Newest epoch that its agent has entered.
    pub epoch: Option<i32>,
    /// Containers that were started.
    pub started: u32,
    /// The status in the API server is outdated.
    pub status_is_outdated: bool,
    /// When its worker ends that was asked to go, in milliseconds.
    pub ends_at: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub(super) enum SimulatedWorker {
    #[default]
    NotYet,
    Runs {
        epoch: Option<i32>,
        container: u32,
        since: Time,
    },
    Ended {
        code: i32,
        container: u32,
        since: Time,
        at: Time,
    },
}

impl SimulatedMachine {
    pub(super) fn new(name: &str, pod: &PodObject, job_uid: &str) -> Self {
        let has_sidecar = !pod.wire.spec.init_containers.is_empty();
        let has_rules = pod.wire.spec.containers.iter().any(|it| !it.restart_policy_rules.is_empty());
        Self {
            has_agent: has_sidecar || has_rules,
            supervised: has_rules && !has_sidecar,
            pod: name.to_owned(),
            job_uid: job_uid.to_owned(),
            index: pod.index,
            node: pod.wire.spec.node_name.clone().unwrap_or_default(),
            status_is_outdated: true,
            ..Self::default()
        }
    }

    /// Number of the next container.
    pub(super) fn next_container(&mut self) -> u32 {
        self.started += 1;
        self.started
    }

    pub(super) fn slot(&self) -> SlotId {
        (self.job_uid.clone(), self.index)
    }

    pub(super) fn is_of(&self, slot: &SlotId) -> bool {
        (&self.job_uid, self.index) == (&slot.0, slot.1)
    }

    pub(super) fn runs(&self) -> bool {
        matches!(self.worker, SimulatedWorker::Runs { .. })
    }

    /// The epoch of the worker that runs.
    pub(super) fn runs_in(&self) -> Option<i32> {
        match self.worker {
            SimulatedWorker::Runs { epoch, .. } => epoch,
            _ => None,
        }
    }

    /// Whether its worker has exited 0, and nothing has started it again.
    pub(super) fn has_done_its_work(&self) -> bool {
        self.ended == Some(true) || matches!(self.worker, SimulatedWorker::Ended { code: 0, .. })
    }

    /// When its worker has ended.
    pub(super) fn ended_at(&self) -> Option<&Time> {
        match &self.worker {
            SimulatedWorker::Ended { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Ends the worker, if it runs.
    pub(super) fn end_worker(&mut self, code: i32, now: &Time) {
        if let SimulatedWorker::Runs { container, since, .. } = &self.worker {
            let (container, since) = (*container, since.clone());
            self.worker = SimulatedWorker::Ended { code, container, since, at: now.clone() };
            self.status_is_outdated = true;
        }
    }

    /// All containers go, to be started again.
    pub(super) fn reset(&mut self, clock: i64) {
        (self.agent, self.agent_end) = (None, None);
        self.resettled_at = clock + RESET;
        self.worker = SimulatedWorker::NotYet;
        (self.must_reset, self.stopping) = (false, false);
        if !self.supervised {
            self.resetting = true;
            self.agent_restarts += 1;
        }
        if let Some(sidecar) = &mut self.broken_sidecar {
            sidecar.has_restarted = true;
        }
        self.worker_restarts += 1;
        self.status_is_outdated = true;
    }

    pub(super) fn end(&mut self, well: bool) {
        self.agent = None;
        self.must_reset = false;
        self.resetting = false;
        self.ended = Some(well);
        self.status_is_outdated = true;
    }

    /// The status as the kubelet sees it. The condition of a disruption is the control plane's, and stays.
    pub(super) fn status(&self, stored: &PartialPodStatus) -> PartialPodStatus {
        let mut conditions: Vec<PartialCondition> =
            stored.conditions.iter().filter(|it| it.type_ == DISRUPTION_TARGET).cloned().collect();
        if self.has_agent && self.agent_restarts > 0 {
            let status = if self.resetting { "True" } else { "False" };
            conditions.push(condition("AllContainersRestarting", status, "", ""));
        }
        if let Some(refused) = self.status_of_refused(&conditions) {
            return refused;
        }
        conditions.push(self.sandbox.condition());
        let phase = match (self.ended, &self.worker) {
            (Some(true), _) => "Succeeded",
            (Some(false), _) => "Failed",
            (None, SimulatedWorker::NotYet) if !self.supervised || self.agent.is_none() => "Pending",
            (None, _) => "Running",
        };
        PartialPodStatus {
            phase: phase.to_owned(),
            conditions,
            init_container_statuses: self.init_statuses(),
            container_statuses: vec![self.worker_status()],
            ..PartialPodStatus::default()
        }
    }

    /// Those of its init containers and sidecars, in the order in which they start.
    fn init_statuses(&self) -> Vec<PartialContainerStatus> {
        let agent = (self.has_agent && !self.supervised).then(|| self.agent_status());
        let sidecar = self.broken_sidecar.as_ref().map(|sidecar| (sidecar.comes_first, sidecar.status()));
        match sidecar {
            Some((true, sidecar)) => [sidecar].into_iter().chain(agent).collect(),
            Some((false, sidecar)) => agent.into_iter().chain([sidecar]).collect(),
            None => self.failed_init_status().into_iter().chain(agent).collect(),
        }
    }

    fn agent_status(&self) -> PartialContainerStatus {
        let agent = self.agent.as_ref();
        let state = match (agent, &self.agent_end) {
            (Some(agent), _) => running(&agent.started),
            (None, Some((code, since, at))) => terminated(*code, since, at),
            (None, None) => waiting("PodInitializing"),
        };
        container_status("agent", agent.map_or(0, |agent| agent.container), self.agent_restarts, state)
    }

    fn worker_status(&self) -> PartialContainerStatus {
        let supervisor = self.agent.as_ref().filter(|_| self.supervised);
        let (container, state) = match (&self.worker, supervisor) {
            // The container of a supervisor runs, whatever its worker does.
            (_, Some(agent)) => (agent.container, running(&agent.started)),
            (SimulatedWorker::NotYet, _) => {
                (0, waiting(if self.supervised { "ContainerCreating" } else { "PodInitializing" }))
            }
            (SimulatedWorker::Runs { container, since, .. }, _) => (*container, running(since)),
            (SimulatedWorker::Ended { code, container, since, at }, _) => (*container, terminated(*code, since, at)),
        };
        container_status("worker", container, self.worker_restarts, state)
    }
}

fn running(since: &Time) -> ContainerState {
    let running = ContainerRunning { started_at: Some(since.clone()) };
    ContainerState { running: Some(running), ..ContainerState::default() }
}

pub(super) fn waiting(reason: &str) -> ContainerState {
    let waiting = ContainerWaiting { reason: reason.to_owned(), message: String::new() };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

pub(super) fn terminated(code: i32, since: &Time, at: &Time) -> ContainerState {
    let end = ContainerTerminated {
        exit_code: code,
        reason: match code {
            0 => "Completed",
            LOST => "Unknown",
            _ => "Error",
        }
        .to_owned(),
        message: String::new(),
        started_at: Some(since.clone()),
        finished_at: Some(at.clone()),
    };
    ContainerState { terminated: Some(end), ..ContainerState::default() }
}

pub(super) fn container_status(
    name: &str,
    container: u32,
    restart_count: i32,
    state: ContainerState,
) -> PartialContainerStatus {
    PartialContainerStatus {
        name: name.to_owned(),
        container_id: if container == 0 { String::new() } else { format!("{name}-{container}") },
        restart_count,
        state,
        ..PartialContainerStatus::default()
    }
}

pub(super) fn condition(type_: &str, status: &str, reason: &str, message: &str) -> PartialCondition {
    PartialCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..PartialCondition::default()
    }
}

/// The specification of a Job's Pods.
pub(super) fn specify(spec: &mut PartialPodSpec, job: &Job) {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    spec.restart_policy = pod.and_then(|pod| pod.restart_policy.clone()).unwrap_or_default();
    let container = |it: &k8s_openapi::api::core::v1::Container| PartialContainer {
        name: it.name.clone(),
        restart_policy: it.restart_policy.clone(),
        restart_policy_rules: it.restart_policy_rules.clone().unwrap_or_default(),
    };
    spec.containers = pod.iter().flat_map(|pod| &pod.containers).map(container).collect();
    spec.init_containers = pod.iter().flat_map(|pod| pod.init_containers.iter().flatten()).map(container).collect();
}

/// Whether the API server shows the end of this Pod.
pub(super) fn has_ended(pod: &PodObject) -> bool {
    pod.wire.has_ended()
}

pub(super) fn is_going(pod: &PodObject) -> bool {
    pod.wire.metadata.deletion_timestamp.is_some()
}
