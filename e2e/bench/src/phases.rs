//! From instants to phases. Pure.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::report::seconds;

/// The phases of one restart, in seconds. They add up to the restart's duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Phases {
    /// In place.
    InPlace {
        /// From the failure, visible at the API server, to `deprecatedEpoch` seen by the benchmark's own watch: what the
        /// controller takes to notice.
        detect: f64,
        /// To the last agent that was told to restart: the broadcast of `deprecatedEpoch`.
        deprecate: f64,
        /// To the answer to the last agent's report: agents begin anew, with a new watch or without, under the full load
        /// after their kubelets have written that all containers restart.
        report: f64,
        /// To `syncedEpoch` seen by the benchmark's own watch: what the controller takes to notice that all are there.
        sync: f64,
        /// To the last agent that lifted its barrier: the broadcast of `syncedEpoch`.
        lift: f64,
    },
    /// By recreation.
    Recreate {
        /// From the failure, visible at the API server, to `status.restarts` seen raised.
        detect: f64,
        /// To the end of the last Pod of the previous attempt.
        delete: f64,
        /// To the creation of the last Pod of the new attempt.
        create: f64,
    },
}

impl Phases {
    /// From the six instants between the phases, in the order of the fields.
    pub(super) fn in_place(instants: [Instant; 6]) -> Self {
        let [detect, deprecate, report, sync, lift] = between(instants);
        Self::InPlace { detect, deprecate, report, sync, lift }
    }

    /// From the four instants between the phases, in the order of the fields.
    pub(super) fn recreate(instants: [Instant; 4]) -> Self {
        let [detect, delete, create] = between(instants);
        Self::Recreate { detect, delete, create }
    }

    /// Names and seconds, in their order.
    pub(super) fn named(&self) -> Vec<(&'static str, f64)> {
        match *self {
            Self::InPlace { detect, deprecate, report, sync, lift } => {
                [("detect", detect), ("deprecate", deprecate), ("report", report), ("sync", sync), ("lift", lift)]
                    .into()
            }
            Self::Recreate { detect, delete, create } => {
                [("detect", detect), ("delete", delete), ("create", create)].into()
            }
        }
    }
}

/// The seconds between neighbours.
///
/// The instants are taken at different connections, and so need not be in order: an agent can hear of an epoch before the
/// benchmark's own watch does. A phase that ended before the one before it took no time, and the sum stays what it is.
pub(super) fn between<const INSTANTS: usize, const PHASES: usize>(instants: [Instant; INSTANTS]) -> [f64; PHASES] {
    const { assert!(INSTANTS == PHASES + 1) };
    let mut latest = instants[0];
    let mut phase = 0;
    [(); PHASES].map(|()| {
        phase += 1;
        let took: Duration = instants[phase].saturating_duration_since(latest);
        latest = latest.max(instants[phase]);
        seconds(took)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::in_order([0, 10, 30, 60, 100, 150], [0.01, 0.02, 0.03, 0.04, 0.05])]
    #[case::an_agent_hears_before_the_own_watch([0, 30, 10, 60, 100, 150], [0.03, 0.0, 0.03, 0.04, 0.05])]
    #[case::the_epoch_is_seen_before_the_last_report_is_answered([0, 10, 30, 80, 60, 150], [0.01, 0.02, 0.05, 0.0, 0.07])]
    #[case::seen_before_the_failure_was_answered([20, 10, 30, 60, 100, 150], [0.0, 0.01, 0.03, 0.04, 0.05])]
    fn phases_add_up_to_the_whole(#[case] milliseconds: [u64; 6], #[case] wanted: [f64; 5]) {
        let start = Instant::now();
        let instants = milliseconds.map(|after| start + Duration::from_millis(after));
        let phases = Phases::in_place(instants);
        let [detect, deprecate, report, sync, lift] = wanted;
        assert_eq!(phases, Phases::InPlace { detect, deprecate, report, sync, lift });
        let sum: f64 = phases.named().iter().map(|(_, seconds)| seconds).sum();
        assert!((sum - seconds(instants[5] - instants[0])).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn phases_of_a_recreation_are_named_in_their_order() {
        let start = Instant::now();
        let phases = Phases::recreate([0, 1, 3, 6].map(|after| start + Duration::from_secs(after)));
        assert_eq!(phases.named(), [("detect", 1.0), ("delete", 2.0), ("create", 3.0)]);
        let json = serde_json::to_value(phases).unwrap();
        assert_eq!(json, serde_json::json!({"detect": 1.0, "delete": 2.0, "create": 3.0}));
    }
}
