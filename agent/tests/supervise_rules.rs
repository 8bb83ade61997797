//! The rules of a supervisor: tables of inputs and the expected outputs, and properties of any order of inputs.

use std::collections::BTreeSet;

use jobset_agent::barrier::Barrier;
use jobset_agent::decide::{Agent, Input, JobSetState, Mode, Output};
use proptest::prelude::*;
use rstest::rstest;

use super::rules::{
    BYPASS_LIFT, UID, bypassed, exit, jobset, lift, outputs_of, report, reported, state, timer, timer_ms,
};

const FATAL: u8 = 3;

fn agent() -> Agent {
    Agent::new(Some(UID.into()), Mode::Supervisor { fatal: BTreeSet::from([FATAL]) })
}

fn failed_jobset(synced: i32, deprecated: i32) -> Input {
    Input::JobSet(JobSetState { failed: true, ..state(synced, deprecated) })
}

fn exited(code: u8) -> Input {
    Input::WorkerExited { code }
}

fn stop(epoch: i32, deprecated: i32) -> Output {
    Output::StopWorker { epoch, deprecated }
}

const TERMINATE_WORKER: Output = Output::TerminateWorker;

/// All outputs for these inputs, of a supervisor whose worker runs in epoch 1.
fn outputs_while_running(inputs: Vec<Input>) -> Vec<Output> {
    let mut agent = agent();
    let started = [jobset(0, 0), reported(1), jobset(1, 0)];
    let started: Vec<Output> = started.into_iter().flat_map(|input| agent.step(input)).collect();
    assert_eq!((started[0], started[2]), (report(1), lift(1)));
    outputs_of(agent, inputs)
}

#[rstest]
#[case::success_exits(vec![exited(0)], vec![exit(0)])]
#[case::fatal_code_exits(vec![exited(FATAL)], vec![exit(FATAL)])]
#[case::failure_reports_the_next_epoch(vec![exited(1), jobset(1, 1), jobset(2, 1)], vec![report(2), lift(2)])]
#[case::signal_is_a_failure(vec![exited(137)], vec![report(2)])]
#[case::epoch_deprecated_stops_and_reports(
    vec![jobset(1, 1), exited(143), jobset(2, 1)], vec![stop(1, 1), report(2), lift(2)])]
#[case::epoch_deprecated_stops_once(vec![jobset(1, 1), jobset(1, 1), exited(143)], vec![stop(1, 1), report(2)])]
#[case::success_while_stopping_does_not_count(
    vec![jobset(1, 1), exited(0)], vec![stop(1, 1), report(2)])]
#[case::fatal_code_while_stopping_does_not_count(vec![jobset(1, 1), exited(FATAL)], vec![stop(1, 1), report(2)])]
#[case::epochs_deprecated_while_stopping_are_skipped(
    vec![jobset(1, 1), jobset(2, 2), exited(143)], vec![stop(1, 1), report(3)])]
#[case::two_failures_report_two_epochs(
    vec![exited(1), reported(2), jobset(2, 1), exited(1)],
    vec![report(2), timer(30), lift(2), report(3)])]
#[case::epoch_deprecated_at_the_barrier_reports_the_next_one(vec![exited(1), Input::ReportFailed { epoch: 2, retry_after: None }, jobset(2, 2)],
    vec![report(2), timer_ms(200), report(3)])]
#[case::report_of_an_older_epoch_is_answered_first(
    vec![exited(1), jobset(2, 2), reported(2)], vec![report(2), report(3)])]
#[case::sigterm_terminates_the_worker(vec![Input::Terminate, exited(0)], vec![TERMINATE_WORKER, exit(143)])]
#[case::sigterm_while_stopping_terminates_the_worker(
    vec![jobset(1, 1), Input::Terminate, exited(143)], vec![stop(1, 1), TERMINATE_WORKER, exit(143)])]
#[case::epochs_after_sigterm_are_ignored(
    vec![Input::Terminate, jobset(1, 1), bypassed(1, 1), Input::Terminate, exited(7)],
    vec![TERMINATE_WORKER, TERMINATE_WORKER, exit(143)])]
#[case::sigterm_at_the_barrier_exits(vec![exited(1), Input::Terminate, jobset(2, 1)], vec![report(2), exit(143)])]
#[case::exit_is_the_last_output(vec![exited(0), jobset(1, 1), Input::Terminate], vec![exit(0)])]
fn worker_running_yields_outputs(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(outputs_while_running(inputs), outputs);
}

#[rstest]
#[case::worker_failed_before(vec![exited(7), failed_jobset(1, 0)], vec![report(2), exit(82)])]
#[case::worker_fails_afterwards(vec![failed_jobset(1, 0), exited(7)], vec![exit(82)])]
#[case::worker_runs(vec![failed_jobset(1, 0)], vec![])]
#[case::worker_succeeds(vec![failed_jobset(1, 0), exited(0)], vec![exit(0)])]
#[case::worker_fails_for_good(vec![failed_jobset(1, 0), exited(FATAL)], vec![exit(FATAL)])]
#[case::worker_was_stopped(vec![jobset(1, 1), exited(143), failed_jobset(1, 1)], vec![stop(1, 1), report(2)])]
#[case::worker_runs_again(vec![exited(7), jobset(2, 1), failed_jobset(2, 1)], vec![report(2), lift(2)])]
#[case::stale_state_afterwards(
    vec![failed_jobset(1, 0), jobset(1, 0), exited(7), jobset(1, 0)], vec![exit(82)])]
fn jobset_failed_ends_container_of_failed_worker(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(outputs_while_running(inputs), outputs);
}

#[rstest]
#[case::start_failure_exits(vec![jobset(0, 0), jobset(1, 0), Input::WorkerNotStarted { code: 127 }], vec![report(1), lift(1), exit(127)])]
#[case::sigterm_before_the_first_epoch_exits(vec![jobset(0, 0), Input::Terminate], vec![report(1), exit(143)])]
#[case::sigterm_before_the_first_state_exits(vec![Input::Terminate], vec![exit(143)])]
#[case::late_start_joins_the_next_epoch(vec![jobset(4, 3), jobset(4, 4), jobset(5, 4)], vec![report(5), lift(5)])]
#[case::each_epoch_deprecated_gets_a_new_report(
    vec![jobset(0, 0), reported(1), jobset(1, 1), reported(2), jobset(2, 1)],
    vec![report(1), timer(30), report(2),
        timer(30), lift(2)])]
fn worker_waiting_yields_outputs(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(outputs_of(agent(), inputs), outputs);
}

#[rstest]
#[case::worker_starts_at_once(vec![bypassed(4, 4)], vec![BYPASS_LIFT])]
#[case::worker_exit_exits(vec![bypassed(4, 4), exited(1)], vec![BYPASS_LIFT, exit(1)])]
#[case::sigterm_terminates_the_worker(vec![bypassed(4, 4), Input::Terminate, exited(0)], vec![BYPASS_LIFT, TERMINATE_WORKER, exit(143)])]
#[case::epoch_deprecated_does_not_stop(vec![bypassed(4, 3), bypassed(5, 5)], vec![BYPASS_LIFT])]
#[case::enabled_later_stops_at_the_deprecated_epoch(
    vec![bypassed(4, 3), jobset(4, 3), jobset(4, 4), exited(143)], vec![BYPASS_LIFT, stop(4, 4), report(5)])]
#[case::enabled_later_restarts_a_failure(vec![bypassed(4, 3), jobset(4, 3), exited(1)], vec![BYPASS_LIFT, report(5)])]
#[case::disabled_while_stopping_starts_again_at_once(
    vec![jobset(0, 0), jobset(1, 0), jobset(1, 1), bypassed(1, 1), exited(143)],
    vec![report(1), lift(1), stop(1, 1), BYPASS_LIFT])]
fn jobset_without_in_place_restart_is_bypassed(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(outputs_of(agent(), inputs), outputs);
}

#[test]
fn barrier_of_supervisor_follows_the_worker() {
    let mut agent = agent();
    for (input, barrier) in [
        (jobset(0, 0), Barrier::AwaitsSync { epoch: 1, synced: 0 }),
        (jobset(1, 0), Barrier::Lifted { epoch: Some(1) }),
        (jobset(1, 1), Barrier::Stopping),
        (exited(143), Barrier::AwaitsSync { epoch: 2, synced: 1 }),
        (jobset(2, 1), Barrier::Lifted { epoch: Some(2) }),
        (Input::Terminate, Barrier::Stopping),
    ] {
        agent.step(input);
        assert_eq!(agent.barrier(), barrier);
    }
}

fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![
        8 => (0..6_i32, 0..3_i32).prop_map(|(synced, lag)| jobset(synced, (synced - lag).max(0))),
        1 => (0..6_i32, 0..3_i32).prop_map(|(synced, lag)| bypassed(synced, (synced - lag).max(0))),
        2 => Just(reported(0)),
        2 => Just(Input::ReportFailed { epoch: 0, retry_after: None }),
        2 => Just(Input::Timer),
        4 => prop_oneof![Just(0), Just(1), Just(FATAL), Just(143)].prop_map(exited),
        1 => Just(Input::Terminate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// One worker runs at a time, always in the synced epoch, and each epoch has at most one worker unless the JobSet does not
    /// restart in place. One report is in flight at a time, and reported epochs grow. An agent that waits has a report in
    /// flight or a timer.
    #[test]
    fn supervisor_has_one_worker_one_report_and_growing_epochs(inputs in proptest::collection::vec(any_input(), 0..60)) {
        let mut agent = agent();
        let (mut runs, mut stopping, mut terminating) = (false, false, false);
        let (mut in_flight, mut armed) = (None, false);
        let (mut last_report, mut last_start, mut synced, mut bypass) = (0, 0, 0, false);
        for input in inputs {
            // An answer arrives only for an output that asks for one.
            let input = match (input, in_flight) {
                (Input::Reported { .. }, Some(epoch)) => Input::Reported { epoch },
                (Input::ReportFailed { .. }, Some(epoch)) => Input::ReportFailed { epoch, retry_after: None },
                (Input::Reported { .. } | Input::ReportFailed { .. }, None) => continue,
                (Input::Timer, _) if !armed => continue,
                (Input::WorkerExited { .. }, _) if !runs => continue,
                (input, _) => input,
            };
            match &input {
                Input::Reported { .. } | Input::ReportFailed { .. } => in_flight = None,
                Input::Timer => armed = false,
                Input::WorkerExited { .. } => (runs, stopping) = (false, false),
                Input::JobSet(state) => (synced, bypass) = (synced.max(state.synced), state.bypass),
                _ => {}
            }
            let mut ended = false;
            for output in agent.step(input) {
                match output {
                    Output::Report { epoch } => {
                        prop_assert!(!runs && in_flight.is_none());
                        prop_assert!(last_report <= epoch && epoch <= synced + 1);
                        (in_flight, last_report, armed) = (Some(epoch), epoch, false);
                    }
                    Output::SetTimer(_) => armed = true,
                    Output::Lift { epoch } => {
                        prop_assert!(!runs && !terminating);
                        (runs, armed) = (true, false);
                        if !bypass {
                            let epoch = epoch.unwrap();
                            prop_assert!(epoch == synced && epoch > last_start);
                            last_start = epoch;
                        }
                    }
                    Output::StopWorker { .. } => {
                        prop_assert!(runs && !stopping && !terminating);
                        stopping = true;
                    }
                    Output::TerminateWorker => {
                        prop_assert!(runs);
                        terminating = true;
                    }
                    Output::Exit { .. } => {
                        prop_assert!(!runs);
                        ended = true;
                    }
                    Output::Restart { .. } | Output::Save { .. } => prop_assert!(false, "{output:?} of a supervisor"),
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
}
