//! The parts of a restart's duration. Pure.

use std::fmt;
use std::time::Instant;

use jobset_harness::median::median;
use serde::{Serialize, Serializer};

use crate::report::{rounded, seconds};

/// Names and seconds of the phases of one restart, in their order. They add up to the restart's duration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Phases(pub(crate) Vec<(&'static str, f64)>);

impl Phases {
    /// From the restart's start and the end of each phase.
    ///
    /// The instants come from different connections and need not be in order: an agent can receive an epoch before the
    /// benchmark's own watch does. A phase that ends before the previous one took no time, none lasts beyond the end of the
    /// last, and the sum stays the same.
    pub(crate) fn new<const N: usize>(names: [&'static str; N], start: Instant, ends: [Instant; N]) -> Self {
        let mut latest = start;
        let last = ends.last().copied().unwrap_or(start);
        let phase = |(name, end): (&'static str, Instant)| {
            let end = end.min(last);
            let took = end.saturating_duration_since(latest);
            latest = latest.max(end);
            (name, seconds(took))
        };
        Self(names.into_iter().zip(ends).map(phase).collect())
    }

    /// The median of each phase, in seconds, to a millisecond.
    pub(crate) fn medians<'a>(restarts: impl Iterator<Item = &'a Self>) -> Self {
        let restarts: Vec<&Self> = restarts.collect();
        let of = |index: usize| rounded(median(restarts.iter().map(|phases| phases.0[index].1)), 1e3);
        let names = restarts.first().into_iter().flat_map(|first| &first.0).map(|(name, _)| *name);
        Self(names.enumerate().map(|(index, name)| (name, of(index))).collect())
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phases: Vec<String> = self.0.iter().map(|(name, seconds)| format!("{name} {seconds} s")).collect();
        f.write_str(&phases.join(", "))
    }
}

impl Serialize for Phases {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    const NAMES: [&str; 5] = ["detect", "deprecate", "report", "sync", "lift"];

    #[rstest]
    #[case::in_order([0, 10, 30, 60, 100, 150], [0.01, 0.02, 0.03, 0.04, 0.05])]
    #[case::agent_receives_epoch_before_own_watch([0, 30, 10, 60, 100, 150], [0.03, 0.0, 0.03, 0.04, 0.05])]
    #[case::epoch_observed_before_last_answer([0, 10, 30, 80, 60, 150], [0.01, 0.02, 0.05, 0.0, 0.07])]
    #[case::epoch_observed_after_last_lift([0, 10, 30, 60, 180, 150], [0.01, 0.02, 0.03, 0.09, 0.0])]
    #[case::observed_before_failure_was_answered([20, 10, 30, 60, 100, 150], [0.0, 0.01, 0.03, 0.04, 0.05])]
    fn phases_any_order_add_up_to_duration(#[case] milliseconds: [u64; 6], #[case] expected: [f64; 5]) {
        let origin = Instant::now();
        let [start, ends @ ..] = milliseconds.map(|after| origin + Duration::from_millis(after));
        let phases = Phases::new(NAMES, start, ends);
        assert_eq!(phases.0, NAMES.into_iter().zip(expected).collect::<Vec<_>>());
        let sum: f64 = phases.0.iter().map(|(_, seconds)| seconds).sum();
        assert!((sum - seconds(ends[4] - start)).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn phases_serialize_by_name_and_medians_keep_order() {
        let of = |detect, delete| Phases(vec![("detect", detect), ("delete", delete)]);
        let medians = Phases::medians([of(1.0, 5.0), of(2.0, 3.000_4), of(9.0, 4.0)].iter());
        assert_eq!(medians, of(2.0, 4.0));
        assert_eq!(serde_json::to_string(&medians).unwrap(), r#"{"detect":2.0,"delete":4.0}"#);
        assert_eq!(medians.to_string(), "detect 2 s, delete 4 s");
        assert_eq!(Phases::medians([].iter()), Phases::default());
    }
}
