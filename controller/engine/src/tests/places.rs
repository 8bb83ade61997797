//! Requests that hang, in any number of namespaces, and what they leave to others.

use std::collections::HashMap;

use jobset_store::*;
use proptest::prelude::*;
use rstest::rstest;

use super::schedule::key;
use super::slow_cluster::{
    ALL_HANG, CREATIONS_HANG, Delays, EngineMutation, GIVEN_UP, JOBS, NO_DELAY, SLOW_MILLIS, STATUS_HANGS, SlowCluster,
};
use crate::*;

/// How long the JobSet of a namespace in which nothing hangs waits for its next urgent work, and a new one for its first work with
/// actions, beside namespaces whose requests have begun to hang so many seconds before.
fn waits_beside(namespaces: usize, delays: Delays, seconds: u64, broken: Option<EngineMutation>) -> (u64, u64) {
    let mut cluster = SlowCluster::new(broken);
    cluster.create_namespaces("well", 1, NO_DELAY);
    cluster.run(1_000);
    cluster.create_namespaces("hangs", namespaces, delays);
    cluster.run(1_000 + 1_000 * seconds);
    let (mut longest, mut longest_of_new) = (0, 0);
    for round in 0..10 {
        let new = format!("well0/{round}");
        cluster.mark("well0/train");
        cluster.create(&new);
        cluster.run(cluster.millis + 7_137);
        let wait = |waits: &HashMap<Key, u64>, name: &str| waits.get(&key(name)).copied().unwrap_or(u64::MAX);
        longest = longest.max(wait(&cluster.waits, "well0/train"));
        longest_of_new = longest_of_new.max(wait(&cluster.waits_for_actions, &new));
    }
    assert!(cluster.most_slow <= SLOW_REQUESTS, "{} slow requests", cluster.most_slow);
    (longest, longest_of_new)
}

#[rstest]
#[case::one(1, ALL_HANG, 1)]
#[case::two(2, CREATIONS_HANG, 1)]
#[case::as_many_as_places(16, CREATIONS_HANG, 1)]
#[case::status(16, STATUS_HANGS, 1)]
#[case::steady(16, Delays { status: 3_000, creation: 30_000 }, 1)]
#[case::many(200, STATUS_HANGS, 20)]
#[case::thousand(1_000, ALL_HANG, 120)]
fn next_beside_namespaces_that_hang_begins_urgent_work_at_once(
    #[case] namespaces: usize,
    #[case] delays: Delays,
    #[case] seconds: u64,
) {
    let waits = waits_beside(namespaces, delays, seconds, None);
    assert!(waits.0 <= SLOW_MILLIS && waits.1 <= SLOW_MILLIS, "{waits:?} ms");
}

#[rstest]
#[case::slow_keeps_place(EngineMutation::SlowKeepsPlace, 32, 1)]
#[case::hangs_forgotten(EngineMutation::HangsForgotten, 300, 20)]
fn next_broken_rule_delays_urgent_work(
    #[case] broken: EngineMutation,
    #[case] namespaces: usize,
    #[case] seconds: u64,
) {
    let waits = waits_beside(namespaces, ALL_HANG, seconds, Some(broken));
    assert!(waits.0 > SLOW_MILLIS || waits.1 > SLOW_MILLIS, "{waits:?} ms");
}

#[test]
#[should_panic(expected = "slow requests")]
fn next_slow_requests_that_are_not_cut_exceed_their_limit() {
    waits_beside(200, ALL_HANG, 5, Some(EngineMutation::SlowUnbounded));
}

/// Of namespaces that nobody knows to hang, all places are taken by creations at once. Status writes have others.
#[test]
fn status_writes_go_on_while_creations_hang() {
    let mut cluster = SlowCluster::new(None);
    cluster.create_namespaces("well", 1, NO_DELAY);
    cluster.run(1_000);
    cluster.create_namespaces("hangs", 200, CREATIONS_HANG);
    cluster.mark("well0/train");
    cluster.run(3_000);
    assert!(cluster.waits[&key("well0/train")] <= 500, "{:?}", cluster.waits);
}

/// A namespace whose requests hung once has its turn again as soon as they do not, beside others that hang all the time.
#[test]
fn namespace_that_hung_once_passes_those_that_always_hang() {
    let mut cluster = SlowCluster::new(None);
    cluster.create_namespaces("well", 1, NO_DELAY);
    cluster.run(1_000);
    cluster.create_namespaces("hangs", 200, ALL_HANG);
    cluster.set_delays("well0", ALL_HANG);
    cluster.mark("well0/train");
    cluster.run(10_000 + GIVEN_UP);
    cluster.set_delays("well0", NO_DELAY);
    let waits = |cluster: &mut SlowCluster| {
        cluster.mark("well0/train");
        cluster.run(cluster.millis + 7_137);
        cluster.waits[&key("well0/train")]
    };
    // The first may wait for the back-off after the failure.
    waits(&mut cluster);
    let waits: Vec<u64> = (0..10).map(|_| waits(&mut cluster)).collect();
    assert!(waits.iter().all(|wait| *wait <= SLOW_MILLIS), "{waits:?} ms");
}

/// What happens to a namespace.
#[derive(Clone, Copy, Debug)]
enum Change {
    Create,
    Edit,
    Delete,
    Delay(Delays),
}

fn any_change() -> impl Strategy<Value = Change> {
    let delay = prop_oneof![Just(20), 200_u64..GIVEN_UP, Just(GIVEN_UP)];
    let delays = (delay.clone(), delay).prop_map(|(status, creation)| Change::Delay(Delays { status, creation }));
    prop_oneof![
        4 => Just(Change::Create),
        4 => Just(Change::Edit),
        1 => Just(Change::Delete),
        2 => delays,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 100, ..ProptestConfig::with_cases(100) })]

    /// Whatever others do, urgent work begins in bounded time, no more requests are slow than may be, and what has hung is
    /// carried out once it does not hang any more.
    #[test]
    fn next_whatever_others_do_begins_urgent_work_in_bounded_time(
        changes in prop::collection::vec((0_u64..6_000, 0_usize..20, any_change()), 1..40)
    ) {
        let mut cluster = SlowCluster::new(None);
        cluster.create_namespaces("well", 1, NO_DELAY);
        cluster.create_namespaces("other", 20, ALL_HANG);
        let mut jobsets: Vec<Vec<String>> = (0..20).map(|index| vec![format!("other{index}/train")]).collect();
        for (number, (millis, namespace, change)) in changes.into_iter().enumerate() {
            let others = &mut jobsets[namespace];
            match change {
                Change::Create => {
                    others.push(format!("other{namespace}/{number}"));
                    cluster.create(&others[others.len() - 1]);
                }
                Change::Edit => others.iter().for_each(|name| cluster.mark(name)),
                Change::Delete => others.pop().iter().for_each(|name| cluster.delete(name)),
                Change::Delay(delays) => cluster.set_delays(&format!("other{namespace}"), delays),
            }
            // Each place is given back in time for the next of those that wait longer.
            let waiting = u64::try_from(cluster.world.engine.depth()).unwrap();
            cluster.mark("well0/train");
            let bound = SLOW_MILLIS * (1 + waiting / 16);
            cluster.run(cluster.millis + bound.max(millis));
            let wait = cluster.waits[&key("well0/train")];
            prop_assert!(wait <= bound, "{} ms, and {} waited", wait, waiting);
            prop_assert!(cluster.most_slow <= SLOW_REQUESTS, "{} slow requests", cluster.most_slow);
        }
        (0..20).for_each(|index| cluster.set_delays(&format!("other{index}"), NO_DELAY));
        cluster.run(cluster.millis + 300_000);
        prop_assert_eq!((cluster.slow.len(), cluster.world.engine.depth()), (0, 0));
        for name in jobsets.iter().flatten() {
            let jobs = cluster.world.engine.store.entry(&key(name)).unwrap().jobs.len();
            prop_assert_eq!(jobs, JOBS, "Jobs of {}", name);
        }
    }
}
