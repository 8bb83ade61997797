//! Bad nodes and bad indexes: workers fail again and again on one node, or at one index. In some lives the JobSet asks for its Pods to
//! leave such a node. The scheduler honours the preference of a new Pod, unless no other node is free, or the Pod webhook was away.

use std::collections::BTreeSet;

use fastrand::Rng;
use jobset_api::nodes::avoidance;
use jobset_api::{AvoidNodes, AvoidedNode, JobSet, JobSetStatus, NodeStrike, labels};
use jobset_objects::HOSTNAME;
use jobset_objects::PartialCondition;
use jobset_rules::{Action, PodDeletion};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::cluster::{SimulatedCluster, pick};
use super::faults::CODES;
use super::machine::{SimulatedMachine, condition, has_ended, is_going};
use super::scenario::Scenario;
use super::stalls::is_of_stall;
use crate::proof::{CheckResult, Property, RuleMutation, ensure};

/// Lives in which JobSets ask for moves.
const LIVES: u8 = 4;
/// Those of them in which a JobSet asks only when it runs.
const LATE: u8 = 6;
/// Steps in which what is bad strikes.
const STEPS: u32 = 30;
/// Steps in which an hour passes.
const HOUR: u32 = 600;
/// Pods that the webhook does not see.
const UNSEEN: u8 = 12;
const COOL_DOWN: SignedDuration = SignedDuration::from_hours(1);
const MOVE_LIMIT: SignedDuration = SignedDuration::from_mins(5);

/// What is bad, for the whole life.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BadThing {
    Node(String),
    Index(i32),
}

#[derive(Debug)]
pub(super) struct BadThings {
    rng: Rng,
    bad: Option<BadThing>,
    /// The number of failures of a JobSet that asks for moves only when it runs.
    late: Option<String>,
    /// Nodes to which Pods have come although they were avoided, and those that Pods could not leave.
    not_left: BTreeSet<String>,
    /// Job, index and node of the Pods whose workers have failed, or that their nodes have refused or lost.
    faulty: BTreeSet<(String, i32, String)>,
}

/// Lets the JobSet ask for moves in some lives.
pub(super) fn draw(rng: &mut Rng, metadata: &mut Value, spec: &mut Value) {
    if rng.u8(..LIVES) != 0 {
        return;
    }
    metadata["annotations"][labels::MOVE_AFTER_FAILURES] = json!(rng.u8(1..=3).to_string());
    if rng.u8(..4) == 0 {
        metadata["annotations"][labels::AVOID_NODES] = json!("Required");
    }
    if rng.u8(..4) == 0 {
        for group in spec["replicatedJobs"].as_array_mut().into_iter().flatten() {
            let node = format!("node-{}", rng.u8(..3));
            group["template"]["spec"]["template"]["spec"]["nodeSelector"] = json!({ HOSTNAME: node });
        }
    }
}

impl BadThings {
    /// Draws what is bad, and whether the JobSet asks for moves later.
    pub(super) fn draw(seed: u64, scenario: &mut Scenario) -> Self {
        let mut rng = Rng::with_seed(seed.rotate_left(48));
        let bad = match rng.u8(..3) {
            0 => Some(BadThing::Node(format!("node-{}", rng.u8(..3)))),
            1 => Some(BadThing::Index(rng.i32(..3))),
            _ => None,
        };
        let is_late = Rng::with_seed(seed.rotate_left(50)).u8(..LATE) == 0;
        let annotations = scenario.jobset.metadata.annotations.as_mut().filter(|_| is_late);
        let late = annotations.and_then(|annotations| annotations.remove(labels::MOVE_AFTER_FAILURES));
        Self { rng, bad, late, not_left: BTreeSet::new(), faulty: BTreeSet::new() }
    }
}

impl SimulatedCluster {
    fn asks_for_moves(&self) -> Option<usize> {
        let limit = self.api.jobset.move_after_failures().filter(|_| self.scenario.in_place())?;
        usize::try_from(limit).ok()
    }

    /// What is bad strikes, in lives that ask for moves.
    pub(super) fn step_moves(&mut self) {
        if self.moves.late.is_some() && self.moves.rng.u32(..STEPS) == 0 {
            self.ask_for_moves();
        }
        if self.asks_for_moves().is_none() {
            return;
        }
        if self.moves.rng.u32(..HOUR) == 0 {
            self.trace(|| "an hour passes".to_owned());
            self.pass(3_600_000);
        }
        let Some(bad) = self.moves.bad.clone().filter(|_| self.moves.rng.u32(..STEPS) == 0) else { return };
        let is_bad = |machine: &SimulatedMachine| match &bad {
            BadThing::Node(node) => machine.node == *node,
            BadThing::Index(index) => machine.index == *index,
        };
        let all = self.machines_where(|machine| machine.runs() && is_bad(machine));
        let Some(uid) = pick(&mut self.moves.rng, all.iter()) else { return };
        let code = CODES[self.moves.rng.usize(..CODES.len())];
        self.trace(|| format!("{uid}: {bad:?} is bad"));
        self.exit_worker(&uid, code);
    }

    fn ask_for_moves(&mut self) {
        let Some(failures) = self.moves.late.take() else { return };
        self.trace(|| format!("somebody asks for moves after {failures} failures"));
        self.api.edit(|jobset| {
            let annotations = jobset.metadata.annotations.get_or_insert_default();
            annotations.insert(labels::MOVE_AFTER_FAILURES.to_owned(), failures);
        });
    }

    /// The worker of the Pod has failed, or its node has refused or lost it.
    pub(super) fn note_fault(&mut self, uid: &str) {
        self.moves.faulty.extend(self.place_of(uid));
    }

    /// Job, index and node of a Pod.
    pub(super) fn place_of(&self, uid: &str) -> Option<(String, i32, String)> {
        let machine = self.machines.get(uid)?;
        let (job, _) = machine.pod.rsplit_once('-')?.0.rsplit_once('-')?;
        Some((job.to_owned(), machine.index, machine.node.clone()))
    }

    /// The node of a new Pod, which would be the one drawn, of three.
    pub(super) fn place(&mut self, job: &Job, drawn: u8) -> Placement {
        let lost = self.lost_nodes * 3;
        let name = |number: u8| format!("node-{}", number % 3 + lost);
        let template = job.spec.as_ref().map(|spec| &spec.template);
        let selector = template.and_then(|it| it.spec.as_ref()?.node_selector.as_ref()?.get(HOSTNAME));
        let node = selector.cloned().unwrap_or_else(|| name(drawn));
        let here = Placement { node: node.clone(), finds_none: None };
        let avoided = self.api.status().avoided_nodes;
        let is_avoided = |node: &str| avoided.iter().any(|it| it.node == node);
        if !is_avoided(&node) {
            return here;
        }
        if selector.is_some() || !template.is_some_and(is_seen) || self.moves.rng.u8(..UNSEEN) == 0 {
            self.moves.not_left.insert(node);
            return here;
        }
        if let Some(other) = (1..3).map(|more| name(drawn + more)).find(|node| !is_avoided(node) && !self.is_full) {
            self.trace(|| format!("the scheduler keeps away from {node}"));
            return Placement { node: other, finds_none: None };
        }
        let asked = self.api.jobset.annotation(labels::AVOID_NODES).and_then(AvoidNodes::parse);
        let asked = avoidance(asked.unwrap_or_default(), &avoided);
        if self.broken == Some(RuleMutation::HardWhereSoftWasAsked) {
            return Placement { node, finds_none: Some(AvoidNodes::Preferred) };
        }
        if asked == AvoidNodes::Required {
            return Placement { node, finds_none: Some(asked) };
        }
        self.trace(|| format!("no node is free but {node}, which is avoided"));
        self.moves.not_left.insert(node);
        here
    }

    /// The Pods of a Job select their node as the JobSet says, whatever of it has reached the engine.
    pub(super) fn pin(&self, job: &mut Job) {
        let name = job.metadata.labels.as_ref().and_then(|labels| labels.get(labels::REPLICATED_JOB_NAME));
        let group = self.api.jobset.spec.replicated_jobs.iter().find(|group| Some(&group.name) == name);
        let selector = group.and_then(|group| group.template.spec.template.spec.as_ref()?.node_selector.clone());
        let pod = job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut());
        if let (Some(pod), Some(selector)) = (pod, selector) {
            pod.node_selector = Some(selector);
        }
    }

    /// The scheduler says that it finds no node for a Pod that keeps away from some.
    pub(super) fn show_unschedulable(&mut self, pod: &str, form: AvoidNodes) {
        let now = self.now();
        self.trace(|| format!("{pod} finds no node that is not avoided"));
        self.api.change_pod(pod, |wire| {
            let unscheduled = condition("PodScheduled", "False", "Unschedulable", "");
            wire.status.conditions.push(PartialCondition { last_transition_time: Some(now), ..unscheduled });
            if form == AvoidNodes::Required {
                let annotations = wire.metadata.annotations.get_or_insert_default();
                annotations.insert(labels::AVOID_NODES.to_owned(), "Required".to_owned());
            }
        });
    }

    /// Only Pods that the stored status names are moved, and none that is pinned.
    pub(super) fn check_move(&self, action: &Action, base: &JobSet) -> CheckResult {
        let Action::DeletePod { name, reason: PodDeletion::Moved, .. } = action else { return Ok(()) };
        let status = base.status.clone().unwrap_or_default();
        let is_named = status.avoided_nodes.iter().any(|it| it.moving.contains(name));
        ensure(
            is_named && status.epochs().is_closed() && self.asks_for_moves().is_some(),
            Property::MovesAreStored,
            || format!("{name} is moved, and the status does not say so"),
        )?;
        let job = self.api.pods.get(name).and_then(|pod| self.api.jobs.get(&pod.job));
        let Some(template) = job.and_then(|job| Some(&job.job.spec.as_ref()?.template)) else { return Ok(()) };
        let mut selectors = template.spec.iter().flat_map(|spec| &spec.node_selector).flatten();
        ensure(!selectors.any(|(key, _)| key == HOSTNAME), Property::PinnedPodsStay, || {
            format!("{name} is moved, and selects its node")
        })?;
        ensure(is_seen(template), Property::MovedPodsKeepAway, || {
            format!("{name} is moved, and the Pod webhook will not see its successor")
        })
    }

    /// Nodes are blamed for what has happened on them, avoided for so many strikes and for their cool-down, and forgotten for a reason.
    pub(super) fn check_nodes(&mut self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        let new: Vec<&NodeStrike> = after.node_strikes.iter().filter(|it| !before.node_strikes.contains(it)).collect();
        for strike in &new {
            let slot = (strike.job.clone(), strike.index, strike.node.clone());
            ensure(self.moves.faulty.contains(&slot), Property::BlameIsTrue, || {
                format!("nothing failed as in {strike:?}")
            })?;
        }
        self.check_strikes_of_stalls(before, after)?;
        let (limit, now) = (self.asks_for_moves(), self.now().0);
        ensure(limit.is_some() || after.avoided_nodes.is_empty(), Property::MovesAreStored, || {
            format!("nobody asks for it, and {:?} are avoided", after.avoided_nodes)
        })?;
        for avoided in &after.avoided_nodes {
            self.check_avoided(before, after, avoided, limit.unwrap_or(usize::MAX))?;
        }
        let is_avoided =
            |it: &AvoidedNode, status: &JobSetStatus| status.avoided_nodes.iter().any(|other| other.node == it.node);
        for gone in before.avoided_nodes.iter().filter(|it| !is_avoided(it, after)) {
            let has_room = after.avoided_nodes.iter().all(|it| is_avoided(it, before));
            let is_over = gone.until.0 <= now + SignedDuration::from_secs(1);
            // Another Pod failed in the same second, as a late status shows.
            let taken_back = |it: &NodeStrike| it.node == gone.node && !after.node_strikes.contains(it);
            let is_cleared = is_cleared(&gone.node, &after.node_strikes) || before.node_strikes.iter().any(taken_back);
            ensure(is_over || !has_room || is_cleared, Property::AvoidedNodesLast, || {
                format!("{} is avoided until {:?}, and forgotten at {now}", gone.node, gone.until)
            })?;
            self.moves.not_left.remove(&gone.node);
            self.trace(|| format!("{} is cleared", gone.node));
        }
        self.check_cost(before, &new)
    }

    fn check_avoided(
        &mut self,
        before: &JobSetStatus,
        after: &JobSetStatus,
        avoided: &AvoidedNode,
        limit: usize,
    ) -> CheckResult {
        let longest = avoided.until.0.duration_since(avoided.since.0) <= COOL_DOWN;
        if let Some(known) = before.avoided_nodes.iter().find(|it| it.node == avoided.node && it.since == avoided.since)
        {
            return ensure(longest && avoided.until <= known.until, Property::AvoidedNodesLast, || {
                format!("{} is avoided for longer than its cool-down", avoided.node)
            });
        }
        let strikes = after.node_strikes.iter().filter(|it| it.node == avoided.node).count();
        ensure(longest && strikes >= limit, Property::AvoidedNodesLast, || {
            format!("{} is avoided after {strikes} strikes of {limit}", avoided.node)
        })?;
        let stays = |machine: &&SimulatedMachine| {
            let pod = self.api.pods.get(&machine.pod);
            let is_here = pod.is_some_and(|pod| !is_going(pod) && !has_ended(pod));
            machine.node == avoided.node && is_here && !avoided.moving.contains(&machine.pod)
        };
        if self.machines.values().any(|machine| stays(&machine)) {
            self.moves.not_left.insert(avoided.node.clone());
        }
        let recreated = |status: &JobSetStatus| -> Vec<Vec<i32>> {
            status.replicated_jobs_status.iter().map(|group| group.job_restarts.clone()).collect()
        };
        if recreated(before) != recreated(after) {
            self.trace(|| format!("a Job leaves {} as a whole", avoided.node));
        }
        let last = after.node_strikes.last().filter(|it| it.node == avoided.node && is_of_stall(it));
        let why = if last.is_some() { " for its stall" } else { "" };
        self.trace(|| format!("{} is avoided{why}, {:?} leave it", avoided.node, avoided.moving));
        Ok(())
    }

    /// A node that all Pods have left costs nothing more.
    fn check_cost(&self, before: &JobSetStatus, new: &[&NodeStrike]) -> CheckResult {
        let gave_up = self.clock_since_transition(before) >= MOVE_LIMIT;
        for strike in new {
            let avoided = before.avoided_nodes.iter().find(|it| it.node == strike.node && it.moving.is_empty());
            let Some(avoided) = avoided.filter(|it| it.until.0 > self.now().0 && strike.time.0 > it.since.0) else {
                continue;
            };
            ensure(gave_up || self.moves.not_left.contains(&avoided.node), Property::BadNodesCostLittle, || {
                format!("{strike:?}, and all Pods have left {avoided:?}")
            })?;
        }
        Ok(())
    }

    fn clock_since_transition(&self, status: &JobSetStatus) -> SignedDuration {
        let began = status.epoch_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
        self.now().0.duration_since(began)
    }

    /// No epoch begins with a Pod that had to leave.
    pub(super) fn check_moved(&self, before: &JobSetStatus, epoch: i32) -> CheckResult {
        let is_waited_for = self.clock_since_transition(before) < MOVE_LIMIT || !before.epochs().is_closed();
        let stays = |name: &&String| self.api.pods.get(*name).is_some_and(|pod| !is_going(pod) && !has_ended(pod));
        let named = before.avoided_nodes.iter().flat_map(|it| &it.moving);
        let left = named.clone().find(stays).filter(|_| is_waited_for);
        ensure(left.is_none(), Property::MovesAreStored, || {
            format!("epoch {epoch} begins with {left:?}, which has to leave")
        })
    }
}

/// Where a new Pod goes.
pub(super) struct Placement {
    pub node: String,
    /// Why it finds no node: it keeps away from some in this form.
    pub finds_none: Option<AvoidNodes>,
}

/// Whether the Pod webhook sees the Pods of this template.
fn is_seen(template: &PodTemplateSpec) -> bool {
    let mut marks = template.metadata.iter().flat_map(|metadata| &metadata.labels).flatten();
    marks.any(|(key, _)| key == labels::AVOIDS_NODES)
}

/// Whether an index has failed on this node and on another one within the cool-down.
fn is_cleared(node: &str, strikes: &[NodeStrike]) -> bool {
    let speaks = |a: &NodeStrike, b: &NodeStrike| {
        (&a.job, a.index) == (&b.job, b.index)
            && a.node != b.node
            && a.time.0.duration_since(b.time.0).abs() <= COOL_DOWN
    };
    strikes.iter().any(|a| a.node == node && strikes.iter().any(|b| speaks(a, b)))
}
