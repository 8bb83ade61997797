//! The agent's rules: tables of inputs and the expected outputs, and properties of any order of inputs.

use std::time::Duration;

use jobset_agent::barrier::Barrier;
use jobset_agent::decide::{Agent, Input, JobSetState, Mode, Output};
use proptest::prelude::*;
use rstest::rstest;

use super::rules::{
    BYPASS_LIFT, UID, bypassed, exit, jobset, lift, outputs_of, report, reported, state, timer, timer_ms,
};

fn sidecar(uid: Option<String>) -> Agent {
    Agent::new(uid, Mode::Sidecar { saves: false })
}

fn foreign(synced: i32, deprecated: i32, bypass: bool) -> Input {
    Input::JobSet(JobSetState { uid: "other".into(), bypass, ..state(synced, deprecated) })
}

fn failed(epoch: i32, retry_after_seconds: Option<u64>) -> Input {
    Input::ReportFailed { epoch, retry_after: retry_after_seconds.map(Duration::from_secs) }
}

fn restart(epoch: i32, deprecated: i32) -> Output {
    Output::Restart { epoch, deprecated }
}

/// All outputs of a new agent of the JobSet [`UID`] for these inputs, in their order.
fn outputs_after(inputs: Vec<Input>) -> Vec<Output> {
    outputs_of(sidecar(Some(UID.into())), inputs)
}

#[rstest]
#[case::first_state_reports_the_next_epoch(vec![jobset(0, 0)], vec![report(1)])]
#[case::late_start_reports_the_epoch_after_the_synced_one(vec![jobset(7, 6)], vec![report(8)])]
#[case::start_during_a_group_restart_reports_the_next_epoch(vec![jobset(7, 7)], vec![report(8)])]
#[case::own_epoch_synced_lifts(vec![jobset(0, 0), jobset(1, 0)], vec![report(1), lift(1)])]
#[case::lifted_stays_lifted(vec![jobset(0, 0), jobset(1, 0), jobset(1, 0), jobset(0, 0)], vec![report(1), lift(1)])]
#[case::own_epoch_deprecated_restarts(
    vec![jobset(0, 0), jobset(1, 0), jobset(1, 1)], vec![report(1), lift(1), restart(1, 1)])]
#[case::later_epoch_deprecated_restarts(
    vec![jobset(0, 0), jobset(1, 0), jobset(3, 2)], vec![report(1), lift(1), restart(1, 2)])]
#[case::own_epoch_deprecated_at_the_barrier_restarts(vec![jobset(2, 2), jobset(3, 3)], vec![report(3), restart(3, 3)])]
#[case::own_epoch_synced_and_deprecated_restarts(vec![jobset(0, 0), jobset(1, 1)], vec![report(1), restart(1, 1)])]
#[case::later_epoch_synced_does_not_lift(vec![jobset(0, 0), jobset(2, 0)], vec![report(1)])]
#[case::stale_state_does_not_lift(vec![jobset(0, 0), jobset(2, 0), jobset(1, 0)], vec![report(1)])]
#[case::restart_is_the_last_output(
    vec![jobset(0, 0), jobset(1, 1), jobset(2, 1), Input::Timer, Input::Terminate], vec![report(1), restart(1, 1)])]
#[case::stale_state_is_ignored(vec![jobset(4, 4), jobset(3, 2), jobset(5, 4)], vec![report(5), lift(5)])]
#[case::sigterm_exits(vec![Input::Terminate, jobset(0, 0)], vec![exit(0)])]
#[case::sigterm_during_a_report_exits(vec![jobset(0, 0), Input::Terminate, reported(1)], vec![report(1), exit(0)])]
#[case::largest_epoch_has_no_next_one(vec![jobset(i32::MAX, 0)], vec![])]
#[case::negative_epochs_count_as_zero(vec![jobset(-5, -7)], vec![report(1)])]
fn jobset_state_yields_outputs(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(outputs_after(inputs), outputs);
}

#[rstest]
#[case::start_lifts_without_a_report(vec![bypassed(4, 4)], vec![BYPASS_LIFT])]
#[case::deprecated_epoch_does_not_restart(vec![bypassed(4, 3), bypassed(4, 4), bypassed(9, 9)], vec![BYPASS_LIFT])]
#[case::disabled_at_the_barrier_lifts(vec![jobset(0, 0), bypassed(0, 0), Input::Timer], vec![report(1), lift(1)])]
#[case::disabled_while_running_does_not_restart(
    vec![jobset(0, 0), jobset(1, 0), bypassed(1, 1)], vec![report(1), lift(1)])]
#[case::enabled_again_restarts(
    vec![jobset(0, 0), jobset(1, 0), bypassed(1, 1), jobset(1, 1)], vec![report(1), lift(1), restart(1, 1)])]
#[case::enabled_later_joins_the_synced_epoch(
    vec![bypassed(4, 3), jobset(4, 3), jobset(4, 4)], vec![BYPASS_LIFT, restart(4, 4)])]
#[case::enabled_later_joins_epoch_zero(vec![bypassed(0, 0), jobset(0, 0)], vec![BYPASS_LIFT, restart(0, 0)])]
fn jobset_without_in_place_restart_is_bypassed(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(outputs_after(inputs), outputs);
}

#[rstest]
#[case::barrier_closed_repeats_with_back_off(
    vec![jobset(0, 0), reported(1), Input::Timer, reported(1), Input::Timer, reported(1), Input::Timer, reported(1),
        Input::Timer, reported(1)],
    vec![report(1), timer(30), report(1), timer(60), report(1), timer(120), report(1), timer(150), report(1), timer(150)])]
#[case::barrier_lifted_does_not_repeat(
    vec![jobset(0, 0), reported(1), jobset(1, 0), Input::Timer], vec![report(1), timer(30), lift(1)])]
#[case::answer_after_the_lift_is_ignored(vec![jobset(0, 0), jobset(1, 0), reported(1)], vec![report(1), lift(1)])]
#[case::failure_after_the_lift_is_not_retried(vec![jobset(0, 0), jobset(1, 0), failed(1, None)], vec![report(1), lift(1)])]
#[case::failure_is_retried_with_back_off(
    vec![jobset(0, 0), failed(1, None), Input::Timer, failed(1, None), Input::Timer, reported(1)],
    vec![report(1), timer_ms(200), report(1), timer_ms(400), report(1), timer(30)])]
#[case::failure_with_retry_after_waits_as_long(vec![jobset(0, 0), failed(1, Some(7))], vec![report(1), timer(7)])]
#[case::one_report_is_in_flight(vec![jobset(0, 0), Input::Timer, jobset(0, 0)], vec![report(1)])]
#[case::timer_without_an_epoch_is_ignored(vec![Input::Timer], vec![])]
fn report_is_sent_and_repeated(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(outputs_after(inputs), outputs);
}

#[rstest]
#[case::other_uid_is_ignored(vec![foreign(3, 3, false), foreign(3, 3, true)], vec![])]
#[case::own_uid_observed_later_counts(vec![foreign(3, 3, true), jobset(0, 0), foreign(9, 9, true), jobset(1, 0)], vec![report(1), lift(1)])]
fn jobset_of_the_same_name_with_other_uid_is_ignored(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(outputs_after(inputs), outputs);
}

#[test]
fn agent_without_uid_takes_the_first_observed_jobset() {
    let mut agent = sidecar(None);
    assert_eq!(agent.step(jobset(2, 1)), [report(3)]);
    assert_eq!(agent.step(foreign(3, 3, false)), []);
    assert_eq!(agent.step(jobset(3, 2)), [lift(3)]);
}

#[test]
fn barrier_of_sidecar_follows_the_jobset() {
    let mut agent = sidecar(Some(UID.into()));
    assert_eq!(agent.barrier(), Barrier::AwaitsJobSet);
    agent.step(foreign(0, 0, false));
    assert_eq!(agent.barrier(), Barrier::AwaitsOtherJobSet { own: UID.into(), observed: "other".into() });
    agent.step(jobset(2, 2));
    assert_eq!(agent.barrier(), Barrier::AwaitsSync { epoch: 3, synced: 2 });
    agent.step(jobset(3, 2));
    assert_eq!(agent.barrier(), Barrier::Lifted { epoch: Some(3) });

    let mut agent = sidecar(None);
    agent.step(bypassed(2, 2));
    assert_eq!(agent.barrier(), Barrier::Lifted { epoch: None });
}

fn save(epoch: i32) -> Output {
    Output::Save { epoch }
}

#[rstest]
#[case::epoch_deprecated_saves_then_restarts(
    vec![jobset(0, 0), jobset(1, 0), jobset(1, 1), Input::Saved], vec![report(1), lift(1), save(1), restart(1, 1)])]
#[case::later_states_do_not_save_again(
    vec![jobset(0, 0), jobset(1, 0), jobset(1, 1), jobset(2, 2), bypassed(2, 2), Input::Saved],
    vec![report(1), lift(1), save(1), restart(1, 2)])]
#[case::worker_never_started_does_not_save(vec![jobset(0, 0), jobset(1, 1)], vec![report(1), restart(1, 1)])]
#[case::sigterm_while_saving_exits(
    vec![jobset(0, 0), jobset(1, 0), jobset(1, 1), Input::Terminate, Input::Saved],
    vec![report(1), lift(1), save(1), exit(0)])]
#[case::unexpected_answer_is_ignored(vec![jobset(0, 0), Input::Saved, jobset(1, 0), Input::Saved], vec![report(1), lift(1)])]
fn save_hook_runs_before_the_restart(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    let agent = Agent::new(Some(UID.into()), Mode::Sidecar { saves: true });
    assert_eq!(outputs_of(agent, inputs), outputs);
}

fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![
        8 => (0..6_i32, 0..6_i32).prop_map(|(synced, lag)| jobset(synced, (synced - lag).max(0))),
        1 => (0..6_i32, 0..6_i32, any::<bool>()).prop_map(|(synced, deprecated, bypass)| foreign(synced, deprecated, bypass)),
        2 => (1..7_i32).prop_map(reported),
        2 => (1..7_i32, proptest::option::of(0..9_u64)).prop_map(|(epoch, seconds)| failed(epoch, seconds)),
        2 => Just(Input::Timer),
        1 => Just(Input::Terminate),
    ]
}

fn any_input_or_bypass() -> impl Strategy<Value = Input> {
    prop_oneof![6 => any_input(), 1 => (0..6_i32, 0..6_i32).prop_map(|(synced, deprecated)| bypassed(synced, deprecated))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Without a bypass, an agent has one epoch: the epoch after the first observed `synced`. The barrier lifts only when that
    /// epoch is the largest synced one and is not deprecated.
    #[test]
    fn barrier_lifts_only_in_the_own_epoch(inputs in proptest::collection::vec(any_input(), 0..40)) {
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

    /// One report is in flight at a time, and none after the lift. An agent that waits has a report in flight or a timer.
    #[test]
    fn agent_waiting_has_a_report_or_a_timer(inputs in proptest::collection::vec(any_input_or_bypass(), 0..40)) {
        let mut agent = sidecar(Some(UID.into()));
        let (mut in_flight, mut armed) = (None, false);
        for input in inputs {
            // An answer arrives only for a report in flight. The timer fires only when it is set.
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

    /// While the JobSet does not restart in place, the barrier is lifted and the agent does not restart the Pod.
    #[test]
    fn bypass_lifts_and_never_restarts(inputs in proptest::collection::vec(any_input_or_bypass(), 0..40)) {
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

    /// There is no output after the last one.
    #[test]
    fn agent_ended_has_no_output(inputs in proptest::collection::vec(any_input_or_bypass(), 0..40)) {
        let mut agent = sidecar(None);
        let mut ended = false;
        for input in inputs {
            let outputs = agent.step(input);
            prop_assert!(!ended || outputs.is_empty());
            ended |= outputs.iter().any(|output| matches!(output, Output::Restart { .. } | Output::Exit { .. }));
        }
    }
}
