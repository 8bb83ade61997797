//! The Pods of one Job that may be blamed, and those that move.

use super::JobPods;
use crate::pods::PodView;

impl JobPods {
    /// The Pods of open slots that find no node, because they keep away from some.
    pub fn unplaced(&self) -> impl Iterator<Item = &PodView> {
        self.standing(&self.counts.unplaced)
    }

    /// The Pods of open slots that report this epoch, those of newcomers left out. It takes a look at each Pod.
    pub fn members_at(&self, epoch: i32) -> impl Iterator<Item = &PodView> {
        let newcomers = self.newcomers_at(epoch);
        let is_newcomer = |pod: &PodView| pod.index.is_some_and(|index| newcomers.contains(&index));
        self.filling().filter(move |pod| pod.epoch.number() == Some(epoch) && !is_newcomer(pod))
    }

    pub fn of_index(&self, index: i32) -> Option<&PodView> {
        self.slots.get(&index)?.standing()
    }
}
