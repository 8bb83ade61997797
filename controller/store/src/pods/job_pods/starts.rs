//! Which workers of one Job have started in their Pods.

use k8s_openapi::jiff::Timestamp;

use super::JobPods;
use crate::pods::PodView;

impl PodView {
    /// Whether it is to start its workers, and one of them has never run.
    pub fn is_idle(&self) -> bool {
        self.unstarted && self.is_here()
    }
}

impl JobPods {
    /// The Pods of which a worker has never run: those of open slots, and those without a completion index.
    pub fn idle(&self) -> impl Iterator<Item = &PodView> {
        let of_slots = self.counts.idle.values().flat_map(|indexes| self.standing(indexes));
        of_slots.chain(self.unindexed.values().filter(|pod| pod.is_idle()))
    }

    /// When the oldest of them was created.
    pub fn idle_since(&self) -> Option<Timestamp> {
        let of_slots = self.counts.idle.first_key_value().and_then(|(second, _)| Timestamp::from_second(*second).ok());
        let unindexed = self.unindexed.values().filter(|pod| pod.is_idle()).map(|pod| pod.created);
        of_slots.into_iter().chain(unindexed).min()
    }

    /// How many Pods there are of which all workers have run, of open slots and without a completion index.
    pub fn started(&self) -> usize {
        let unindexed = self.unindexed.values().filter(|pod| pod.fills_its_slot() && !pod.unstarted);
        self.counts.started + unindexed.count()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::Ranges;
    use crate::pods::{Kept, ObservedEpochs};

    #[rstest]
    #[case::of_a_slot(Some(0))]
    #[case::without_index(None)]
    fn pod_is_idle_until_its_workers_have_run(#[case] index: Option<i32>) {
        let epochs = ObservedEpochs::default();
        let mut pods = JobPods::of([&Kept::default()], epochs, Ranges::all());
        let pod = PodView { name: "p".into(), uid: "p".into(), index, ..PodView::default() };
        let found = |pods: &JobPods| (pods.idle().count(), pods.started());
        let created = Timestamp::from_second(7).unwrap();
        assert!(pods.apply(PodView { unstarted: true, created, ..pod.clone() }, epochs));
        assert_eq!((found(&pods), pods.idle_since()), ((1, 0), Some(created)));
        assert!(pods.apply(PodView { workers: 7, ..pod.clone() }, epochs));
        assert_eq!(found(&pods), (0, 1));
        let deleted_at = Some(Timestamp::UNIX_EPOCH);
        pods.apply(PodView { unstarted: true, deleted_at, ..pod }, epochs);
        assert_eq!(found(&pods), (0, 0), "it is told to go");
        pods.remove("p", index, epochs);
        assert_eq!((found(&pods), pods.miscounted()), ((0, 0), None));
    }
}
