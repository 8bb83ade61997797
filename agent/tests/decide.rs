//! The agent's rules: tables of what it does after what, and properties over all orders of events.

use std::time::Duration;

use jobset_agent::barrier::Barrier;
use jobset_agent::decide::{Agent, Input, JobSetState, Mode, Output};
use proptest::prelude::*;
use rstest::rstest;

const UID: &str = "8d1c";
const EXIT: Output = Output::Exit { code: 0 };

fn sidecar(uid: Option<String>) -> Agent {
    Agent::new(uid, Mode::Sidecar { saves: false })
}

fn jobset(synced: i32, deprecated: i32) -> Input {
    Input::JobSet(JobSetState { uid: UID.into(), synced, deprecated, bypass: false })
}

fn bypassed(synced: i32, deprecated: i32) -> Input {
    Input::JobSet(JobSetState { uid: UID.into(), synced, deprecated, bypass: true })
}

fn foreign(synced: i32, deprecated: i32, bypass: bool) -> Input {
    Input::JobSet(JobSetState { uid: "other".into(), synced, deprecated, bypass })
}

fn reported(epoch: i32) -> Input {
    Input::Reported { epoch }
}

fn failed(epoch: i32, retry_after_seconds: Option<u64>) -> Input {
    Input::ReportFailed { epoch, retry_after: retry_after_seconds.map(Duration::from_secs) }
}

fn report(epoch: i32) -> Output {
    Output::Report { epoch }
}

fn timer(seconds: u64) -> Output {
    Output::SetTimer(Duration::from_secs(seconds))
}

fn timer_ms(millis: u64) -> Output {
    Output::SetTimer(Duration::from_millis(millis))
}

fn lift(epoch: i32) -> Output {
    Output::Lift { epoch: Some(epoch) }
}

fn bypass_lift() -> Output {
    Output::Lift { epoch: None }
}

fn restart(epoch: i32, deprecated: i32) -> Output {
    Output::Restart { epoch, deprecated }
}

/// All outputs of a new agent of the JobSet [`UID`], in their order.
fn after(inputs: Vec<Input>) -> Vec<Output> {
    let mut agent = sidecar(Some(UID.into()));
    inputs.into_iter().flat_map(|input| agent.step(input)).collect()
}

#[rstest]
#[case::first_state_is_reported_as_the_next_epoch(vec![jobset(0, 0)], vec![report(1)])]
#[case::late_starter_reports_the_epoch_after_the_running_one(vec![jobset(7, 6)], vec![report(8)])]
#[case::in_the_middle_of_a_restart(vec![jobset(7, 7)], vec![report(8)])]
#[case::lifted_when_its_epoch_is_synced(vec![jobset(0, 0), jobset(1, 0)], vec![report(1), lift(1)])]
#[case::stays_lifted(vec![jobset(0, 0), jobset(1, 0), jobset(1, 0), jobset(0, 0)], vec![report(1), lift(1)])]
#[case::restarts_when_its_epoch_is_deprecated(
    vec![jobset(0, 0), jobset(1, 0), jobset(1, 1)], vec![report(1), lift(1), restart(1, 1)])]
#[case::restarts_when_it_missed_some_epochs(
    vec![jobset(0, 0), jobset(1, 0), jobset(3, 2)], vec![report(1), lift(1), restart(1, 2)])]
#[case::restarts_behind_the_barrier(vec![jobset(2, 2), jobset(3, 3)], vec![report(3), restart(3, 3)])]
#[case::restart_comes_before_lift(vec![jobset(0, 0), jobset(1, 1)], vec![report(1), restart(1, 1)])]
#[case::not_lifted_for_a_later_epoch(vec![jobset(0, 0), jobset(2, 0)], vec![report(1)])]
#[case::not_lifted_by_a_stale_state(vec![jobset(0, 0), jobset(2, 0), jobset(1, 0)], vec![report(1)])]
#[case::nothing_after_a_restart(
    vec![jobset(0, 0), jobset(1, 1), jobset(2, 1), Input::Timer, Input::Terminate], vec![report(1), restart(1, 1)])]
#[case::older_states_do_not_count(vec![jobset(4, 4), jobset(3, 2), jobset(5, 4)], vec![report(5), lift(5)])]
#[case::deletion_changes_nothing(
    vec![Input::Deleted, jobset(0, 0), Input::Deleted, jobset(1, 0), Input::Deleted], vec![report(1), lift(1)])]
#[case::ends_at_once_when_asked(vec![Input::Terminate, jobset(0, 0)], vec![EXIT])]
#[case::ends_in_the_middle_of_a_report(vec![jobset(0, 0), Input::Terminate, reported(1)], vec![report(1), EXIT])]
#[case::last_epoch_has_no_next_one(vec![jobset(i32::MAX, 0)], vec![])]
#[case::negative_epochs_count_as_none(vec![jobset(-5, -7)], vec![report(1)])]
fn follows_the_jobset(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(after(inputs), outputs);
}

#[rstest]
#[case::lifts_at_once_without_a_report(vec![bypassed(4, 4)], vec![bypass_lift()])]
#[case::never_restarts(vec![bypassed(4, 3), bypassed(4, 4), bypassed(9, 9)], vec![bypass_lift()])]
#[case::lifts_while_it_waits(vec![jobset(0, 0), bypassed(0, 0), Input::Timer], vec![report(1), lift(1)])]
#[case::no_restart_while_switched_off(
    vec![jobset(0, 0), jobset(1, 0), bypassed(1, 1)], vec![report(1), lift(1)])]
#[case::restarts_once_switched_on_again(
    vec![jobset(0, 0), jobset(1, 0), bypassed(1, 1), jobset(1, 1)], vec![report(1), lift(1), restart(1, 1)])]
#[case::belongs_to_the_running_epoch_once_switched_on(
    vec![bypassed(4, 3), jobset(4, 3), jobset(4, 4)], vec![bypass_lift(), restart(4, 4)])]
#[case::joins_the_first_epoch_once_switched_on(vec![bypassed(0, 0), jobset(0, 0)], vec![bypass_lift(), restart(0, 0)])]
fn bypasses_where_the_jobset_does_not_restart_in_place(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(after(inputs), outputs);
}

#[rstest]
#[case::repeated_while_the_barrier_is_closed(
    vec![jobset(0, 0), reported(1), Input::Timer, reported(1), Input::Timer, reported(1), Input::Timer, reported(1),
        Input::Timer, reported(1)],
    vec![report(1), timer(30), report(1), timer(60), report(1), timer(120), report(1), timer(150), report(1), timer(150)])]
#[case::not_repeated_once_lifted(
    vec![jobset(0, 0), reported(1), jobset(1, 0), Input::Timer], vec![report(1), timer(30), lift(1)])]
#[case::answer_after_the_lift(vec![jobset(0, 0), jobset(1, 0), reported(1)], vec![report(1), lift(1)])]
#[case::failure_after_the_lift(vec![jobset(0, 0), jobset(1, 0), failed(1, None)], vec![report(1), lift(1)])]
#[case::retried_after_a_failure(
    vec![jobset(0, 0), failed(1, None), Input::Timer, failed(1, None), Input::Timer, reported(1)],
    vec![report(1), timer_ms(200), report(1), timer_ms(400), report(1), timer(30)])]
#[case::retried_no_sooner_than_asked(vec![jobset(0, 0), failed(1, Some(7))], vec![report(1), timer(7)])]
#[case::one_at_a_time(vec![jobset(0, 0), Input::Timer, jobset(0, 0)], vec![report(1)])]
#[case::timer_without_an_epoch(vec![Input::Timer], vec![])]
fn reports_its_epoch(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(after(inputs), outputs);
}

#[rstest]
#[case::own_uid_is_given(vec![foreign(3, 3, false), foreign(3, 3, true)], vec![])]
#[case::own_one_comes_later(vec![foreign(3, 3, true), jobset(0, 0), foreign(9, 9, true), jobset(1, 0)], vec![report(1), lift(1)])]
fn ignores_another_jobset_of_the_same_name(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(after(inputs), outputs);
}

#[test]
fn first_jobset_seen_is_its_own_when_no_uid_is_given() {
    let mut agent = sidecar(None);
    assert_eq!(agent.step(jobset(2, 1)), [report(3)]);
    assert_eq!(agent.step(Input::Deleted), []);
    assert_eq!(agent.step(foreign(3, 3, false)), []);
    assert_eq!(agent.step(jobset(3, 2)), [lift(3)]);
}

#[test]
fn barrier_says_what_the_worker_waits_for() {
    let mut agent = sidecar(Some(UID.into()));
    assert_eq!(agent.barrier(), Barrier::AwaitsJobSet);
    agent.step(foreign(0, 0, false));
    assert_eq!(agent.barrier(), Barrier::AwaitsOtherJobSet { own: UID.into(), seen: "other".into() });
    agent.step(jobset(2, 2));
    assert_eq!(agent.barrier(), Barrier::AwaitsSync { epoch: 3, synced: 2 });
    agent.step(jobset(3, 2));
    assert_eq!(agent.barrier(), Barrier::Lifted { epoch: Some(3) });

    let mut agent = sidecar(None);
    agent.step(bypassed(2, 2));
    assert_eq!(agent.barrier(), Barrier::Lifted { epoch: None });
}

fn saves(inputs: Vec<Input>) -> Vec<Output> {
    let mut agent = Agent::new(Some(UID.into()), Mode::Sidecar { saves: true });
    inputs.into_iter().flat_map(|input| agent.step(input)).collect()
}

fn save(epoch: i32) -> Output {
    Output::Save { epoch }
}

#[rstest]
#[case::then_restarts(
    vec![jobset(0, 0), jobset(1, 0), jobset(1, 1), Input::Saved], vec![report(1), lift(1), save(1), restart(1, 1)])]
#[case::once(
    vec![jobset(0, 0), jobset(1, 0), jobset(1, 1), jobset(2, 2), bypassed(2, 2), Input::Saved],
    vec![report(1), lift(1), save(1), restart(1, 2)])]
#[case::not_if_it_has_not_run(vec![jobset(0, 0), jobset(1, 1)], vec![report(1), restart(1, 1)])]
#[case::not_if_the_agent_is_asked_to_end(
    vec![jobset(0, 0), jobset(1, 0), jobset(1, 1), Input::Terminate, Input::Saved],
    vec![report(1), lift(1), save(1), EXIT])]
#[case::at_no_other_time(vec![jobset(0, 0), Input::Saved, jobset(1, 0), Input::Saved], vec![report(1), lift(1)])]
fn lets_the_worker_save_its_state(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(saves(inputs), outputs);
}

fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![
        8 => (0..6_i32, 0..6_i32).prop_map(|(synced, lag)| jobset(synced, (synced - lag).max(0))),
        1 => (0..6_i32, 0..6_i32, any::<bool>()).prop_map(|(synced, deprecated, bypass)| foreign(synced, deprecated, bypass)),
        2 => (1..7_i32).prop_map(reported),
        2 => (1..7_i32, proptest::option::of(0..9_u64)).prop_map(|(epoch, seconds)| failed(epoch, seconds)),
        2 => Just(Input::Timer),
        1 => Just(Input::Deleted),
        1 => Just(Input::Terminate),
    ]
}

fn any_input_or_bypass() -> impl Strategy<Value = Input> {
    prop_oneof![6 => any_input(), 1 => (0..6_i32, 0..6_i32).prop_map(|(synced, deprecated)| bypassed(synced, deprecated))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Without a bypass there is one epoch, it is the one after the first `synced` seen, and the barrier is lifted only
    /// when exactly that epoch is the largest synced one and is not over.
    #[test]
    fn lifts_only_in_its_own_epoch(inputs in proptest::collection::vec(any_input(), 0..40)) {
        let mut agent = sidecar(Some(UID.into()));
        let (mut own, mut synced, mut deprecated, mut lifts) = (None, 0, 0, 0);
        for input in inputs {
            if let Input::JobSet(state) = &input && state.uid == UID {
                (synced, deprecated) = (synced.max(state.synced), deprecated.max(state.deprecated));
                own.get_or_insert(state.synced + 1);
            }
            for output in agent.step(input) {
                match output {
                    Output::Lift { epoch } => {
                        lifts += 1;
                        prop_assert_eq!((epoch, Some(synced)), (own, own));
                        prop_assert!(deprecated < synced);
                    }
                    Output::Report { epoch } => prop_assert_eq!(Some(epoch), own),
                    Output::Restart { epoch, deprecated: over } => {
                        prop_assert_eq!(Some(epoch), own);
                        prop_assert!(epoch <= over && over == deprecated);
                    }
                    Output::SetTimer(wait) => prop_assert!(wait > Duration::ZERO),
                    Output::Exit { .. } => {}
                    _ => prop_assert!(false, "{output:?} of a sidecar without a hook"),
                }
            }
        }
        prop_assert!(lifts <= 1);
    }

    /// One report is on its way at a time, none after the lift; whoever waits has a report or a timer running.
    #[test]
    fn waiting_agent_always_has_something_to_wake_it(inputs in proptest::collection::vec(any_input_or_bypass(), 0..40)) {
        let mut agent = sidecar(Some(UID.into()));
        let (mut in_flight, mut armed) = (None, false);
        for input in inputs {
            // An answer comes only to a report that was sent, the timer only rings when it was set.
            let input = match (input, in_flight) {
                (Input::Reported { .. }, Some(epoch)) => reported(epoch),
                (Input::ReportFailed { retry_after, .. }, Some(epoch)) => Input::ReportFailed { epoch, retry_after },
                (Input::Reported { .. } | Input::ReportFailed { .. }, None) => continue,
                (Input::Timer, _) if !armed => continue,
                (input, _) => input,
            };
            match input {
                Input::Reported { .. } | Input::ReportFailed { .. } => in_flight = None,
                Input::Timer => armed = false,
                _ => {}
            }
            let mut ended = false;
            for output in agent.step(input) {
                match output {
                    Output::Report { epoch } => {
                        let closed = matches!(agent.barrier(), Barrier::AwaitsSync { .. });
                        prop_assert!(in_flight.is_none() && closed);
                        in_flight = Some(epoch);
                    }
                    Output::SetTimer(_) => armed = true,
                    Output::Restart { .. } | Output::Exit { .. } => ended = true,
                    Output::Lift { .. } => {}
                    _ => prop_assert!(false, "{output:?} of a sidecar without a hook"),
                }
            }
            if ended {
                break;
            }
            if let Barrier::AwaitsSync { .. } = agent.barrier() {
                prop_assert!(in_flight.is_some() || armed);
            }
        }
    }

    /// While the JobSet does not restart in place, the barrier is open and the Pod is left alone.
    #[test]
    fn bypass_opens_and_never_restarts(inputs in proptest::collection::vec(any_input_or_bypass(), 0..40)) {
        let mut agent = sidecar(Some(UID.into()));
        for input in inputs {
            let bypass = matches!(&input, Input::JobSet(state) if state.bypass && state.uid == UID);
            let terminated = input == Input::Terminate;
            let outputs = agent.step(input);
            if bypass {
                let lifted = matches!(agent.barrier(), Barrier::Lifted { .. });
                let left_alone = outputs.iter().all(|output| matches!(output, Output::Lift { .. }));
                prop_assert!(lifted && left_alone, "{agent:?} {outputs:?}");
            }
            if terminated || outputs.iter().any(|output| matches!(output, Output::Restart { .. })) {
                break;
            }
        }
    }

    /// Once ended, always silent.
    #[test]
    fn nothing_follows_the_end(inputs in proptest::collection::vec(any_input_or_bypass(), 0..40)) {
        let mut agent = sidecar(None);
        let mut ended = false;
        for input in inputs {
            let outputs = agent.step(input);
            prop_assert!(!ended || outputs.is_empty());
            ended |= outputs.iter().any(|output| matches!(output, Output::Restart { .. } | Output::Exit { .. }));
        }
    }
}
