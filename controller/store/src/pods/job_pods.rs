//! The Pods of one Job, counted as they come: an event costs what one Pod costs, however many there are.

mod addresses;
mod counts;
mod moves;
mod progress;
mod starts;
#[cfg(any(test, feature = "testing"))]
mod testing;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::jiff::Timestamp;

use super::ObservedEpochs;
use super::slot::{Blocked, FailedWorker, PodSlot, Share};
use super::view::{Epoch, PodPhase, PodView};
use crate::Ranges;
use counts::Counts;
#[cfg(any(test, feature = "testing"))]
pub use testing::Kept;

static NONE: BTreeSet<i32> = BTreeSet::new();

/// The slots of one Job and their counts.
#[derive(Debug, Default)]
pub struct JobPods {
    slots: HashMap<i32, PodSlot>,
    /// Pods without a completion index, by name: they fill no slot, but they are there.
    unindexed: BTreeMap<String, PodView>,
    pods: usize,
    /// Known while the Job is: the Pods of a Job that is gone, or was not observed yet, fill no slots.
    extent: Option<Extent>,
    /// The JobSet's epochs, as the counts know them.
    epochs: ObservedEpochs,
    counts: Counts,
}

/// Which slots count: those of the Job's size that have not completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub size: i32,
    pub completed: Ranges,
    /// Indexes of the Pods that the epoch of the group began with.
    pub members: Ranges,
}

impl Extent {
    fn counts(&self, index: i32) -> bool {
        (0..self.size).contains(&index) && !self.completed.contains(index)
    }
}

impl JobPods {
    /// A Pod as it is now. Returns whether the counts changed.
    pub(super) fn apply(&mut self, view: PodView, epochs: ObservedEpochs) -> bool {
        self.turn(epochs);
        let Some(index) = view.index else {
            let is_idle = view.is_idle();
            let before = self.unindexed.insert(view.name.clone(), view);
            self.pods += usize::from(before.is_none());
            return before.is_none_or(|before| before.is_idle() != is_idle);
        };
        let bound = index == 0 && self.leader().is_none_or(|leader| leader.node != view.node || leader.uid != view.uid);
        let changed = self.change(index, |slot| slot.apply(view, epochs));
        changed || bound
    }

    /// A Pod is gone. Returns whether its end is a failure.
    pub(super) fn remove(&mut self, name: &str, index: Option<i32>, epochs: ObservedEpochs) -> bool {
        let failures = |counts: &Counts| counts.broken.values().map(BTreeSet::len).sum::<usize>();
        let before = failures(&self.counts);
        match index {
            Some(index) => {
                self.change(index, |slot| slot.remove(name, epochs));
                if self.slots.get(&index).is_some_and(PodSlot::is_forgettable) {
                    self.slots.remove(&index);
                }
            }
            None => self.pods -= usize::from(self.unindexed.remove(name).is_some()),
        }
        failures(&self.counts) > before
    }

    /// The Job's size or its completed indexes: what changes which slots count, which is seldom, counts again.
    pub(super) fn set_extent(&mut self, extent: Option<Extent>) {
        if self.extent == extent {
            return;
        }
        self.extent = extent;
        self.recount();
    }

    /// The JobSet's epochs. Those who can change by that are few: others are waiting or well.
    pub(super) fn turn(&mut self, epochs: ObservedEpochs) {
        let before = std::mem::replace(&mut self.epochs, epochs);
        if before == epochs {
            return;
        }
        let over = self.counts.broken.range(..epochs.synced).flat_map(|(_, indexes)| indexes);
        let begun = self.counts.suspects.range(..=epochs.synced).flat_map(|(_, indexes)| indexes);
        let ended = self.counts.ended.get(&epochs.synced).into_iter().flatten();
        let indexes: BTreeSet<i32> = over.chain(begun).chain(ended).chain(&self.counts.blocked).copied().collect();
        for index in indexes {
            let Some(slot) = self.slots.get_mut(&index) else { continue };
            self.counts.remove(index, &share(self.extent.as_ref(), before.synced, index, slot));
            slot.turn(epochs);
            self.counts.add(index, &share(self.extent.as_ref(), epochs.synced, index, slot));
        }
        if epochs.synced < before.synced {
            // Another JobSet of this name, or one that has lost its status: slots that did not change count for another epoch.
            self.recount();
        }
    }

    fn recount(&mut self) {
        self.counts = Counts::default();
        for (index, slot) in &mut self.slots {
            // Its Pod may have been observed before the epochs were.
            slot.note_end(self.epochs);
            self.counts.add(*index, &share(self.extent.as_ref(), self.epochs.synced, *index, slot));
        }
    }

    /// Whether there is neither the Job nor a Pod of it.
    pub(super) fn is_forgettable(&self) -> bool {
        self.extent.is_none() && self.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.pods == 0
    }

    /// Open slots by the epoch that their Pod reports and its worker is in.
    pub fn reports(&self) -> &BTreeMap<i32, usize> {
        &self.counts.reports
    }

    /// Open slots whose worker runs in this epoch.
    pub fn running_in(&self, epoch: i32) -> usize {
        self.counts.running.get(&epoch).copied().unwrap_or(0)
    }

    /// The indexes of newcomers whose Pod reports this epoch.
    pub fn newcomers_at(&self, epoch: i32) -> &BTreeSet<i32> {
        self.counts.newcomers.get(&epoch).unwrap_or(&NONE)
    }

    /// Members whose Pod reports an epoch that its worker may not be in, by that epoch.
    pub fn suspect_members(&self) -> &BTreeMap<i32, usize> {
        &self.counts.suspect_members
    }

    /// The Pods that can fill an open slot and report nothing that is a number.
    pub fn unreported(&self) -> impl Iterator<Item = &PodView> {
        self.standing(&self.counts.unreported)
    }

    /// Pods whose agent restarted without its worker.
    pub fn alone(&self) -> impl Iterator<Item = &PodView> {
        self.standing(&self.counts.alone)
    }

    /// Open slots whose worker runs, and whose Pod reports nothing that is a number.
    pub fn mute(&self) -> usize {
        self.counts.mute.len()
    }

    /// Slots whose Pod succeeded, of those that the Job does not count as completed yet.
    pub fn succeeded(&self) -> usize {
        self.counts.succeeded.len()
    }

    /// The indexes whose workers have succeeded, whether the Job counts them as completed or not.
    pub fn done(&self) -> &BTreeSet<i32> {
        &self.counts.done
    }

    /// When the last worker of these Pods ended, as far as their status says.
    pub fn done_at(&self) -> Option<Timestamp> {
        self.standing(&self.counts.done).filter_map(|pod| pod.workers_ended).max()
    }

    /// Number of Pods without a completion index that have succeeded.
    pub fn done_without_index(&self) -> usize {
        self.unindexed.values().filter(|pod| pod.phase == PodPhase::Succeeded).count()
    }

    /// All Pods, also those that have ended and have successors.
    pub fn all(&self) -> impl Iterator<Item = &PodView> {
        self.slots.values().flat_map(PodSlot::pods).chain(self.unindexed.values())
    }

    /// The Pods that have failed, those with successors included.
    pub fn failed(&self) -> impl Iterator<Item = &PodView> {
        self.all().filter(|pod| pod.phase == PodPhase::Failed)
    }

    /// The Pods with an index of `size` or above that can still start a worker in this epoch. One that is being deleted cannot,
    /// unless its container runs and waits at the barrier of that epoch: its kubelet may not know of the deletion yet.
    pub fn startable_beyond(&self, size: i32, epoch: i32) -> impl Iterator<Item = &PodView> {
        let waits = move |pod: &PodView| pod.workers != 0 && pod.epoch.number() == Some(epoch);
        let can_start = move |pod: &&PodView| pod.phase == PodPhase::Open && (pod.deleted_at.is_none() || waits(pod));
        let slots = self.slots.iter().filter(move |(index, _)| **index >= size);
        slots.flat_map(|(_, slot)| slot.pods()).filter(can_start)
    }

    pub fn broken_in(&self, epoch: i32) -> impl Iterator<Item = &FailedWorker> {
        let indexes = self.counts.broken.get(&epoch).into_iter().flatten();
        indexes.filter_map(|index| self.slots.get(index)?.broken.as_deref())
    }

    /// Workers that exited 0 only because their Pod was deleted, and whether the epoch of the group began with them.
    pub fn lost(&self) -> impl Iterator<Item = (&FailedWorker, bool)> {
        let is_member = |index| self.extent.as_ref().is_some_and(|extent| extent.members.contains(index));
        self.counts
            .lost
            .iter()
            .filter_map(move |index| Some((self.slots.get(index)?.lost.as_deref()?, is_member(*index))))
    }

    /// What has kept workers from starting since the last lift.
    pub fn blocked(&self) -> impl Iterator<Item = &Blocked> {
        self.counts.blocked.iter().filter_map(|index| self.slots.get(index)?.blocked.as_deref())
    }

    /// The Pods of open slots that have lost their sandbox, or have a container that ends by itself and keeps others waiting.
    pub fn stuck(&self) -> impl Iterator<Item = &PodView> {
        self.standing(&self.counts.stuck)
    }

    /// The Pods of open slots that report this epoch and whose worker was not observed to start in it.
    pub fn not_started_in(&self, epoch: i32) -> impl Iterator<Item = &PodView> {
        self.standing(self.counts.waits.get(&epoch).unwrap_or(&NONE))
    }

    /// How many Pods of this index in a row were deleted before their worker was observed to run.
    pub fn deleted_before_start(&self, index: Option<i32>) -> u32 {
        index.and_then(|index| self.slots.get(&index)).map_or(0, |slot| slot.deleted_before_start)
    }

    /// Of each open slot with failed Pods that may delay a successor: all its Pods, the newest first.
    pub fn held(&self) -> impl Iterator<Item = Vec<&PodView>> {
        let slots = self.counts.held.iter().filter_map(|index| self.slots.get(index));
        slots.map(|slot| {
            let mut pods: Vec<_> = slot.pods().collect();
            pods.sort_by_key(|pod| pod.created);
            pods.reverse();
            pods
        })
    }

    /// Pods whose report is outside of `1..=newest` or not a number, with what they report.
    pub fn invalid_reports(&self, newest: i32) -> Vec<(&PodView, String)> {
        let outside = |epoch: &i32| !(1..=newest).contains(epoch);
        let suspects = self.counts.suspects.keys();
        let mut invalid: Vec<_> = self.standing(&self.counts.malformed).map(|pod| (pod, reported(pod))).collect();
        // Nobody has to look for what is not there.
        if self.counts.reports.keys().chain(suspects).any(outside) {
            let pods = self.filling().filter(|pod| pod.epoch.number().as_ref().is_some_and(outside));
            invalid.extend(pods.map(|pod| (pod, reported(pod))));
        }
        invalid.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        invalid
    }

    /// The Pods whose report of this epoch does not fill their slot: it is that of a life that has ended, or is not believed.
    pub fn suspects_at(&self, epoch: i32) -> impl Iterator<Item = &PodView> {
        self.standing(self.counts.suspects.get(&epoch).unwrap_or(&NONE))
    }

    /// The Pods that can fill an open slot and have not reported this epoch.
    pub fn not_at(&self, epoch: i32) -> impl Iterator<Item = &PodView> {
        self.filling().filter(move |pod| pod.epoch.number() != Some(epoch))
    }

    pub fn failed_last(&self) -> impl Iterator<Item = &PodView> {
        let pods = self.slots.values().filter_map(PodSlot::standing).chain(self.unindexed.values());
        pods.filter(|pod| pod.phase == PodPhase::Failed)
    }

    pub fn first_to_report(&self, epoch: i32) -> Option<&PodView> {
        let (_, index) = self.counts.first_to_report.filter(|(reported, _)| *reported == epoch)?;
        self.slots.get(&index)?.standing()
    }

    /// The Pod of index 0, which the others follow where Jobs are placed exclusively.
    pub fn leader(&self) -> Option<&PodView> {
        self.slots.get(&0)?.standing()
    }

    /// Followers by the topology domain that they ask for.
    pub fn followers(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &PodView>)> {
        let domains = self.counts.domains.iter();
        domains.map(|(domain, indexes)| (&**domain, self.standing(indexes)))
    }

    pub(super) fn find(&self, name: &str, index: Option<i32>) -> Option<&PodView> {
        match index {
            Some(index) => self.slots.get(&index)?.pods().find(|pod| pod.name == name),
            None => self.unindexed.get(name),
        }
    }

    pub(super) fn find_uid(&self, name: &str, uid: &str, index: Option<i32>) -> Option<&PodView> {
        match index {
            Some(index) => self.slots.get(&index)?.pods().find(|pod| pod.uid == uid),
            None => self.unindexed.get(name).filter(|pod| pod.uid == uid),
        }
    }

    /// The Pods that are being disrupted, and whose worker runs in this epoch. The cost grows with the number of Pods.
    pub fn disrupted_in(&self, epoch: i32) -> impl Iterator<Item = &PodView> {
        let standing = self.slots.values().filter_map(PodSlot::standing);
        standing.filter(move |pod| pod.is_disrupted() && pod.workers != 0 && pod.epoch.number() == Some(epoch))
    }

    /// The Pods that can fill an open slot.
    fn filling(&self) -> impl Iterator<Item = &PodView> {
        let counts = |index| self.extent.as_ref().is_some_and(|extent| extent.counts(index));
        let slots = self.slots.iter().filter(move |(index, _)| counts(**index));
        slots.filter_map(|(_, slot)| slot.standing()).filter(|pod| pod.fills_its_slot())
    }

    fn standing<'a>(&'a self, indexes: &'a BTreeSet<i32>) -> impl Iterator<Item = &'a PodView> {
        indexes.iter().filter_map(|index| self.slots.get(index)?.standing())
    }

    fn change(&mut self, index: i32, change: impl FnOnce(&mut PodSlot)) -> bool {
        let slot = self.slots.entry(index).or_default();
        let (mut before, pods) = (share(self.extent.as_ref(), self.epochs.synced, index, slot), slot.pods().count());
        change(slot);
        let after = share(self.extent.as_ref(), self.epochs.synced, index, slot);
        self.pods = self.pods + slot.pods().count() - pods;
        if before == after {
            return false;
        }
        self.counts.remove(index, &before);
        self.counts.add(index, &after);
        // Only who looks for silent agents reads it, at times of its own.
        before.unreported = after.unreported;
        // An address of itself begins nothing. A lift that waits for names looks again when its time has come.
        before.address = after.address;
        // What is kept of it is written with what else changes.
        before.far = after.far;
        before != after
    }
}

fn share(extent: Option<&Extent>, synced: i32, index: i32, slot: &PodSlot) -> Share {
    let Some(extent) = extent else { return Share::default() };
    let share = slot.share(synced);
    if extent.counts(index) {
        let newcomer = !extent.members.contains(index);
        return Share { lost: false, newcomer, broken: share.broken.filter(|_| !newcomer), ..share };
    }
    // Until the Job says so, it may be failing, and have deleted the Pod itself.
    Share { lost: share.lost && index < extent.size, done: share.done, far: share.far, ..Share::default() }
}

fn reported(pod: &PodView) -> String {
    match &pod.epoch {
        Epoch::Absent => String::new(),
        Epoch::Reported(epoch) => epoch.to_string(),
        Epoch::Malformed(text) => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The JobSet has lost its status, or is another one of this name.
    #[test]
    fn epoch_that_falls_changes_each_slot_once() {
        let synced = |synced: i32| ObservedEpochs { synced, deprecated: synced - 1, lifted_at: None };
        let mut pods = JobPods::of([&Kept::default()], synced(1), Ranges::all());
        let pod = |name: &str| PodView { name: name.into(), uid: name.into(), index: Some(0), ..PodView::default() };
        let (deleted_at, epoch) = (Some(Timestamp::UNIX_EPOCH), Epoch::Reported(2));
        pods.apply(PodView { epoch, deleted_at, workers: 1, ..pod("goes") }, synced(1));
        pods.turn(synced(2));
        pods.apply(pod("fails"), synced(2));
        pods.apply(PodView { phase: PodPhase::Failed, ..pod("fails") }, synced(2));
        assert_eq!(pods.blocked().count(), 1);
        pods.turn(synced(1));
        assert_eq!(pods.miscounted(), None);
        assert_eq!(pods.suspect_members(), &BTreeMap::from([(2, 1)]));
    }
}
