use jobset_api::GroupProgress;
use rstest::rstest;

use super::*;

fn at(millisecond: i64) -> Timestamp {
    Timestamp::from_millisecond(millisecond).unwrap()
}

/// A ledger of 100 s of scheduling and 10 s of running, which runs since second 110.
fn ledger(bucket: LedgerBucket) -> Ledger {
    let milliseconds = LedgerTimes { scheduling: 100_000, running: 10_000, ..LedgerTimes::default() };
    let since = MicroTime(at(110_000));
    Ledger { milliseconds, bucket, since, ..begin(&JobSetStatus::default(), None, false, at(0)) }
}

#[rstest]
#[case::forward(115_000, [100_000, 15_000], 115_000)]
#[case::same_moment(110_000, [100_000, 10_000], 110_000)]
#[case::back(105_000, [95_000, 10_000], 105_000)]
#[case::back_to_before_its_begin(-50_000, [0, 10_000], 10_000)]
fn sums_follow_the_clock_and_are_never_negative(#[case] now: i64, #[case] sums: [i64; 2], #[case] since: i64) {
    let mut ledger = ledger(LedgerBucket::Running);
    advance(&mut ledger, at(now), None);
    let LedgerTimes { scheduling, running, .. } = ledger.milliseconds;
    assert_eq!(([scheduling, running], ledger.since.0), (sums, at(since)));
}

#[test]
fn fractions_of_milliseconds_are_not_lost() {
    let mut ledger = ledger(LedgerBucket::Running);
    let step = SignedDuration::from_micros(1500);
    for number in 1..=1000 {
        advance(&mut ledger, at(110_000).checked_add(step * number).unwrap(), None);
    }
    assert_eq!((ledger.milliseconds.running, ledger.since.0), (11_500, at(111_500)));
}

#[rstest]
#[case::in_between(Some(112_000), [102_000, 3_000])]
#[case::before(Some(50_000), [100_000, 5_000])]
#[case::clock_of_node_ahead(Some(200_000), [105_000, 0])]
#[case::unknown(None, [105_000, 0])]
fn scheduling_ends_when_the_last_pod_has_its_address(#[case] placed: Option<i64>, #[case] sums: [i64; 2]) {
    let mut ledger = ledger(LedgerBucket::Scheduling);
    advance(&mut ledger, at(115_000), placed.map(|placed| (LedgerBucket::Starting, at(placed))));
    let LedgerTimes { scheduling, starting, .. } = ledger.milliseconds;
    assert_eq!([scheduling, starting], sums);
}

/// An epoch that has run for 100 s.
#[rstest]
#[case::first_epoch(None, Some(100), Some(60), (40, 40_000))]
#[case::later_epoch(Some(60), Some(100), Some(60), (40, 100_000))]
#[case::checkpoint_in_it(Some(60), Some(100), Some(80), (20, 50_000))]
#[case::checkpoint_at_its_end(Some(60), Some(100), Some(100), (0, 0))]
#[case::no_checkpoint_ever(None, Some(100), None, (0, 0))]
#[case::no_step_ever(None, None, Some(60), (0, 0))]
#[case::no_step_done(Some(100), Some(100), Some(100), (0, 0))]
#[case::nothing_done_again_yet(Some(60), Some(60), Some(60), (0, 0))]
#[case::failed_before_the_step_of_the_epoch_before(Some(60), Some(61), Some(60), (1, 100_000))]
#[case::checkpoint_before_it(Some(60), Some(90), Some(85), (5, 16_666))]
#[case::extremes(Some(i64::MIN), Some(i64::MAX), Some(i64::MIN), (i64::MAX, 100_000))]
fn restart_loses_steps_since_checkpoint(
    #[case] checkpoint_at_restart: Option<i64>,
    #[case] step: Option<i64>,
    #[case] checkpoint: Option<i64>,
    #[case] expected: (i64, i64),
) {
    let progress = GroupProgress { step: Some(100), checkpoint_at_restart, ..GroupProgress::default() };
    let epoch_transition_time = Some(MicroTime(at(0)));
    let status =
        JobSetStatus { synced_epoch: 1, progress: Some(progress), epoch_transition_time, ..JobSetStatus::default() };
    let Lost { steps, milliseconds } = lost(&status, &EpochSteps { step, checkpoint }, at(100_000));
    assert_eq!((steps, milliseconds), expected);
}

#[rstest]
#[case::new(JobSetStatus::default(), 0)]
#[case::of_an_earlier_release(JobSetStatus { jobs_ready: "1/1".to_owned(), ..JobSetStatus::default() }, 60_000)]
fn ledger_begins_with_the_jobset_or_when_first_seen(#[case] stored: JobSetStatus, #[case] since: i64) {
    assert_eq!(begin(&stored, Some(at(0)), false, at(60_000)).since.0, at(since));
}
