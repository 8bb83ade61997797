//! What nodes do to whole Pods: they refuse them, or start again without the containers that ran. The controller's watch on nodes
//! shows at once whether they are ready.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use jobset_objects::{PartialCondition, PartialContainerStatus, PartialNode, PartialPodStatus};
use jobset_store::{Key, View, WatchEvent};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::cluster::{SimulatedCluster, pick};
use super::machine::{LOST, SimulatedMachine, SimulatedWorker, condition, container_status, terminated};
use super::scenario::FATAL;

/// Lives in which nodes do so.
const LIVES: u64 = 3;
/// Steps in which one such fault is expected.
const STEPS: u32 = 70;
/// Most Pods in a row that fare alike when they are new to a kubelet.
const IN_A_ROW: u8 = 5;
/// Condition of a Pod that has a sandbox with an address.
const READY_TO_START: &str = "PodReadyToStartContainers";

/// What a kubelet makes of a Pod that is new to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reception {
    Admitted,
    Refused,
    /// Its first init container fails, at this time.
    Failed(Time),
}

/// The sandbox of a Pod, which has its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Sandbox {
    #[default]
    NotYet,
    /// Since when it is there.
    There(Time),
    /// Its node has restarted. Since when it is not there.
    Lost(Time),
}

/// What goes wrong on nodes.
#[derive(Clone, Copy, Debug)]
enum NodeFault {
    /// Pods that are new to a kubelet are refused.
    RefusesNew,
    /// Pods that are new to a kubelet fail in their first init container.
    FailsNew,
    /// A kubelet starts again, and does not admit a Pod any more that runs.
    RefusesKnown,
    /// A node restarts.
    Restarts,
    /// A sidecar does not start again once its Pod has restarted.
    BreaksSidecar,
}

/// How often each of them strikes.
const FAULTS: [NodeFault; 8] = [
    NodeFault::RefusesNew,
    NodeFault::FailsNew,
    NodeFault::RefusesKnown,
    NodeFault::Restarts,
    NodeFault::Restarts,
    NodeFault::Restarts,
    NodeFault::BreaksSidecar,
    NodeFault::BreaksSidecar,
];

#[derive(Debug)]
pub(super) struct SimulatedNodes {
    pub rng: Rng,
    /// Whether they do what this module is about.
    are_unreliable: bool,
    /// How Pods fare next that are new to a kubelet, and how many of them.
    next: Option<(NodeFault, u8)>,
    /// Each node that has a Pod, and whether it is ready.
    ready: BTreeMap<String, bool>,
}

impl SimulatedNodes {
    pub(super) fn new(seed: u64) -> Self {
        let (rng, are_unreliable) = (Rng::with_seed(seed.rotate_left(16)), seed % LIVES == 2);
        Self { rng, are_unreliable, next: None, ready: BTreeMap::new() }
    }
}

impl SimulatedCluster {
    /// A node is ready, or no longer.
    pub(super) fn set_ready(&mut self, name: &str, ready: bool) {
        if self.nodes.ready.insert(name.to_owned(), ready) != Some(ready) {
            self.show_node(name);
        }
    }

    /// Shows all nodes to a controller that begins.
    pub(super) fn show_nodes(&mut self) {
        for name in self.nodes.ready.keys().cloned().collect::<Vec<_>>() {
            self.show_node(&name);
        }
    }

    pub(super) fn show_node(&mut self, name: &str) {
        let ready = self.nodes.ready.get(name).copied().unwrap_or(false);
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let mut node = PartialNode { metadata, spec: self.cordons.spec(name), ..PartialNode::default() };
        node.status.conditions.push(condition("Ready", if ready { "True" } else { "Unknown" }, "", ""));
        let now = self.controller_now(Duration::ZERO).instant;
        self.controller.engine.apply(WatchEvent::shared(Key::of(&node), View::Node(Box::new(node))), now);
    }

    /// What happens in a step because nodes are unreliable.
    pub(super) fn step_nodes(&mut self) {
        if !self.nodes.are_unreliable || self.nodes.rng.u32(..STEPS) != 0 {
            return;
        }
        let fault = FAULTS[self.nodes.rng.usize(..FAULTS.len())];
        match fault {
            NodeFault::RefusesNew | NodeFault::FailsNew => {
                let pods = self.nodes.rng.u8(1..=IN_A_ROW);
                self.trace(|| format!("the next {pods} Pods on a node: {fault:?}"));
                self.nodes.next = Some((fault, pods));
            }
            NodeFault::RefusesKnown => self.refuse_known(),
            NodeFault::Restarts => self.restart_node(),
            NodeFault::BreaksSidecar => self.break_sidecar(),
        }
    }

    /// A kubelet gets to know a Pod. Returns whether it makes anything else of it than to start it.
    pub(super) fn receive(&mut self, uid: &str) -> bool {
        let now = self.now();
        let Some(machine) = self.machines.get_mut(uid).filter(|machine| machine.reception.is_none()) else {
            return false;
        };
        let (reception, what) = match self.nodes.next {
            Some((NodeFault::RefusesNew, _)) => (Reception::Refused, "is refused by its node"),
            Some(_) => (Reception::Failed(now), "fails in its first init container"),
            None => (Reception::Admitted, "is admitted"),
        };
        machine.reception = Some(reception);
        let Some((_, pods)) = &mut self.nodes.next else { return false };
        *pods -= 1;
        if *pods == 0 {
            self.nodes.next = None;
        }
        machine.end(false);
        let (refused, slot, pod) = (machine.is_refused(), machine.slot(), machine.pod.clone());
        if refused {
            self.truth.refusals += 1;
        } else {
            self.truth.struck(slot, None, false);
        }
        self.worked = true;
        self.note_fault(uid);
        self.trace(|| format!("{pod} {what}"));
        true
    }

    /// A kubelet that starts admits its Pods again, and forgets the containers of those that it refuses.
    fn refuse_known(&mut self) {
        let all = self.machines_where(|machine| machine.started > 0 && !machine.has_done_its_work());
        let Some(uid) = pick(&mut self.nodes.rng, all.iter()) else { return };
        self.lose_with_node(&uid, "its node refuses it after it has run");
        self.truth.refusals += 1;
        if let Some(machine) = self.machines.get_mut(&uid) {
            machine.reception = Some(Reception::Refused);
            machine.worker = SimulatedWorker::NotYet;
            machine.end(false);
        }
    }

    fn restart_node(&mut self) {
        let pods = self.machines_where(|machine| machine.reception.is_some());
        let Some(uid) = pick(&mut self.nodes.rng, pods.iter()) else { return };
        let node = self.machines[&uid].node.clone();
        self.trace(|| format!("{node} restarts"));
        let (now, fatal) = (self.now(), self.scenario.has_fatal_code);
        let is_there = |it: &SimulatedMachine| it.node == node && !it.lost && !it.waits_for_node && it.ended.is_none();
        let there: Vec<String> =
            self.machines.iter().filter(|(_, it)| is_there(it)).map(|(uid, _)| uid.clone()).collect();
        for uid in there {
            self.lose_with_node(&uid, "its node restarts");
            if let Some(machine) = self.machines.get_mut(&uid) {
                machine.lose_sandbox(&now, fatal);
            }
        }
    }

    /// Nobody's worker has failed: a failure of the Pod before its worker is none either.
    fn lose_with_node(&mut self, uid: &str, what: &str) {
        let Some(machine) = self.machines.get(uid) else { return };
        self.trace(|| format!("{}: {what}", machine.pod));
        let entered = machine.agent.as_ref().and_then(|agent| agent.entered);
        for epoch in [machine.epoch, entered] {
            self.truth.taken_along(machine.slot(), epoch, true);
        }
        self.note_fault(uid);
    }
}

impl SimulatedMachine {
    /// Its containers are gone, and so is its sandbox. The kubelet makes another one for a Pod without containers: one that
    /// never had any, and one whose rules restart them all, so that they are removed.
    pub(super) fn lose_sandbox(&mut self, now: &Time, has_fatal_code: bool) {
        if self.started == 0 {
            self.sandbox = Sandbox::NotYet;
            return;
        }
        self.sandbox = Sandbox::Lost(now.clone());
        self.status_is_outdated = true;
        let agent = self.agent.take().map(|agent| (agent.container, agent.started));
        if !self.supervised {
            // A rule of its agent, or of its worker, restarts them all.
            self.agent_end = agent.map(|(_, since)| (LOST, since, now.clone())).or(self.agent_end.take());
            self.end_worker(LOST, now);
            return;
        }
        let (container, since) = match (agent, &self.worker) {
            (Some(agent), _) => agent,
            (None, SimulatedWorker::Ended { code, .. }) => {
                // What has ended for good is no worse for it.
                self.is_given_up = *code != 0 && !(*code == FATAL && has_fatal_code);
                return;
            }
            (None, _) => (self.started, now.clone()),
        };
        (self.is_given_up, self.stopping, self.must_reset) = (true, false, false);
        self.worker = SimulatedWorker::Ended { code: LOST, container, since, at: now.clone() };
    }

    /// The kubelet is about to start a container.
    pub(super) fn make_sandbox(&mut self, now: &Time) {
        if !matches!(self.sandbox, Sandbox::There(_)) {
            self.sandbox = Sandbox::There(now.clone());
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.reception == Some(Reception::Refused)
    }

    /// The status of a Pod that its node refuses: nothing is said of its containers.
    pub(super) fn status_of_refused(&self, conditions: &[PartialCondition]) -> Option<PartialPodStatus> {
        self.is_refused().then(|| PartialPodStatus {
            phase: "Failed".to_owned(),
            reason: "UnexpectedAdmissionError".to_owned(),
            message: "Pod was rejected: no device is healthy".to_owned(),
            conditions: conditions.to_vec(),
            ..PartialPodStatus::default()
        })
    }

    /// The status of the init container in which the Pod has failed.
    pub(super) fn failed_init_status(&self) -> Option<PartialContainerStatus> {
        let Some(Reception::Failed(at)) = &self.reception else { return None };
        Some(container_status("preflight", 1, 0, terminated(1, at, at)))
    }
}

impl Sandbox {
    pub(super) fn condition(&self) -> PartialCondition {
        let (status, since) = match self {
            Self::NotYet => ("False", None),
            Self::There(since) => ("True", Some(since)),
            Self::Lost(since) => ("False", Some(since)),
        };
        PartialCondition { last_transition_time: since.cloned(), ..condition(READY_TO_START, status, "", "") }
    }
}
