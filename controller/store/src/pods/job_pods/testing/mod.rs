//! What the engine remembers of one slot, as a value: the model checker takes it out, compares it, and puts it back.

use super::counts::Counts;
use super::{Extent, JobPods, share};
use crate::Ranges;
use crate::pods::slot::PodSlot;
use crate::pods::{ObservedEpochs, PodView};

/// What is remembered of one slot, wherever it is: two slots of which the same is remembered are worth the same.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Kept(PodSlot);

impl Kept {
    pub fn apply(&self, mut view: PodView, epochs: ObservedEpochs) -> Self {
        (view.name, view.index) = (name(0, &view.name), Some(0));
        self.change(epochs, |pods| {
            pods.apply(view, epochs);
        })
    }

    /// Once the Pod of this name was observed to be gone.
    pub fn apply_gone(&self, pod: &str, epochs: ObservedEpochs) -> Self {
        self.change(epochs, |pods| {
            pods.remove(&name(0, pod), Some(0), epochs);
        })
    }

    /// Once the JobSet was observed with these epochs instead of those.
    pub fn turn(&self, from: ObservedEpochs, to: ObservedEpochs) -> Self {
        self.change(from, |pods| pods.turn(to))
    }

    pub fn pod(&self, uid: &str) -> Option<&PodView> {
        self.0.pods().find(|pod| pod.uid == uid)
    }

    /// Failures since the barrier was last lifted, of Pods whose worker had not run.
    pub fn failures_before_worker(&self) -> u32 {
        self.0.blocked.as_ref().map_or(0, |blocked| blocked.failures)
    }

    fn change(&self, epochs: ObservedEpochs, change: impl FnOnce(&mut JobPods)) -> Self {
        let mut pods = JobPods::of([self], epochs, Ranges::all());
        change(&mut pods);
        assert_eq!(pods.miscounted(), None, "the counts are wrong");
        let slot = pods.slots.remove(&0).unwrap_or_default();
        Self(slot.renamed(None, |name| name.split_once('-').map_or(name, |(_, name)| name).to_owned()))
    }
}

impl JobPods {
    /// The slots of a Job, with what is remembered of each. Their Pods are told apart by the index before their names.
    pub fn of<'a>(kept: impl IntoIterator<Item = &'a Kept>, epochs: ObservedEpochs, members: Ranges) -> Self {
        let mut pods = Self { epochs, ..Self::default() };
        for (index, Kept(slot)) in (0..).zip(kept) {
            pods.pods += slot.pods().count();
            pods.slots.insert(index, slot.clone().renamed(Some(index), |pod| name(index, pod)));
        }
        let size = i32::try_from(pods.slots.len()).unwrap_or(i32::MAX);
        pods.extent = Some(Extent { size, completed: Ranges::default(), members });
        pods.recount();
        pods
    }

    /// How the counts differ from those of the slots as they are, if they do.
    pub fn miscounted(&self) -> Option<String> {
        let mut counted = Counts::default();
        for (index, slot) in &self.slots {
            counted.add(*index, &share(self.extent.as_ref(), self.epochs.synced, *index, slot));
        }
        // The slots do not keep the order of reports.
        counted.first_to_report = self.counts.first_to_report;
        (counted != self.counts).then(|| format!("{:?}, and the slots say {counted:?}", self.counts))
    }
}

fn name(index: i32, pod: &str) -> String {
    format!("{index}-{pod}")
}
