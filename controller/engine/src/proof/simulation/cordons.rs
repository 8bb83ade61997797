//! Nodes that are cordoned, and nodes that are lost for good: who leaves them, who is given up, and what that costs.
//!
//! In a third of the lives, somebody cordons nodes, several at once, whatever the JobSet says of that. In a quarter of the lives that
//! restart in place, the JobSet gives up Pods of lost nodes: then no control plane does, and a node may come back at any time.

use std::collections::BTreeMap;

use fastrand::Rng;
use jobset_api::{JobSet, JobSetStatus, LeaveCordoned, conditions, event, labels};
use jobset_objects::{NodeTaint, PartialNodeSpec};
use jobset_rules::{Action, PodDeletion};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::cluster::{SimulatedCluster, pick};
use super::jobs::finished;
use super::machine::{SimulatedMachine, has_ended};
use super::scenario::Scenario;
use super::slots::is_specified;
use crate::proof::{CheckResult, Property, ensure};

/// Lives in which nodes are cordoned.
const LIVES: u8 = 3;
/// Lives that give up Pods of lost nodes.
const LIVES_THAT_GIVE_UP: u8 = 4;
/// Steps in which nodes are expected to be cordoned once, or uncordoned.
const STEPS: u32 = 60;
/// How long a node is unreachable until its Pods are given up.
const LOST_AFTER: [&str; 3] = ["10s", "30s", "2m"];
/// Shortest time between two restarts for the sake of cordoned nodes, as the controller limits them.
const COOL_DOWN: SignedDuration = SignedDuration::from_mins(10);

#[derive(Debug)]
pub(super) struct Cordons {
    rng: Rng,
    is_on: bool,
    mode: LeaveCordoned,
    /// Whether Pods of lost nodes are given up by the controller, and by nobody else.
    pub gives_up: bool,
    /// The nodes that are cordoned, and since when.
    cordoned: BTreeMap<String, Time>,
    /// The nodes that are unreachable, and since when.
    unreachable: BTreeMap<String, Time>,
    /// When Pods last left cordoned nodes.
    last_left: Option<Timestamp>,
}

impl Cordons {
    /// Draws what the JobSet says of cordoned and of lost nodes.
    pub(super) fn draw(seed: u64, scenario: &mut Scenario) -> Self {
        let mut rng = Rng::with_seed(!seed.rotate_left(41));
        let is_on = rng.u8(..LIVES) == 0;
        let modes = [LeaveCordoned::Never, LeaveCordoned::AtNextRestart, LeaveCordoned::Now, LeaveCordoned::Now];
        let mode = if scenario.in_place() { modes[rng.usize(..modes.len())] } else { LeaveCordoned::Never };
        let gives_up = rng.u8(..LIVES_THAT_GIVE_UP) == 0;
        let annotations = scenario.jobset.metadata.annotations.get_or_insert_default();
        if is_on && mode != LeaveCordoned::Never {
            annotations.insert(labels::LEAVE_CORDONED.to_owned(), format!("{mode:?}"));
        }
        if gives_up {
            let after = LOST_AFTER[rng.usize(..LOST_AFTER.len())];
            annotations.insert(labels::NODE_LOST_AFTER.to_owned(), after.to_owned());
        }
        Self { rng, is_on, mode, gives_up, cordoned: BTreeMap::new(), unreachable: BTreeMap::new(), last_left: None }
    }

    /// What the object of this node says of it.
    pub(super) fn spec(&self, node: &str) -> PartialNodeSpec {
        let taint = |key: &str, since: &Time| NodeTaint { key: key.to_owned(), time_added: Some(since.clone()) };
        let cordoned = self.cordoned.get(node);
        let unreachable = self.unreachable.get(node).map(|since| taint("node.kubernetes.io/unreachable", since));
        let taints = cordoned.map(|since| taint("node.kubernetes.io/unschedulable", since)).into_iter();
        PartialNodeSpec { unschedulable: cordoned.is_some(), taints: taints.chain(unreachable).collect() }
    }
}

impl SimulatedCluster {
    pub(super) fn step_cordons(&mut self) {
        if self.cordons.is_on && self.cordons.rng.u32(..STEPS) == 0 {
            if self.cordons.rng.u8(..3) == 0 { self.uncordon() } else { self.cordon() }
        }
        if self.cordons.gives_up && self.cordons.rng.u32(..STEPS) == 0 {
            self.come_back();
        }
    }

    fn cordon(&mut self) {
        let now = self.now();
        for _ in 0..self.cordons.rng.usize(1..=2) {
            // A Pod that waits for a node is shown on one, where it is not.
            let waits = |node: &String| self.machines.values().any(|it| it.waits_for_node && it.node == *node);
            let nodes = self.machines.values().map(|machine| machine.node.clone());
            let nodes: Vec<String> = nodes.filter(|node| !waits(node)).collect();
            let Some(node) = pick(&mut self.cordons.rng, nodes.iter()) else { return };
            self.trace(|| format!("{node} is cordoned"));
            self.cordons.cordoned.entry(node.clone()).or_insert_with(|| now.clone());
            self.show_node(&node);
        }
    }

    fn uncordon(&mut self) {
        let Some(node) = pick(&mut self.cordons.rng, self.cordons.cordoned.keys()) else { return };
        self.trace(|| format!("{node} is uncordoned"));
        self.cordons.cordoned.remove(&node);
        self.show_node(&node);
    }

    /// A node where the scheduler puts a new Pod: the given one, unless it is cordoned. There are others that nobody avoids.
    pub(super) fn beside_cordons(&self, node: String) -> String {
        if !self.cordons.cordoned.contains_key(&node) {
            return node;
        }
        let avoided = self.api.status().avoided_nodes;
        let is_free = |node: &String| {
            !self.cordons.cordoned.contains_key(node) && avoided.iter().all(|avoided| avoided.node != *node)
        };
        let taken = self.cordons.cordoned.len() + avoided.len();
        (0..=taken).map(|number| format!("{node}-{number}")).find(is_free).unwrap_or(node)
    }

    /// The control plane notices that a node is dead, where it leaves its Pods to the controller.
    pub(super) fn taint(&mut self, node: &str) {
        if self.cordons.gives_up {
            let now = self.now();
            self.cordons.unreachable.entry(node.to_owned()).or_insert(now);
        }
    }

    fn come_back(&mut self) {
        if let Some(node) = pick(&mut self.cordons.rng, self.cordons.unreachable.keys()) {
            self.restart_dead_node(&node);
        }
    }

    /// A dead node restarts, if it is one: what is left of its Pods starts again. No new Pod gets there before.
    pub(super) fn restart_dead_node(&mut self, node: &str) {
        if self.cordons.unreachable.remove(node).is_none() {
            return;
        }
        self.trace(|| format!("{node} comes back"));
        let (now, fatal) = (self.now(), self.scenario.has_fatal_code);
        let is_back = |machine: &SimulatedMachine| machine.lost && machine.node == node;
        let back: Vec<String> =
            self.machines.iter().filter(|(_, it)| is_back(it)).map(|(uid, _)| uid.clone()).collect();
        for uid in back {
            self.note_fault(&uid);
            if let Some(machine) = self.machines.get_mut(&uid) {
                machine.lost = false;
                machine.lose_sandbox(&now, fatal);
            }
        }
        self.set_ready(node, true);
        self.show_node(node);
    }

    /// What the controller does to a Pod of a lost node: it is failed, and deleted without grace.
    pub(super) fn give_up_pod(&mut self, name: &str, uid: &str) {
        let now = self.now();
        let is_its = |it: &&super::api::PodObject| it.wire.metadata.uid.as_deref() == Some(uid);
        let Some(pod) = self.api.pods.get(name).filter(is_its) else { return };
        let ended = has_ended(pod);
        self.trace(|| format!("{name} is given up"));
        if !ended {
            self.disrupt(name, event::NODE_LOST);
            self.api.change_pod(name, |wire| "Failed".clone_into(&mut wire.status.phase));
        }
        self.api.delete_pod(name, &now);
        self.api.change_pod(name, |wire| wire.metadata.deletion_grace_period_seconds = Some(0));
        self.reap(name);
        self.worked = true;
    }

    /// Whether the JobSet is stored as it was when this was decided.
    pub(super) fn is_up_to_date(&self, base: &JobSet) -> bool {
        self.api.jobset.metadata.resource_version == base.metadata.resource_version
    }

    /// Nobody leaves a node that is not cordoned, or without being asked to; nobody is given up whose node is there.
    pub(super) fn check_planned(&self, action: &Action) -> CheckResult {
        let Action::DeletePod { name, uid, reason } = action else { return Ok(()) };
        let Some(node) = self.machines.get(uid).map(|machine| &machine.node) else { return Ok(()) };
        let holds = match reason {
            PodDeletion::LeavesCordoned => {
                self.cordons.mode != LeaveCordoned::Never && self.cordons.cordoned.contains_key(node)
            }
            PodDeletion::NodeLost => {
                let given_up = self.api.pods.get(name).is_none_or(has_ended);
                self.cordons.gives_up && (self.cordons.unreachable.contains_key(node) || given_up)
            }
            _ => true,
        };
        ensure(holds, Property::HealthyPodsStay, || format!("{name} on {node} is deleted: {reason:?}"))
    }

    /// A Pod is given up only once the loss of its worker is stored: a leader that follows could not know of it.
    pub(super) fn check_loss(&self, action: &Action, base: &JobSet) -> CheckResult {
        let Action::DeletePod { name, uid, reason: PodDeletion::NodeLost } = action else { return Ok(()) };
        let (Some(machine), Some(pod)) = (self.machines.get(uid), self.api.pods.get(name)) else { return Ok(()) };
        let status = self.api.status();
        let runs = machine.epoch == Some(status.synced_epoch) && status.deprecated_epoch < status.synced_epoch;
        let job = self.api.jobs.get(&pod.job).filter(|job| job.job.metadata.deletion_timestamp.is_none());
        let is_open = job.is_some_and(|job| finished(&job.job).is_none() && !job.ends());
        // One outside of the size that was specified when that was decided leaves by a shrink, or has left before the epoch began.
        let is_member = is_open && self.is_recorded(&pod.job, pod.index) && is_specified(base, &pod.job, pod.index);
        let matters = runs && is_member && !self.api.jobset.spec.is_suspended() && status.terminal_state.is_empty();
        ensure(!matters || has_ended(pod), Property::LossesFirst, || {
            format!("{name} is given up in epoch {}, and its loss is not stored", status.synced_epoch)
        })
    }

    /// Whether this write begins a restart for the sake of cordoned nodes.
    pub(super) fn leaves_cordoned(before: &JobSetStatus, after: &JobSetStatus) -> bool {
        let has_left =
            |status: &JobSetStatus| conditions::find_true(&status.conditions, conditions::LEFT_CORDONED_NODES).cloned();
        has_left(after).is_some() && has_left(before) != has_left(after)
    }

    /// Pods leave cordoned nodes by one restart that does not count, and not again within the cool-down.
    pub(super) fn check_leaving_cordoned(&mut self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        if !Self::leaves_cordoned(before, after) {
            return Ok(());
        }
        let restarts = after.group_restarts - before.group_restarts;
        let counted = after.restarts_count_towards_max - before.restarts_count_towards_max;
        let runs = before.synced_epoch > 0 && before.deprecated_epoch < before.synced_epoch;
        let is_asked = self.cordons.is_on && self.cordons.mode == LeaveCordoned::Now;
        ensure(is_asked && runs && (restarts, counted) == (1, 0), Property::CordonsAreFree, || {
            format!("Pods leave cordoned nodes: {restarts} restarts more, {counted} counted")
        })?;
        let condition = conditions::find_true(&after.conditions, conditions::LEFT_CORDONED_NODES);
        let Some(now) = condition.map(|it| it.last_transition_time.0) else { return Ok(()) };
        let last = self.cordons.last_left.replace(now);
        ensure(last.is_none_or(|last| now.duration_since(last) >= COOL_DOWN), Property::CordonsAreFree, || {
            format!("Pods leave cordoned nodes at {last:?} and {now}")
        })
    }
}
