//! Stalls: in a quarter of the lives that restart in place, workers make no progress any longer, all of them or one. Their agents say so,
//! over the stream, by the annotation, or both, and late: after the next epoch has begun, or once the worker has ended. What is seen may
//! tell on whose account the others wait.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use jobset_api::{JobSetStatus, NodeStrike, labels};
use jobset_rules::Trigger;
use jobset_store::pods::StreamReport;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster::SimulatedCluster;
use super::scenario::key;
use crate::proof::{CheckResult, Property, ensure};

/// One in so many lives has stalls.
const LIVES: u8 = 4;
/// Steps in which one stall is expected.
const STEPS: u32 = 80;

/// What is seen of the worker that holds the others up, and of no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Nothing: all look alike.
    Nothing,
    /// A process of it is stopped.
    Stopped,
    /// It is a step behind.
    Behind,
    /// It is not in the operation that the others are in.
    Outside,
}

const SIGNS: [Sign; 4] = [Sign::Nothing, Sign::Stopped, Sign::Behind, Sign::Outside];

/// A worker holds the others up.
#[derive(Clone, Debug)]
pub(super) struct Hang {
    epoch: i32,
    /// UID of its Pod.
    uid: String,
    sign: Sign,
}

/// Whose workers make no progress, and what is on its way about it.
#[derive(Debug)]
pub(super) struct Stalls {
    rng: Rng,
    is_on: bool,
    /// Workers that make no progress, by the UID of their Pod, with their epoch.
    stalled: BTreeMap<String, i32>,
    /// Reports that are on their way to the annotation, by the UID of the Pod: epoch and text.
    pending: BTreeMap<String, (i32, String)>,
    /// Pods that have told of progress.
    pub told: BTreeSet<String>,
    /// The last hang that has begun.
    hang: Option<Hang>,
    /// Job, index and node of the workers that are seen to hold others up, and since when; unless that has struck.
    at_fault: BTreeSet<(String, i32, String, Timestamp)>,
}

/// Whether a stall has struck the node.
pub(super) fn is_of_stall(strike: &NodeStrike) -> bool {
    strike.reason == Trigger::Stalled.word()
}

impl Stalls {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(!seed.rotate_left(41));
        let is_on = rng.u8(..LIVES) == 0;
        let (stalled, pending) = (BTreeMap::new(), BTreeMap::new());
        Self { rng, is_on, stalled, pending, told: BTreeSet::new(), hang: None, at_fault: BTreeSet::new() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether no worker has hung in this epoch or a later one.
    pub(super) fn none_has_hung_in(&self, epoch: i32) -> bool {
        self.hang.as_ref().is_none_or(|hang| hang.epoch < epoch)
    }

    /// What an agent has still to say of an earlier epoch has the last step of that, once it says this.
    pub(super) fn say_with(&mut self, uid: &str, last: Option<&str>) {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let Some(((_, text), last)) = self.pending.get_mut(uid).zip(last.map(read)) else { return };
        let mut late = read(text);
        if late["epoch"] == last["epoch"] {
            late["step"] = last["step"].clone();
            *text = late.to_string();
        }
    }

    /// An agent says this some time, unless it has something else to say.
    pub(super) fn say_later(&mut self, uid: String, epoch: i32, text: String) {
        self.pending.entry(uid).or_insert((epoch, text));
    }
}

impl SimulatedCluster {
    /// The JobSet asks for restarts when it stalls.
    pub(super) fn begin_stalls(&mut self) {
        self.stalls.is_on &= self.scenario.in_place();
        if self.stalls.is_on {
            self.api.edit(|jobset| {
                let annotations = jobset.metadata.annotations.get_or_insert_default();
                annotations.insert(labels::STALL_AFTER.to_owned(), "20s".to_owned());
                annotations.insert(labels::ON_STALL.to_owned(), "Restart".to_owned());
            });
            self.limit_restarts_without_progress();
        }
    }

    /// A worker starts, and tells of its first step. The agents of healthy workers say it once in the life of a Pod.
    pub(super) fn tell_of_progress(&mut self, uid: &str, pod: &str, epoch: Option<i32>) {
        let Some(epoch) = epoch.filter(|_| self.stalls.is_on) else { return };
        self.stalls.stalled.remove(uid);
        if self.stalls.told.insert(uid.to_owned()) {
            let text = self.healthy(pod, epoch);
            self.annotate_progress(pod, text);
        }
    }

    /// Somebody stalls, or what agents say about it arrives.
    pub(super) fn step_stalls(&mut self) {
        if !self.stalls.is_on {
            return;
        }
        if self.stalls.rng.u8(..8) == 0 {
            self.deliver_progress();
        }
        self.step_steps();
        if self.stalls.rng.u32(..STEPS) == 0 {
            match self.stalls.rng.u8(..4) {
                0 => self.one_stalls(),
                1 => self.resume_all(),
                _ => self.all_stall(),
            }
        }
    }

    /// Nothing is on its way any longer.
    pub(super) fn deliver_all_progress(&mut self) {
        while self.deliver_progress() {}
    }

    fn all_stall(&mut self) {
        let synced = self.api.synced();
        let members = self.machines_where(|machine| machine.has_agent);
        let all = self.machines.values().filter(|it| it.ended.is_none());
        // One that does not run makes no progress, and nobody says so.
        if members.is_empty() || all.into_iter().any(|it| it.lost || it.runs_in() != Some(synced)) {
            return;
        }
        let hang = self.hang(synced, &members);
        self.trace(|| format!("the group stalls in epoch {synced}, {hang:?}"));
        for uid in members {
            let slot = self.machines[&uid].slot();
            self.truth.taken_along(slot, Some(synced), false);
            // Nothing new is seen of one that has straggled.
            if self.stalls.stalled.get(&uid) != Some(&synced) {
                let text = self.stalling(&hang, &uid);
                self.stalls.stalled.insert(uid.clone(), synced);
                self.stalls.pending.insert(uid, (synced, text));
            }
        }
    }

    /// A worker straggles. What its agent says comes in the order in which the others have told of their progress.
    fn one_stalls(&mut self) {
        let synced = self.api.synced();
        let members = self.machines_where(|machine| machine.has_agent && machine.runs_in() == Some(synced));
        if members.len() < 2 || self.machines.values().any(|it| it.ended.is_none() && it.runs_in() != Some(synced)) {
            return;
        }
        if self.stalls.stalled.values().any(|epoch| *epoch == synced) {
            return;
        }
        let hang = self.hang(synced, &members);
        let pod = self.machines[&hang.uid].pod.clone();
        self.trace(|| format!("{pod} straggles in epoch {synced}"));
        let text = self.stalling(&hang, &hang.uid);
        self.stalls.stalled.insert(hang.uid, synced);
        self.annotate_progress(&pod, text);
    }

    /// One of these workers holds the others up: the one that straggles already, if there is one.
    fn hang(&mut self, epoch: i32, members: &[String]) -> Hang {
        let known = self
            .stalls
            .hang
            .clone()
            .filter(|hang| hang.epoch == epoch && self.stalls.stalled.get(&hang.uid) == Some(&epoch));
        let rng = &mut self.stalls.rng;
        let draw =
            || Hang { epoch, uid: members[rng.usize(..members.len())].clone(), sign: SIGNS[rng.usize(..SIGNS.len())] };
        let hang = known.unwrap_or_else(draw);
        self.stalls.hang = Some(hang.clone());
        hang
    }

    /// What the agent of a worker says that stalls.
    fn stalling(&mut self, hang: &Hang, uid: &str) -> String {
        let since = self.now().0;
        let sign = if uid == hang.uid { hang.sign } else { Sign::Nothing };
        if sign != Sign::Nothing {
            self.note_fault(uid);
            self.stalls.at_fault.extend(self.place_of(uid).map(|(job, index, node)| (job, index, node, since)));
        }
        let state = if sign == Sign::Stopped { "T" } else { "S" };
        let mut stall = json!({"since": format!("{since:.6}"), "evidence": {"processes": [{"state": state}]}});
        if sign != Sign::Outside {
            stall["in"] = json!("all_reduce");
        }
        let pod = self.machines.get(uid).map(|machine| machine.pod.as_str()).unwrap_or_default();
        let step = self.steps.of(pod).map(|step| step - i64::from(sign == Sign::Behind));
        json!({"epoch": hang.epoch, "at": self.precise_now(), "step": step, "stall": stall}).to_string()
    }

    fn resume_all(&mut self) {
        for (uid, epoch) in std::mem::take(&mut self.stalls.stalled) {
            let pod = self.machines.get(&uid).map(|machine| machine.pod.clone()).unwrap_or_default();
            let text = self.healthy(&pod, epoch);
            self.stalls.pending.insert(uid, (epoch, text));
        }
    }

    /// What the agent of a worker says that makes progress, or has.
    pub(super) fn healthy(&self, pod: &str, epoch: i32) -> String {
        json!({"epoch": epoch, "at": self.precise_now(), "step": self.steps.of(pod)}).to_string()
    }

    /// A report arrives. Returns whether there was one.
    fn deliver_progress(&mut self) -> bool {
        let uids: Vec<&String> = self.stalls.pending.keys().collect();
        if uids.is_empty() {
            return false;
        }
        let uid = uids[self.stalls.rng.usize(..uids.len())].clone();
        self.worked = true;
        let agent = self.machines.get(&uid).and_then(|machine| Some((machine.pod.clone(), machine.agent.as_ref()?)));
        let Some((pod, agent)) = agent.filter(|_| !self.machines[&uid].lost) else {
            self.stalls.pending.remove(&uid);
            return true;
        };
        let (entered, started) = (agent.entered, agent.says_start.clone());
        let has_stream = self.network.is_on && !self.network.is_cut;
        let (epoch, text) = self.stalls.pending[&uid].clone();
        // The annotation follows.
        if has_stream && entered == Some(epoch) && self.stalls.rng.bool() {
            let started = started.and_then(|started| started.parse::<Timestamp>().ok());
            let progress = Some(text);
            let report = StreamReport { pod, pod_uid: uid, epoch, exit: None, started, progress };
            let now = self.controller_now(std::time::Duration::ZERO).instant;
            self.controller.engine.apply_report(key(), report, now);
            return true;
        }
        self.stalls.pending.remove(&uid);
        self.annotate_progress(&pod, text);
        true
    }

    pub(super) fn annotate_progress(&mut self, pod: &str, text: String) {
        self.trace(|| format!("agent of {pod} says {text}"));
        self.api.change_pod(pod, |wire| {
            wire.metadata.annotations.get_or_insert_default().insert(labels::PROGRESS.to_owned(), text);
        });
    }

    /// Whether the whole group stalls, its agents have said so, and nothing follows.
    pub(super) fn owes_restart_of_stall(&self) -> bool {
        let status = self.api.status();
        let synced = status.synced_epoch;
        let mut members = self.machines.iter().filter(|(_, it)| it.ended.is_none()).peekable();
        self.stalls.is_on
            && status.deprecated_epoch < synced
            && self.stalls.pending.is_empty()
            && members.peek().is_some()
            && members.all(|(uid, it)| it.runs_in() == Some(synced) && self.stalls.stalled.get(uid) == Some(&synced))
    }

    /// The strikes of a status that has just been written.
    pub(super) fn check_strikes_of_stalls(&mut self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        let all = || after.node_strikes.iter().filter(|strike| is_of_stall(strike));
        for strike in all() {
            let is_once = all().filter(|it| *it == strike).count() == 1;
            let place = (strike.job.clone(), strike.index, strike.node.clone(), strike.time.0);
            let is_its = before.node_strikes.contains(strike) || self.stalls.at_fault.remove(&place);
            ensure(is_once && is_its, Property::StallsStrikeOnce, || {
                format!("{strike:?} of {:?}", after.node_strikes)
            })?;
            self.trace(|| format!("{} strikes for its stall", strike.node));
        }
        Ok(())
    }
}
