use rstest::rstest;

use super::*;

const DURATION: Duration = Duration::from_secs(15);

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn held(holder: &str, renewed: i64) -> Record {
    Record {
        holder: holder.to_owned(),
        duration: DURATION,
        acquired: Some(time(0)),
        renewed: Some(time(renewed)),
        transitions: 3,
    }
}

/// A candidate `a`, what it decides at each of these seconds of its own clock, and whether it wrote.
fn decisions(seen: &[(u64, Option<Record>)]) -> Vec<LeaseDecision> {
    let mut candidate = Candidate::new("a".to_owned(), DURATION);
    let start = Instant::now();
    seen.iter()
        .map(|(second, record)| candidate.observe(record.clone(), start + Duration::from_secs(*second), time(1_000)))
        .collect()
}

fn wait() -> LeaseDecision {
    LeaseDecision::Wait { holder: "b".to_owned() }
}

fn taken(transitions: i32) -> LeaseDecision {
    LeaseDecision::Write(Record { transitions, acquired: Some(time(1_000)), ..held("a", 1_000) })
}

#[rstest]
#[case::absent(&[(0, None)], vec![taken(0)])]
#[case::installed_and_never_held(&[(0, Some(Record::of(&Lease::default())))], vec![taken(0)])]
#[case::released(&[(0, Some(held("", 0)))], vec![taken(4)])]
#[case::held_by_another_however_old_it_says_it_is(&[(0, Some(held("b", -9_999)))], vec![wait()])]
#[case::unchanged_for_less_than_its_duration(&[(0, Some(held("b", 0))), (14, Some(held("b", 0)))], vec![wait(), wait()])]
#[case::unchanged_for_its_duration(&[(0, Some(held("b", 0))), (15, Some(held("b", 0)))], vec![wait(), taken(4)])]
#[case::renewed_in_between(
    &[(0, Some(held("b", 0))), (14, Some(held("b", 14))), (28, Some(held("b", 14)))],
    vec![wait(), wait(), wait()]
)]
#[case::renewed_in_between_and_then_no_more(
    &[(0, Some(held("b", 0))), (14, Some(held("b", 14))), (29, Some(held("b", 14)))],
    vec![wait(), wait(), taken(4)]
)]
#[case::changed_hands(
    &[(0, Some(held("b", 0))), (14, Some(Record { transitions: 4, ..held("b", 0) })), (28, Some(Record { transitions: 4, ..held("b", 0) }))],
    vec![wait(), wait(), wait()]
)]
#[case::its_own_is_renewed_and_keeps_the_time_of_acquisition(
    &[(0, Some(held("a", 0)))],
    vec![LeaseDecision::Write(held("a", 1_000))]
)]
#[case::of_a_shorter_duration(
    &[(0, Some(Record { duration: Duration::from_secs(5), ..held("b", 0) })),
      (5, Some(Record { duration: Duration::from_secs(5), ..held("b", 0) }))],
    vec![wait(), taken(4)]
)]
#[case::without_a_duration(&[(0, Some(Record { duration: Duration::ZERO, ..held("b", 0) }))], vec![taken(4)])]
fn a_lease(#[case] seen: &[(u64, Option<Record>)], #[case] wanted: Vec<LeaseDecision>) {
    assert_eq!(decisions(seen), wanted);
}

#[test]
fn a_leader_renews_and_releases_what_it_wrote_and_others_cannot() {
    let mut candidate = Candidate::new("a".to_owned(), DURATION);
    assert_eq!((candidate.renew(time(5)), candidate.release(time(5))), (None, None));
    let now = Instant::now();
    candidate.written(held("a", 1), now);
    assert_eq!(candidate.renew(time(5)), Some(held("a", 5)));
    let released = Record { acquired: Some(time(6)), duration: Duration::from_secs(1), ..held("", 6) };
    assert_eq!(candidate.release(time(6)), Some(released));
    candidate.observe(Some(held("b", 2)), now, time(7));
    assert_eq!((candidate.renew(time(8)), candidate.release(time(8))), (None, None));
}

#[test]
fn a_record_is_read_back_as_written_and_leaves_the_rest_of_the_lease_alone() {
    let mut lease = Lease {
        spec: Some(LeaseSpec { preferred_holder: Some("c".to_owned()), ..LeaseSpec::default() }),
        ..Lease::default()
    };
    held("a", 9).write(&mut lease);
    assert_eq!(Record::of(&lease), held("a", 9));
    assert_eq!(lease.spec.unwrap().preferred_holder.as_deref(), Some("c"));
    assert_eq!(Record::of(&Lease::default()), Record::default());
}

#[rstest]
#[case(15_000, 10_000, 2_000, true)]
#[case(15_500, 10_000, 2_000, false)]
#[case(10_000, 10_000, 2_000, false)]
#[case(15_000, 2_400, 2_000, false)]
#[case(3_000, 2_000, 500, true)]
fn durations_must_fit(#[case] lease: u64, #[case] renew: u64, #[case] retry: u64, #[case] fit: bool) {
    let terms = Terms {
        namespace: String::new(),
        name: String::new(),
        identity: String::new(),
        lease_duration: Duration::from_millis(lease),
        renew_deadline: Duration::from_millis(renew),
        retry_period: Duration::from_millis(retry),
    };
    assert_eq!(terms.check().is_ok(), fit);
}
