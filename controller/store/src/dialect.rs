//! The Go JobSet's dialect of in-place restart, translated where the engine takes in JobSets and Pods and where a status is
//! written. The rules know epochs alone.
//!
//! | Go JobSet | here |
//! |---|---|
//! | Pod annotation `in-place-restart-attempt`, from 0 | epoch = attempt + 1 |
//! | `status` | [`jobset_api::dialect`] |
//!
//! A JobSet speaks this dialect once its status has a current attempt, or one of its Pods reports in Go's words. Its
//! status is then written in both dialects.

use std::collections::BTreeMap;

use jobset_api::labels;

pub use jobset_api::dialect::{decode, encode};

use crate::pods::Epoch;

/// What the agent of a Pod with these annotations has reported.
pub fn reported(annotations: &BTreeMap<String, String>) -> Epoch {
    match (annotations.get(labels::EPOCH), annotations.get(labels::IN_PLACE_RESTART_ATTEMPT)) {
        (None, Some(attempt)) => match Epoch::of(Some(attempt)) {
            Epoch::Reported(attempt) => Epoch::Reported(attempt.saturating_add(1)),
            unreadable => unreadable,
        },
        (epoch, _) => Epoch::of(epoch),
    }
}

/// Whether the agent of a Pod with these annotations is the Go JobSet's.
pub(crate) fn reports_attempt(annotations: &BTreeMap<String, String>) -> bool {
    annotations.contains_key(labels::IN_PLACE_RESTART_ATTEMPT)
}

#[cfg(test)]
mod tests {
    use jobset_api::JobSetStatus;
    use jobset_api::dialect::attempt;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn of(epochs: (i32, i32, i32), restarts: i32, counted: i32) -> JobSetStatus {
        let (synced_epoch, deprecated_epoch, free_epoch) = epochs;
        JobSetStatus {
            synced_epoch,
            deprecated_epoch,
            free_epoch,
            restarts,
            restarts_count_towards_max: counted,
            jobs_ready: "1/1".to_owned(),
            ..JobSetStatus::default()
        }
    }

    /// Status as the Go manager writes it.
    fn go(current: Option<i32>, previous: Option<i32>, restarts: i32, counted: i32) -> JobSetStatus {
        JobSetStatus {
            current_in_place_restart_attempt: current,
            previous_in_place_restart_attempt: previous,
            restarts,
            restarts_count_towards_max: counted,
            ..JobSetStatus::default()
        }
    }

    /// What the Go manager leaves of a status that it writes.
    fn written_by_go(status: &JobSetStatus) -> JobSetStatus {
        JobSetStatus {
            jobs_ready: String::new(),
            group_restarts: 0,
            synced_epoch: 0,
            deprecated_epoch: 0,
            free_epoch: 0,
            ..status.clone()
        }
    }

    fn decoded(mut status: JobSetStatus) -> JobSetStatus {
        decode(&mut status);
        status
    }

    /// How many restarts the Go manager compares with maxRestarts when this is the highest attempt of a Pod.
    fn counted_by_go(status: &JobSetStatus, attempt: i32) -> i32 {
        attempt - (status.restarts - status.restarts_count_towards_max)
    }

    #[rstest]
    #[case::no_agent(&[], Epoch::Absent)]
    #[case::own(&[("epoch", "2")], Epoch::Reported(2))]
    #[case::go_first(&[("in-place-restart-attempt", "0")], Epoch::Reported(1))]
    #[case::go_later(&[("in-place-restart-attempt", "6")], Epoch::Reported(7))]
    #[case::own_wins(&[("in-place-restart-attempt", "6"), ("epoch", "2")], Epoch::Reported(2))]
    #[case::go_malformed(&[("in-place-restart-attempt", "six")], Epoch::Malformed("six".into()))]
    #[case::go_highest(&[("in-place-restart-attempt", "2147483647")], Epoch::Reported(i32::MAX))]
    fn report_annotations_decode(#[case] annotations: &[(&str, &str)], #[case] wanted: Epoch) {
        let key = |name: &str| format!("jobset.sigs.k8s.io/{name}");
        let annotations = annotations.iter().map(|(name, value)| (key(name), (*value).to_owned())).collect();
        assert_eq!(reported(&annotations), wanted);
    }

    // (syncedEpoch, deprecatedEpoch), groupRestarts, restarts that count.
    #[rstest]
    #[case::first_lift(go(Some(0), None, 0, 0), (1, 0), 0, 0)]
    #[case::restart_begun(go(Some(0), Some(0), 0, 0), (1, 1), 1, 1)]
    #[case::restart_over(go(Some(1), Some(0), 0, 0), (2, 1), 1, 1)]
    #[case::all_failed_at_once(go(Some(2), None, 0, 0), (3, 0), 2, 2)]
    #[case::counted_recreation(go(Some(1), Some(0), 1, 1), (2, 1), 1, 1)]
    #[case::uncounted_recreation(go(Some(1), Some(0), 1, 0), (2, 1), 1, 0)]
    #[case::deprecated_without_lift(go(None, Some(3), 0, 0), (0, 0), 0, 0)]
    fn go_status_decodes(
        #[case] stored: JobSetStatus,
        #[case] epochs: (i32, i32),
        #[case] group_restarts: i32,
        #[case] counted: i32,
    ) {
        let status = decoded(stored);
        assert_eq!((status.synced_epoch, status.deprecated_epoch), epochs);
        assert_eq!((status.group_restarts, status.restarts_count_towards_max), (group_restarts, counted));
    }

    // What the Go manager would have written after the same events: current, previous, restartsCountTowardsMax.
    #[rstest]
    #[case::first_lift(of((1, 0, 0), 0, 0), (Some(0), None, 0))]
    #[case::restart_begun(of((1, 1, 0), 0, 1), (Some(0), Some(0), 0))]
    #[case::restart_over(of((2, 1, 0), 0, 1), (Some(1), Some(0), 0))]
    #[case::recreation_begun(of((1, 1, 0), 1, 1), (Some(0), Some(0), 1))]
    #[case::recreation_over(of((2, 1, 0), 1, 1), (Some(1), Some(0), 1))]
    #[case::uncounted_recreation_begun(of((1, 1, 2), 1, 0), (Some(0), Some(0), 0))]
    #[case::resume_begun(of((1, 1, 2), 0, 0), (Some(0), Some(0), -1))]
    #[case::resume_over(of((2, 1, 0), 0, 0), (Some(1), Some(0), -1))]
    fn rules_status_encodes_for_go(#[case] status: JobSetStatus, #[case] wanted: (Option<i32>, Option<i32>, i32)) {
        let stored = encode(status, true);
        let pair = (stored.current_in_place_restart_attempt, stored.previous_in_place_restart_attempt);
        assert_eq!((pair.0, pair.1, stored.restarts_count_towards_max), wanted);
    }

    #[test]
    fn own_dialect_is_stored_as_it_is() {
        let status = of((3, 2, 0), 1, 2);
        assert_eq!(encode(status.clone(), false), status);
        assert_eq!(decoded(status.clone()), status);
        let not_lifted = of((0, 0, 0), 1, 1);
        assert_eq!(encode(not_lifted.clone(), true), not_lifted);
    }

    fn statuses() -> impl Strategy<Value = JobSetStatus> {
        (1..1000_i32, 0..100_i32, any::<bool>(), any::<bool>(), 0..1000_i32).prop_map(
            |(synced, restarts, restarting, free, counted)| {
                let deprecated = if restarting { synced } else { synced - 1 };
                of((synced, deprecated, if free && restarting { synced + 1 } else { 0 }), restarts, counted)
            },
        )
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(status in statuses()) {
            let stored = encode(status.clone(), true);
            let read = decoded(stored.clone());
            let known = |status: JobSetStatus| JobSetStatus {
                current_in_place_restart_attempt: None, previous_in_place_restart_attempt: None, ..status
            };
            prop_assert_eq!(known(read.clone()), status);
            prop_assert_eq!(encode(read, false), stored);
        }

        /// To and fro: the Go manager counts what the rules have counted, and so do the rules when they come again.
        #[test]
        fn budget_survives_the_go_manager(status in statuses()) {
            let stored = encode(status.clone(), true);
            let begun = attempt(&status);
            prop_assert_eq!(counted_by_go(&stored, begun), status.restarts_count_towards_max);
            let back = decoded(written_by_go(&stored));
            prop_assert_eq!(back.restarts_count_towards_max, status.restarts_count_towards_max);
            prop_assert_eq!((back.synced_epoch, back.deprecated_epoch), (status.synced_epoch, status.deprecated_epoch));
            prop_assert_eq!(written_by_go(&encode(back.clone(), false)), written_by_go(&stored));
        }

        #[test]
        fn any_stored_status_is_read(
            current in any::<Option<i32>>(), previous in any::<Option<i32>>(),
            restarts in any::<i32>(), counted in any::<i32>(), free in any::<i32>(),
        ) {
            let read = decoded(JobSetStatus { free_epoch: free, ..go(current, previous, restarts, counted) });
            prop_assert!(0 <= read.deprecated_epoch && read.deprecated_epoch <= read.synced_epoch);
            encode(read, true);
        }
    }
}
