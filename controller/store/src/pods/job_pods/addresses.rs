//! When the Pods of one Job got their addresses.

use k8s_openapi::jiff::Timestamp;

use super::JobPods;
use crate::pods::PodView;

impl JobPods {
    /// The second in which a Pod last got its address, of the newcomers or the members that fill open slots and have reported. Their
    /// nodes give the time. Where a status does not say it yet, it is after all others.
    pub fn youngest_address(&self, of_newcomers: bool) -> Option<Timestamp> {
        let range = (of_newcomers, i64::MIN)..=(of_newcomers, i64::MAX);
        let ((_, second), _) = self.counts.addresses.range(range).next_back()?;
        Timestamp::from_second(*second).ok()
    }

    /// A Pod that got its address in this second. It takes a look at each Pod.
    pub fn with_address_since(&self, second: Timestamp) -> Option<&PodView> {
        let got = |pod: &PodView| pod.address_at_latest().as_second() == second.as_second();
        self.filling().filter(|pod| pod.epoch.number().is_some() && got(pod)).min_by(|a, b| a.name.cmp(&b.name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kept;
    use super::*;
    use crate::Ranges;
    use crate::pods::{Epoch, ObservedEpochs};

    #[test]
    fn youngest_address_is_of_pods_that_have_reported() {
        let epochs = ObservedEpochs { synced: 1, deprecated: 1, lifted_at: None };
        let mut pods = JobPods::of([&Kept::default(), &Kept::default()], epochs, Ranges::all());
        let second = |second| Timestamp::from_second(second).ok();
        let pod = |index: i32, epoch, address| {
            let name = format!("p{index}");
            PodView {
                uid: name.clone(),
                name,
                index: Some(index),
                epoch,
                address_since: second(address),
                ..PodView::default()
            }
        };
        let reported = || Epoch::Reported(2);
        pods.apply(pod(0, reported(), 5), epochs);
        pods.apply(pod(1, Epoch::Absent, 9), epochs);
        assert_eq!(pods.youngest_address(false), second(5));
        pods.apply(pod(1, reported(), 9), epochs);
        assert_eq!(pods.youngest_address(false), second(9));
        assert_eq!(pods.youngest_address(true), None);
        let found = second(9).and_then(|second| pods.with_address_since(second));
        assert_eq!(found.map(|pod| &*pod.name), Some("p1"));
        assert!(!pods.apply(pod(1, reported(), 12), epochs), "an address of itself begins a reconciliation");
        assert_eq!((pods.youngest_address(false), pods.miscounted()), (second(12), None));
        pods.remove("p1", Some(1), epochs);
        assert_eq!((pods.youngest_address(false), pods.miscounted()), (second(5), None));
    }
}
