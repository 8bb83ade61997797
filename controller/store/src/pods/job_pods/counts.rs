//! The sums that [`super::JobPods`] keeps, and what one slot adds to them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::super::slot::{Share, Trust};

/// Sums over the slots that count. Sets hold indexes of what is rare while workers run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) reports: BTreeMap<i32, usize>,
    /// The newcomers among them, by index.
    pub(super) newcomers: BTreeMap<i32, BTreeSet<i32>>,
    /// Those of them whose worker runs.
    pub(super) running: BTreeMap<i32, usize>,
    pub(super) suspects: BTreeMap<i32, BTreeSet<i32>>,
    /// How many of the suspects are members.
    pub(super) suspect_members: BTreeMap<i32, usize>,
    /// Those whose Pod reports nothing that is a number.
    pub(super) unreported: BTreeSet<i32>,
    pub(super) alone: BTreeSet<i32>,
    pub(super) malformed: BTreeSet<i32>,
    pub(super) mute: BTreeSet<i32>,
    pub(super) succeeded: BTreeSet<i32>,
    pub(super) broken: BTreeMap<i32, BTreeSet<i32>>,
    /// Those whose Pod has ended, by the epoch that it reports.
    pub(super) ended: BTreeMap<i32, BTreeSet<i32>>,
    pub(super) blocked: BTreeSet<i32>,
    /// How many got their address in a second, the members before the newcomers.
    pub(super) addresses: BTreeMap<(bool, i64), usize>,
    pub(super) domains: BTreeMap<Box<str>, BTreeSet<i32>>,
    /// Those whose Pod has succeeded, wherever they are.
    pub(super) done: BTreeSet<i32>,
    /// Those whose worker was not observed to start, by the epoch that their Pod reports.
    pub(super) waits: BTreeMap<i32, BTreeSet<i32>>,
    /// Those of whose Pod a worker has never run, by the second in which the Pod was created.
    pub(super) idle: BTreeMap<i64, BTreeSet<i32>>,
    /// How many have a Pod of which all workers have run.
    pub(super) started: usize,
    pub(super) stuck: BTreeSet<i32>,
    /// Those whose Pod finds no node, because it keeps away from some.
    pub(super) unplaced: BTreeSet<i32>,
    /// Those with failed Pods that may delay a successor.
    pub(super) held: BTreeSet<i32>,
    /// Losses count wherever they are: their index is completed.
    pub(super) lost: BTreeSet<i32>,
    /// How many tell of progress.
    pub(super) telling: usize,
    /// Those that make no progress, by epoch.
    pub(super) stalled: BTreeMap<i32, BTreeSet<i32>>,
    /// How many have come so far.
    pub(super) steps: BTreeMap<i64, usize>,
    pub(super) checkpoints: BTreeMap<i64, usize>,
    pub(super) pauses: BTreeMap<u32, usize>,
    /// The member that first reported the newest epoch.
    pub(super) first_to_report: Option<(i32, i32)>,
}

impl Counts {
    pub(super) fn add(&mut self, index: i32, share: &Share) {
        let is_first = self.first_to_report.is_none_or(|(newest, _)| share.report.is_some_and(|epoch| newest < epoch));
        if let Some(epoch) = share.report.filter(|_| is_first && !share.newcomer) {
            self.first_to_report = Some((epoch, index));
        }
        self.change(index, share, true);
    }

    pub(super) fn remove(&mut self, index: i32, share: &Share) {
        self.change(index, share, false);
    }

    /// Adds what the slot of this index adds, or takes it away.
    fn change(&mut self, index: i32, share: &Share, adds: bool) {
        let is_sure = share.trust == Trust::Sure;
        let (sure, suspect) = (share.report.filter(|_| is_sure), share.report.filter(|_| !is_sure));
        for (counts, epoch) in [
            (&mut self.reports, sure),
            (&mut self.running, sure.filter(|_| share.runs)),
            (&mut self.suspect_members, suspect.filter(|_| !share.newcomer)),
        ] {
            count(counts, epoch, adds);
        }
        for (sets, epoch) in [
            (&mut self.newcomers, sure.filter(|_| share.newcomer)),
            (&mut self.suspects, suspect),
            (&mut self.broken, share.broken),
            (&mut self.ended, share.ended),
            (&mut self.waits, share.waits),
            (&mut self.stalled, share.stalled),
        ] {
            mark(sets, epoch, index, adds);
        }
        for (set, holds) in [
            (&mut self.succeeded, share.succeeded),
            (&mut self.unreported, share.unreported),
            (&mut self.alone, share.trust == Trust::Alone),
            (&mut self.malformed, share.malformed),
            (&mut self.mute, share.mute),
            (&mut self.lost, share.lost),
            (&mut self.done, share.done),
            (&mut self.stuck, share.stuck),
            (&mut self.unplaced, share.unplaced),
            (&mut self.held, share.held.0 > 0),
            (&mut self.blocked, share.blocked != (0, 0, 0)),
        ] {
            match (holds, adds) {
                (true, true) => set.insert(index),
                (true, false) => set.remove(&index),
                (false, _) => continue,
            };
        }
        mark(&mut self.idle, share.idle, index, adds);
        count(&mut self.addresses, share.address.map(|second| (share.newcomer, second)), adds);
        mark(&mut self.domains, share.domain.clone(), index, adds);
        count(&mut self.steps, share.far.step, adds);
        count(&mut self.checkpoints, share.far.checkpoint, adds);
        count(&mut self.pauses, share.far.pause, adds);
        if share.started {
            self.started = if adds { self.started + 1 } else { self.started - 1 };
        }
        if share.tells_progress {
            self.telling = if adds { self.telling + 1 } else { self.telling - 1 };
        }
    }
}

fn count<K: Ord>(counts: &mut BTreeMap<K, usize>, key: Option<K>, adds: bool) {
    let Some(key) = key else { return };
    if adds {
        *counts.entry(key).or_default() += 1;
    } else if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

fn mark<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<i32>>, key: Option<K>, index: i32, adds: bool) {
    let Some(key) = key else { return };
    if adds {
        sets.entry(key).or_default().insert(index);
    } else if let Entry::Occupied(mut set) = sets.entry(key) {
        set.get_mut().remove(&index);
        if set.get().is_empty() {
            set.remove();
        }
    }
}
