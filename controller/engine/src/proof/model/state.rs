//! The state of the model: one JobSet, its slots, and which version of it each participant has observed. States are small: a
//! check visits millions.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use jobset_store::pods::{Kept, ObservedEpochs, PodPhase, PodView, StreamReports};

use super::link::ModelReport;
use super::node::ModelMachine;
use super::setting::Budget;
use crate::proof::{GroupStatus, ProgressWord, Violation};

/// One moment.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct ModelState {
    /// The slots of the only Job, in no order: two states that differ by the indexes of their slots are the same state.
    pub slots: Vec<Shared<ModelSlot>>,
    pub jobset: JobSetObject,
    pub controller: ModelController,
    /// The write of a controller that is gone, which has not arrived.
    pub late: Option<ModelStatus>,
    /// What may still go wrong.
    pub left: Budget,
    pub violation: Option<Violation>,
}

/// The JobSet and its Job in the API server.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct JobSetObject {
    pub status: ModelStatus,
    /// `spec.suspend`.
    pub suspended: bool,
    /// `spec.suspend` of its Job.
    pub job_suspended: bool,
    /// `syncedEpoch` and `deprecatedEpoch`, one pair for each version in which they changed. The newest comes last, and
    /// versions that everybody has observed are left out.
    pub history: Vec<(i32, i32)>,
}

/// The part of the JobSet's status that the epochs are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ModelStatus {
    pub group: GroupStatus,
    /// Whether the status records the members of the synced epoch: all Pods.
    pub has_members: bool,
    pub end: Option<ModelEnd>,
}

/// How the JobSet has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelEnd {
    /// One restart more than maxRestarts.
    Restarts,
    /// One failure before the barrier more than maxRestarts.
    Barrier,
    /// For any other reason: there is none here.
    Other,
}

/// The controller that leads.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(super) struct ModelController {
    /// The JobSet's status and `spec.suspend`, as last observed.
    pub observed: (ModelStatus, bool),
    /// The status that it is about to write over the one that it has observed.
    pub pending: Option<ModelStatus>,
    /// The newest epochs that it has told agents over the stream.
    pub told: (i32, i32),
}

/// One completion index: its Pod, and what has truly happened to it, which no program knows.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(super) struct ModelSlot {
    /// The Pod in the API server.
    pub pod: Option<Pod>,
    /// Its containers. They go with the Pod.
    pub machine: Option<ModelMachine>,
    /// Events of the Pod that the controller has not observed.
    pub unseen: Vec<Event>,
    /// What the controller remembers of the slot.
    pub kept: Shared<Kept>,
    /// What the controller has heard over the stream.
    pub reports: StreamReports,
    /// Reports over the stream whose connections have ended, each with its Pod.
    pub late_reports: Vec<(u8, ModelReport)>,
    /// Number of Pods that it has had.
    pub generations: u8,
    /// Whether the next epoch was reported, by any Pod of the slot.
    pub has_reported: bool,
    /// Epochs, as bits, in which it was struck by something that makes the group advance.
    pub struck: u16,
    /// How often it was struck.
    pub strikes: u8,
    /// The newest epoch in which a worker was started.
    pub last_run: i32,
}

/// A Pod in the API server.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct Pod {
    /// Which one of its slot it is.
    pub generation: u8,
    /// The annotation.
    pub epoch: Option<i32>,
    /// The annotation that tells of progress.
    pub progress: Option<ProgressWord>,
    /// What its kubelet has written, as the engine reduces it: without the name of the Pod, its annotation and its deletion.
    pub status: PodView,
    /// Whether it is being deleted.
    pub going: Option<Going>,
}

/// Why a Pod is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Going {
    /// Somebody asked for it.
    Asked,
    /// A disruption: its condition says so.
    Disrupted,
}

/// What the controller's watch on Pods shows.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) enum Event {
    Put(Box<Pod>),
    /// The Pod of this generation is gone.
    Gone(u8),
}

impl ModelStatus {
    pub(super) fn epochs(self) -> ObservedEpochs {
        ObservedEpochs { synced: self.synced, deprecated: self.deprecated, lifted_at: None }
    }
}

impl Deref for ModelStatus {
    type Target = GroupStatus;

    fn deref(&self) -> &GroupStatus {
        &self.group
    }
}

impl JobSetObject {
    pub(super) fn shown(&self) -> (ModelStatus, bool) {
        (self.status, self.suspended)
    }
}

impl ModelState {
    /// Whether no worker of the group makes progress.
    pub(super) fn group_stalls(&self) -> bool {
        let synced = self.jobset.status.synced;
        self.slots
            .iter()
            .all(|slot| slot.runs_in() == Some(synced) && slot.machine.as_ref().is_some_and(ModelMachine::stalls))
    }

    /// The epochs as the memory of Pods knows them.
    pub(super) fn known(&self) -> ObservedEpochs {
        self.controller.observed.0.epochs()
    }
}

impl ModelSlot {
    pub(super) fn is_struck_in(&self, epoch: i32) -> bool {
        self.struck & bit(epoch) != 0
    }

    /// Notes that what strikes the Pod, or has struck it before, takes an agent along that has entered this epoch.
    pub(super) fn take_along(&mut self, epoch: Option<i32>) {
        self.struck |= epoch.map_or(0, bit);
    }

    /// The epoch of the worker that runs.
    pub(super) fn runs_in(&self) -> Option<i32> {
        self.machine.as_ref()?.runs_in()
    }
}

impl Pod {
    pub(super) fn has_failed(&self) -> bool {
        self.status.phase == PodPhase::Failed
    }

    pub(super) fn is_disrupted(&self) -> bool {
        self.going == Some(Going::Disrupted)
    }
}

/// One bit for each epoch. No group here gets to the sixteenth.
pub(super) fn bit(epoch: i32) -> u16 {
    1_u16.checked_shl(u32::try_from(epoch).unwrap_or(u32::MAX)).unwrap_or(0)
}

/// A value that many states share, hashed once.
#[derive(Clone, Debug)]
pub(super) struct Shared<T>(Arc<T>, u64);

impl<T: Hash> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        // Without random keys: the same in every run.
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Self(Arc::new(value), hasher.finish())
    }

    /// The same for the same values. They have no other order.
    pub(super) fn rank(&self) -> u64 {
        self.1
    }
}

impl<T: Hash + Default> Default for Shared<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Hash + Clone> Shared<T> {
    /// The same after a change.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut T)) {
        let mut value = T::clone(self);
        change(&mut value);
        *self = Self::new(value);
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.1.hash(hasher);
    }
}
