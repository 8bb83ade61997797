//! Each violation, by a group that has it and nothing else.

use std::time::Duration;

use rstest::rstest;

use super::super::facts::WorkerProcess;
use super::*;
use jobset_harness::journal::Entry;

const SLOTS: [&str; 2] = ["g-w-0-0", "g-w-0-1"];

/// The Pod of a slot, the `generation`th that was created for it.
fn pod(slot: &str, generation: usize, epoch: i32) -> PodFacts {
    PodFacts {
        slot: slot.to_owned(),
        name: format!("{slot}-pod{generation}"),
        uid: format!("{slot}-uid{generation}"),
        epoch: Some(epoch),
        restarts: 0,
    }
}

fn start(pod: &PodFacts, epoch: impl Into<Option<i32>>) -> Entry {
    Entry {
        event: "start".to_owned(),
        time: 0.0,
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        node: None,
        ip: None,
        epoch: epoch.into(),
        code: None,
    }
}

/// A healthy group that has restarted `restarts` times in place.
fn group(restarts: i32) -> Facts {
    let epoch = restarts + 1;
    let mut facts = Facts { pods: SLOTS.iter().map(|slot| pod(slot, 0, epoch)).collect(), ..Facts::default() };
    facts.status.synced_epoch = epoch;
    facts.status.group_restarts = restarts;
    facts.status.restarts_count_towards_max = restarts;
    facts.running = facts.pods.iter().map(|pod| WorkerProcess { uid: pod.uid.clone(), epoch: Some(epoch) }).collect();
    facts.entries = (1..=epoch).flat_map(|epoch| facts.pods.iter().map(move |pod| start(pod, epoch))).collect();
    facts
}

/// The first slot has another Pod.
fn replace_first(facts: &mut Facts) {
    let epoch = facts.status.synced_epoch;
    facts.pods[0] = pod(SLOTS[0], 1, epoch);
    facts.running[0].uid.clone_from(&facts.pods[0].uid);
    facts.entries.retain(|entry| slot(&entry.pod) != SLOTS[0] || entry.epoch != Some(epoch));
    facts.entries.push(start(&facts.pods[0], epoch));
}

fn one_restart() -> Expectation {
    Expectation { restarts: 1, within: Duration::from_secs(1), ..Expectation::default() }
}

fn first() -> String {
    SLOTS[0].to_owned()
}

#[rstest]
#[case::a_restart_in_place(group(2), group(3), one_restart())]
#[case::nothing_happened(group(2), group(2), Expectation::untouched())]
#[case::five_restarts(group(2), group(7), Expectation { restarts: 5, ..one_restart() })]
fn group_healthy_has_no_violation(#[case] before: Facts, #[case] after: Facts, #[case] expected: Expectation) {
    assert_eq!(check(&before, &after, &expected), []);
}

#[test]
fn pod_replaced_as_expected_is_no_violation() {
    let mut after = group(3);
    replace_first(&mut after);
    let expected = Expectation { replaced: [first()].into(), ..one_restart() };
    assert_eq!(check(&group(2), &after, &expected), []);
}

#[rstest]
#[case::ended(|after: &mut Facts| after.status.terminal_state = "Failed".into(), "the JobSet has ended: Failed", false)]
#[case::counted_apart(
    |after: &mut Facts| { after.status.group_restarts = 4; after.status.synced_epoch = 5; advance(after, 5); },
    "4 restarts, 3 counted", false
)]
#[case::recreated(|after: &mut Facts| after.status.restarts = 1, "1 restarts by recreation, not 0", false)]
#[case::epoch_too_high(
    |after: &mut Facts| { after.status.synced_epoch = 5; advance(after, 5); },
    "syncedEpoch is 5 after 3 restarts", false
)]
#[case::not_yet_lifted(
    |after: &mut Facts| { *after = Facts { status: after.status.clone(), ..group(2) }; after.status.synced_epoch = 3; },
    "syncedEpoch is 3 after 3 restarts", true
)]
#[case::replaced(replace_first, "the Pod of g-w-0-0 was replaced", false)]
#[case::no_report(
    |after: &mut Facts| after.pods[0].epoch = None,
    "g-w-0-0-pod0 has reported no epoch, and epoch 4 runs", true
)]
#[case::old_report(
    |after: &mut Facts| after.pods[0].epoch = Some(3),
    "g-w-0-0-pod0 has reported epoch 3, and epoch 4 runs", true
)]
#[case::started_twice_in_one_pod(
    |after: &mut Facts| after.entries.push(start(&pod(SLOTS[0], 0, 4), 4)),
    "the worker of g-w-0-0 started 2 times in epoch 4", false
)]
#[case::started_twice_in_an_old_epoch_in_two_pods(
    |after: &mut Facts| after.entries.push(start(&pod(SLOTS[0], 1, 2), 2)),
    "the worker of g-w-0-0 started 2 times in epoch 2", false
)]
#[case::epoch_unknown(
    |after: &mut Facts| after.entries.push(start(&pod(SLOTS[0], 0, 4), None)),
    "a worker of g-w-0-0-pod0 started without knowing its epoch", false
)]
#[case::not_started(
    |after: &mut Facts| after.entries.retain(|entry| slot(&entry.pod) != SLOTS[0] || entry.epoch != Some(4)),
    "the worker of g-w-0-0 has not started in epoch 4", true
)]
#[case::dead(|after: &mut Facts| drop(after.running.remove(0)), "no worker of g-w-0-0-pod0 is alive", true)]
#[case::outlived(
    |after: &mut Facts| after.running.push(WorkerProcess { uid: "g-w-0-0-uid0".into(), epoch: Some(3) }),
    "a worker of epoch 3 is alive in Pod UID g-w-0-0-uid0, and epoch 4 runs", true
)]
#[case::outlived_its_pod(
    |after: &mut Facts| after.running.push(WorkerProcess { uid: "gone".into(), epoch: Some(4) }),
    "a worker of epoch 4 is alive in Pod UID gone, and epoch 4 runs", true
)]
fn group_spoiled_has_that_violation_alone(#[case] spoil: fn(&mut Facts), #[case] text: &str, #[case] may_pass: bool) {
    let mut after = group(3);
    spoil(&mut after);
    assert_eq!(check(&group(2), &after, &one_restart()), [Violation { text: text.to_owned(), may_pass }]);
}

/// The same group in another epoch, whatever its status says.
fn advance(facts: &mut Facts, epoch: i32) {
    for pod in &mut facts.pods {
        pod.epoch = Some(epoch);
        facts.entries.push(start(pod, epoch));
    }
    facts.running.iter_mut().for_each(|worker| worker.epoch = Some(epoch));
}

#[rstest]
#[case::one_too_many(group(4), "2 restarts of the group, not 1", false)]
#[case::none(group(2), "0 restarts of the group, not 1", true)]
fn restarts_unexpected_are_a_violation(#[case] after: Facts, #[case] text: &str, #[case] may_pass: bool) {
    assert_eq!(check(&group(2), &after, &one_restart()), [Violation { text: text.to_owned(), may_pass }]);
}

#[test]
fn pod_kept_against_expectation_is_a_violation() {
    let expected = Expectation { replaced: [first()].into(), ..one_restart() };
    let violations = check(&group(2), &group(3), &expected);
    assert_eq!(violations, [Violation::passing("the Pod of g-w-0-0 was not replaced")]);
}

#[test]
fn slot_with_other_than_one_pod_is_a_violation() {
    let mut after = group(3);
    let lost = after.pods.remove(0);
    after.running.remove(0);
    assert_eq!(check(&group(2), &after, &one_restart()), [Violation::passing("g-w-0-0 has 0 Pods")]);
    let mut after = group(3);
    after.pods.push(PodFacts { uid: "other".into(), ..lost });
    after.running.push(WorkerProcess { uid: "other".into(), epoch: Some(4) });
    assert_eq!(check(&group(2), &after, &one_restart()), [Violation::passing("g-w-0-0 has 2 Pods")]);
}
