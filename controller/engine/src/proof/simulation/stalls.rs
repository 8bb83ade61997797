//! Stalls: in a quarter of the lives that restart in place, workers make no progress any longer, all of them or one. Their agents say so,
//! over the stream, by the annotation, or both, and late: after the next epoch has begun, or once the worker has ended.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use jobset_api::labels;
use jobset_store::pods::StreamReport;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::cluster::SimulatedCluster;
use super::scenario::key;

/// One in so many lives has stalls.
const LIVES: u8 = 4;
/// Steps in which one stall is expected.
const STEPS: u32 = 80;

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
    told: BTreeSet<String>,
}

impl Stalls {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(!seed.rotate_left(41));
        let is_on = rng.u8(..LIVES) == 0;
        Self { rng, is_on, stalled: BTreeMap::new(), pending: BTreeMap::new(), told: BTreeSet::new() }
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
        }
    }

    /// A worker starts, and tells of its first step. The agents of healthy workers say it once in the life of a Pod.
    pub(super) fn tell_of_progress(&mut self, uid: &str, pod: &str, epoch: Option<i32>) {
        let Some(epoch) = epoch.filter(|_| self.stalls.is_on) else { return };
        self.stalls.stalled.remove(uid);
        if self.stalls.told.insert(uid.to_owned()) {
            let text = self.progress(epoch, None);
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
        self.trace(|| format!("the group stalls in epoch {synced}"));
        for uid in members {
            let slot = self.machines[&uid].slot();
            self.truth.taken_along(slot, Some(synced), false);
            self.stall(&uid, synced);
        }
    }

    /// A worker straggles. What its agent says comes in the order in which the others have told of their progress.
    fn one_stalls(&mut self) {
        let synced = self.api.synced();
        let members = self.machines_where(|machine| machine.has_agent && machine.runs_in() == Some(synced));
        if members.len() < 2 || self.machines.values().any(|it| it.ended.is_none() && it.runs_in() != Some(synced)) {
            return;
        }
        let uid = members[self.stalls.rng.usize(..members.len())].clone();
        if self.stalls.stalled.keys().any(|stalled| *stalled != uid) {
            return;
        }
        let pod = self.machines[&uid].pod.clone();
        self.trace(|| format!("{pod} straggles in epoch {synced}"));
        self.stalls.stalled.insert(uid, synced);
        let text = self.progress(synced, Some(()));
        self.annotate_progress(&pod, text);
    }

    fn stall(&mut self, uid: &str, epoch: i32) {
        let text = self.progress(epoch, Some(()));
        self.stalls.stalled.insert(uid.to_owned(), epoch);
        self.stalls.pending.insert(uid.to_owned(), (epoch, text));
    }

    fn resume_all(&mut self) {
        for (uid, epoch) in std::mem::take(&mut self.stalls.stalled) {
            let text = self.progress(epoch, None);
            self.stalls.pending.insert(uid, (epoch, text));
        }
    }

    /// What an agent says now.
    fn progress(&self, epoch: i32, stall: Option<()>) -> String {
        let at = self.precise_now();
        let stall = stall.map(|()| json!({"since": at}));
        json!({"epoch": epoch, "at": at, "step": 7, "stall": stall}).to_string()
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
        let has_stream = self.network.is_on && !self.network.is_cut && !self.network.hostility.is_on();
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

    fn annotate_progress(&mut self, pod: &str, text: String) {
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
}
