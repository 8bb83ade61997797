use k8s_openapi::api::coordination::v1::LeaseSpec;
use rstest::rstest;

use super::*;

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn candidate() -> Candidate {
    Candidate::new("lease".to_owned(), "a".to_owned(), Duration::from_secs(15))
}

/// A Lease that candidates other than `a` have had three times.
fn held(holder: &str, renewed: i64) -> Lease {
    held_for(15, 3, holder, renewed)
}

fn held_for(seconds: i32, transitions: i32, holder: &str, renewed: i64) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(seconds),
        acquire_time: Some(MicroTime(time(0))),
        renew_time: Some(MicroTime(time(renewed))),
        lease_transitions: Some(transitions),
        preferred_holder: Some("kept".to_owned()),
        ..LeaseSpec::default()
    };
    Lease { spec: Some(spec), ..Lease::default() }
}

fn with(mut lease: Lease, edit: impl FnOnce(&mut LeaseSpec)) -> Lease {
    edit(lease.spec.get_or_insert_default());
    lease
}

fn waits() -> LeaseDecision {
    LeaseDecision::Wait("b".to_owned())
}

/// The Lease, acquired by `a` in second 1000.
fn acquired(lease: Lease, transitions: i32) -> LeaseDecision {
    let own = with(lease, |spec| {
        let at = || Some(MicroTime(time(1_000)));
        (spec.holder_identity, spec.lease_duration_seconds) = (Some("a".to_owned()), Some(15));
        (spec.acquire_time, spec.renew_time, spec.lease_transitions) = (at(), at(), Some(transitions));
    });
    LeaseDecision::Write(own.into())
}

#[rstest]
#[case::never_held(&[(0, Lease::default())], acquired(Lease::default(), 0))]
#[case::released(&[(0, held("", 0))], acquired(held("", 0), 4))]
#[case::time_of_renewal_long_ago(&[(0, held("b", -9_999))], waits())]
#[case::unchanged_for_less_than_its_duration(&[(0, held("b", 0)), (14, held("b", 0))], waits())]
#[case::unchanged_for_its_duration(&[(0, held("b", 0)), (15, held("b", 0))], acquired(held("b", 0), 4))]
#[case::renewed_in_between(&[(0, held("b", 0)), (14, held("b", 14)), (28, held("b", 14))], waits())]
#[case::renewed_once(&[(0, held("b", 0)), (14, held("b", 14)), (29, held("b", 14))], acquired(held("b", 14), 4))]
#[case::changed_otherwise(&[(0, held("b", 0)), (14, held_for(15, 4, "b", 0)), (28, held_for(15, 4, "b", 0))], waits())]
#[case::own(&[(0, held("a", 0))], LeaseDecision::Write(held("a", 1_000).into()))]
#[case::shorter_duration(&[(0, held_for(5, 3, "b", 0)), (5, held_for(5, 3, "b", 0))], acquired(held("b", 0), 4))]
#[case::no_duration(&[(0, held_for(0, 3, "b", 0))], acquired(held("b", 0), 4))]
fn lease_observed_at_seconds_is_decided(#[case] observed: &[(u64, Lease)], #[case] expected: LeaseDecision) {
    let (mut candidate, start) = (candidate(), Instant::now());
    let decide = |(second, lease): &(u64, Lease)| {
        candidate.observe(Some(lease.clone()), start + Duration::from_secs(*second), time(1_000))
    };
    let mut decisions: Vec<_> = observed.iter().map(decide).collect();
    assert_eq!(decisions.pop(), Some(expected));
    assert!(decisions.iter().all(|earlier| *earlier == waits()), "{decisions:?}");
}

/// The clock of `a` is behind that of the last holder.
#[rstest]
#[case::expired(held("b", 2_000), 2_015)]
#[case::released(held_for(1, 3, "", 2_000), 2_001)]
#[case::no_time_of_renewal(with(held("", 0), |spec| spec.renew_time = None), 1_000)]
#[case::end_of_time(with(held("", 0), |spec| spec.renew_time = Some(MicroTime(Timestamp::MAX))), 1_000)]
fn lease_is_acquired_after_all_that_its_holder_has_stated(#[case] lease: Lease, #[case] second: i64) {
    let (mut candidate, start) = (candidate(), Instant::now());
    candidate.observe(Some(lease.clone()), start, time(1_000));
    let LeaseDecision::Write(own) = candidate.observe(Some(lease), start + Duration::from_secs(15), time(1_000)) else {
        panic!("the Lease has expired");
    };
    candidate.written(*own, start);
    assert_eq!(candidate.acquired_at(), Some(time(second)));
}

#[test]
fn lease_absent_is_created() {
    let mut candidate = candidate();
    let metadata = ObjectMeta { name: Some("lease".to_owned()), ..ObjectMeta::default() };
    let new = acquired(Lease { metadata, spec: None }, 0);
    assert_eq!(candidate.observe(None, Instant::now(), time(1_000)), new);
}

#[test]
fn leader_renews_and_releases_until_another_holds_the_lease() {
    let (mut candidate, now) = (candidate(), Instant::now());
    assert_eq!((candidate.renew(time(5)), candidate.release(time(5))), (None, None));
    candidate.written(held("a", 1), now);
    assert_eq!(candidate.renew(time(5)), Some(held("a", 5)));
    let released = with(held_for(1, 3, "", 6), |spec| spec.acquire_time = Some(MicroTime(time(6))));
    assert_eq!(candidate.release(time(6)), Some(released));
    candidate.observe(Some(held("b", 2)), now, time(7));
    assert_eq!((candidate.renew(time(8)), candidate.release(time(8))), (None, None));
}
