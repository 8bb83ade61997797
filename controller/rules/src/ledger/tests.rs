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

/// A leader that was an hour ahead has written while the group waited, and another one follows a minute later.
#[rstest]
#[case::what_the_last_write_added(Some((LedgerBucket::Waiting, 3_605_000)), [7_200_000, 65_000])]
#[case::no_more_than_it_added(Some((LedgerBucket::Waiting, 5_000)), [3_665_000, 3_600_000])]
#[case::written_by_the_release_before(None, [3_660_000, 3_605_000])]
fn surplus_goes_from_the_last_addition_first(#[case] last: Option<(LedgerBucket, i64)>, #[case] sums: [i64; 2]) {
    let milliseconds = LedgerTimes { running: 7_200_000, waiting: 3_605_000, ..LedgerTimes::default() };
    let last_addition =
        last.map(|(bucket, milliseconds)| LedgerAddition { bucket, milliseconds, later: LaterFields::new() });
    let since = MicroTime(at(10_805_000));
    let mut ledger = Ledger { milliseconds, since, last_addition, ..ledger(LedgerBucket::Restarting) };
    advance(&mut ledger, at(7_265_000), None);
    assert_eq!([ledger.milliseconds.running, ledger.milliseconds.waiting], sums);
    assert_eq!((ledger.since.0, ledger.last_addition), (at(7_265_000), None));
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

#[rstest]
#[case::new(JobSetStatus::default(), 0)]
#[case::of_an_earlier_release(JobSetStatus { jobs_ready: "1/1".to_owned(), ..JobSetStatus::default() }, 60_000)]
fn ledger_begins_with_the_jobset_or_when_first_seen(#[case] stored: JobSetStatus, #[case] since: i64) {
    assert_eq!(begin(&stored, Some(at(0)), false, at(60_000)).since.0, at(since));
}
