//! What has truly happened, which no controller sees as a whole: the properties are held against it.

use std::collections::{BTreeMap, BTreeSet};

use jobset_store::JobView;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;

/// UID of a Job and a completion index.
pub(super) type SlotId = (String, i32);

/// Something struck a Pod.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    slot: SlotId,
    /// The epoch that its agent had entered.
    epoch: i32,
    /// Whether it was a disruption: a failure policy can leave those uncounted.
    disruption: bool,
}

/// A Job that failed.
#[derive(Clone, Debug)]
pub(super) struct JobFailure {
    pub view: JobView,
    pub reason: String,
}

#[derive(Debug, Default)]
pub(super) struct Truth {
    faults: Vec<Fault>,
    /// Epochs of Pods that were asked to go, and not disrupted.
    asked: BTreeSet<i32>,
    /// Epochs of Pods that were deleted by force.
    losses: BTreeSet<i32>,
    reports: BTreeMap<SlotId, BTreeSet<i32>>,
    /// How often each slot was struck since the last lift.
    strikes: BTreeMap<SlotId, i32>,
    /// Name of the Job and completion index of the Pods that had reported the epoch when it began.
    pub present: BTreeSet<(String, i32)>,
    pub failed_jobs: Vec<JobFailure>,
    /// The slots whose Pod has succeeded, and not because it was asked to go; when its worker has ended, in milliseconds.
    pub succeeded: BTreeMap<SlotId, i64>,
    /// When the newest epoch began.
    pub lifted_at: Option<Timestamp>,
    pub job_was_deleted_by_hand: bool,
    /// A worker that had done its work went with its node.
    pub work_was_lost: bool,
    /// Pods that their nodes have refused.
    pub refusals: u32,
}

impl Truth {
    /// A Pod was struck. One that has entered no epoch takes none along.
    pub(super) fn struck(&mut self, slot: SlotId, epoch: Option<i32>, disruption: bool) {
        *self.strikes.entry(slot.clone()).or_default() += 1;
        self.taken_along(slot, epoch, disruption);
    }

    /// What has struck a Pod before takes its agent along, in the epoch that that has entered since.
    pub(super) fn taken_along(&mut self, slot: SlotId, epoch: Option<i32>, disruption: bool) {
        if let Some(epoch) = epoch {
            self.faults.push(Fault { slot, epoch, disruption });
        }
    }

    /// A Pod was asked to go by its Job or by the controller.
    pub(super) fn asked_to_go(&mut self, epoch: Option<i32>) {
        self.asked.extend(epoch);
    }

    pub(super) fn reported(&mut self, slot: SlotId, epoch: i32) {
        self.reports.entry(slot).or_default().insert(epoch);
    }

    pub(super) fn job_failed(&mut self, job: &Job, reason: &str) {
        self.failed_jobs.push(JobFailure { view: JobView::of(job), reason: reason.to_owned() });
    }

    /// The barrier of this epoch was lifted. What struck before it is over, unless the slot has nobody who goes on in it:
    /// whoever comes next reports the epoch after it.
    pub(super) fn lifted(&mut self, epoch: i32, goes_on: impl Fn(&SlotId) -> bool) {
        self.faults.retain(|fault| fault.epoch >= epoch && !(fault.epoch == epoch && goes_on(&fault.slot)));
        self.asked.retain(|asked| *asked >= epoch);
        self.strikes.retain(|slot, _| !goes_on(slot));
    }

    /// Whether a disruption struck in this epoch, or where an agent had just entered the next one and not reported it.
    pub(super) fn was_disrupted_in(&self, epoch: i32) -> bool {
        self.faults.iter().any(|fault| fault.disruption && fault.epoch >= epoch)
    }

    /// A Pod of this epoch was taken away.
    pub(super) fn lost(&mut self, epoch: Option<i32>) {
        self.losses.extend(epoch);
    }

    /// Whether Pods of this epoch or a later one may have been taken away by anybody.
    pub(super) fn was_lost_in(&self, epoch: i32) -> bool {
        self.was_disrupted_in(epoch)
            || self.job_was_deleted_by_hand
            || self.losses.range(epoch..).next().is_some()
            || self.was_asked_in(epoch)
    }

    /// Whether anything struck workers of this epoch.
    pub(super) fn was_struck_in(&self, epoch: i32) -> bool {
        self.faults.iter().any(|fault| fault.epoch == epoch)
    }

    /// Whether anything struck workers of this epoch in such slots.
    pub(super) fn was_struck_in_by(&self, epoch: i32, is_one: impl Fn(&SlotId) -> bool) -> bool {
        self.faults.iter().any(|fault| fault.epoch == epoch && is_one(&fault.slot))
    }

    /// Whether workers of this epoch have failed, and nothing else has become of its Pods that could be taken for the reason.
    pub(super) fn only_workers_failed_in(&self, epoch: i32) -> bool {
        let was_asked = self.asked.range(epoch..).next().is_some();
        self.was_struck_in(epoch) && !self.was_lost_in(epoch) && !was_asked
    }

    pub(super) fn was_asked_in(&self, epoch: i32) -> bool {
        self.asked.contains(&epoch)
    }

    pub(super) fn has_reported(&self, slot: &SlotId, epoch: i32) -> bool {
        self.reports.get(slot).is_some_and(|reports| reports.contains(&epoch))
    }

    /// The most that any slot was struck since the last lift.
    pub(super) fn most_strikes(&self) -> i32 {
        self.most_strikes_of(|_| true)
    }

    /// The most that any such slot was struck since the last lift.
    pub(super) fn most_strikes_of(&self, is_one: impl Fn(&SlotId) -> bool) -> i32 {
        let strikes = self.strikes.iter().filter(|(slot, _)| is_one(slot));
        strikes.map(|(_, strikes)| *strikes).max().unwrap_or(0)
    }
}
