//! The rules of a supervisor: tables of what it does after what, and properties over all orders of events.

use std::collections::BTreeSet;

use jobset_agent::barrier::Barrier;
use jobset_agent::decide::{Agent, Input, JobSetState, Mode, Output};
use proptest::prelude::*;
use rstest::rstest;

const FATAL: u8 = 3;

fn agent() -> Agent {
    Agent::new(Some("u".into()), Mode::Supervisor { fatal: BTreeSet::from([FATAL]) })
}

fn jobset(synced: i32, deprecated: i32) -> Input {
    Input::JobSet(JobSetState { uid: "u".into(), synced, deprecated, bypass: false })
}

fn bypassed(synced: i32, deprecated: i32) -> Input {
    Input::JobSet(JobSetState { uid: "u".into(), synced, deprecated, bypass: true })
}

fn exited(code: u8) -> Input {
    Input::WorkerExited { code }
}

fn report(epoch: i32) -> Output {
    Output::Report { epoch }
}

fn start(epoch: i32) -> Output {
    Output::Lift { epoch: Some(epoch) }
}

fn stop(epoch: i32, deprecated: i32) -> Output {
    Output::StopWorker { epoch, deprecated }
}

fn exit(code: u8) -> Output {
    Output::Exit { code }
}

const START_BYPASSED: Output = Output::Lift { epoch: None };
const TERMINATE_WORKER: Output = Output::TerminateWorker;

fn after(inputs: Vec<Input>) -> Vec<Output> {
    let mut agent = agent();
    inputs.into_iter().flat_map(|input| agent.step(input)).collect()
}

/// What follows once its worker runs in epoch 1.
fn running(inputs: Vec<Input>) -> Vec<Output> {
    let mut agent = agent();
    let begun = [jobset(0, 0), Input::Reported { epoch: 1 }, jobset(1, 0)];
    let begun: Vec<Output> = begun.into_iter().flat_map(|input| agent.step(input)).collect();
    assert_eq!((begun[0], begun[2]), (report(1), start(1)));
    inputs.into_iter().flat_map(|input| agent.step(input)).collect()
}

#[rstest]
#[case::success_ends_it(vec![exited(0)], vec![exit(0)])]
#[case::a_fatal_code_ends_it(vec![exited(FATAL)], vec![exit(FATAL)])]
#[case::a_failure_is_the_first_to_report_the_next_epoch(vec![exited(1), jobset(1, 1), jobset(2, 1)], vec![report(2), start(2)])]
#[case::a_signal_is_a_failure(vec![exited(137)], vec![report(2)])]
#[case::another_ones_failure_stops_it(
    vec![jobset(1, 1), exited(143), jobset(2, 1)], vec![stop(1, 1), report(2), start(2)])]
#[case::it_is_stopped_once(vec![jobset(1, 1), jobset(1, 1), exited(143)], vec![stop(1, 1), report(2)])]
#[case::what_it_says_while_it_is_stopped_does_not_count(
    vec![jobset(1, 1), exited(0)], vec![stop(1, 1), report(2)])]
#[case::a_fatal_code_neither(vec![jobset(1, 1), exited(FATAL)], vec![stop(1, 1), report(2)])]
#[case::epochs_that_pass_while_it_is_stopped_are_left_out(
    vec![jobset(1, 1), jobset(2, 2), exited(143)], vec![stop(1, 1), report(3)])]
#[case::two_failures_in_a_row(
    vec![exited(1), Input::Reported { epoch: 2 }, jobset(2, 1), exited(1)],
    vec![report(2), Output::SetTimer(std::time::Duration::from_secs(30)), start(2), report(3)])]
#[case::deprecated_at_the_barrier(vec![exited(1), Input::ReportFailed { epoch: 2, retry_after: None }, jobset(2, 2)],
    vec![report(2), Output::SetTimer(std::time::Duration::from_millis(200)), report(3)])]
#[case::an_older_report_is_answered_first(
    vec![exited(1), jobset(2, 2), Input::Reported { epoch: 2 }], vec![report(2), report(3)])]
#[case::deletion_of_the_jobset_changes_nothing(vec![Input::Deleted], vec![])]
#[case::it_is_asked_to_end(vec![Input::Terminate, exited(0)], vec![TERMINATE_WORKER, exit(143)])]
#[case::while_it_stops(
    vec![jobset(1, 1), Input::Terminate, exited(143)], vec![stop(1, 1), TERMINATE_WORKER, exit(143)])]
#[case::no_epoch_matters_then(
    vec![Input::Terminate, jobset(1, 1), bypassed(1, 1), Input::Terminate, exited(7)],
    vec![TERMINATE_WORKER, TERMINATE_WORKER, exit(143)])]
#[case::while_it_waits(vec![exited(1), Input::Terminate, jobset(2, 1)], vec![report(2), exit(143)])]
#[case::nothing_follows_the_end(vec![exited(0), jobset(1, 1), Input::Terminate], vec![exit(0)])]
fn a_running_worker(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(running(inputs), outputs);
}

#[rstest]
#[case::it_cannot_be_started(vec![jobset(0, 0), jobset(1, 0), Input::WorkerNotStarted { code: 127 }], vec![report(1), start(1), exit(127)])]
#[case::ended_before_it_began(vec![jobset(0, 0), Input::Terminate], vec![report(1), exit(143)])]
#[case::ended_before_the_jobset_was_seen(vec![Input::Terminate], vec![exit(143)])]
#[case::a_late_starter(vec![jobset(4, 3), jobset(4, 4), jobset(5, 4)], vec![report(5), start(5)])]
#[case::a_report_for_each_epoch_that_passes(
    vec![jobset(0, 0), Input::Reported { epoch: 1 }, jobset(1, 1), Input::Reported { epoch: 2 }, jobset(2, 1)],
    vec![report(1), Output::SetTimer(std::time::Duration::from_secs(30)), report(2),
        Output::SetTimer(std::time::Duration::from_secs(30)), start(2)])]
fn a_worker_that_waits(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(after(inputs), outputs);
}

#[rstest]
#[case::runs_at_once(vec![bypassed(4, 4)], vec![START_BYPASSED])]
#[case::and_ends_as_it_ends(vec![bypassed(4, 4), exited(1)], vec![START_BYPASSED, exit(1)])]
#[case::is_asked_to_end(vec![bypassed(4, 4), Input::Terminate, exited(0)], vec![START_BYPASSED, TERMINATE_WORKER, exit(143)])]
#[case::is_never_stopped(vec![bypassed(4, 3), bypassed(5, 5)], vec![START_BYPASSED])]
#[case::is_stopped_once_switched_on(
    vec![bypassed(4, 3), jobset(4, 3), jobset(4, 4), exited(143)], vec![START_BYPASSED, stop(4, 4), report(5)])]
#[case::restarts_a_failure_once_switched_on(vec![bypassed(4, 3), jobset(4, 3), exited(1)], vec![START_BYPASSED, report(5)])]
#[case::is_started_again_at_once_if_it_is_switched_off_while_it_stops(
    vec![jobset(0, 0), jobset(1, 0), jobset(1, 1), bypassed(1, 1), exited(143)],
    vec![report(1), start(1), stop(1, 1), START_BYPASSED])]
fn a_worker_of_a_jobset_that_does_not_restart_in_place(#[case] inputs: Vec<Input>, #[case] outputs: Vec<Output>) {
    assert_eq!(after(inputs), outputs);
}

#[test]
fn the_probe_sees_whether_the_worker_runs() {
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
        2 => Just(Input::Reported { epoch: 0 }),
        2 => Just(Input::ReportFailed { epoch: 0, retry_after: None }),
        2 => Just(Input::Timer),
        4 => prop_oneof![Just(0), Just(1), Just(FATAL), Just(143)].prop_map(exited),
        1 => Just(Input::Terminate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// One worker at a time, each epoch at most once unless its JobSet does not restart in place, and always the synced
    /// one; one report at a time, of growing epochs; whoever waits has something that wakes it.
    #[test]
    fn one_worker_one_report_and_growing_epochs(inputs in proptest::collection::vec(any_input(), 0..60)) {
        let mut agent = agent();
        let (mut runs, mut stopping, mut leaving) = (false, false, false);
        let (mut in_flight, mut armed) = (None, false);
        let (mut last_report, mut last_start, mut synced, mut bypass) = (0, 0, 0, false);
        for input in inputs {
            // Answers come to what was asked alone.
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
                        prop_assert!(!runs && !leaving);
                        (runs, armed) = (true, false);
                        if !bypass {
                            let epoch = epoch.unwrap();
                            prop_assert!(epoch == synced && epoch > last_start);
                            last_start = epoch;
                        }
                    }
                    Output::StopWorker { .. } => {
                        prop_assert!(runs && !stopping && !leaving);
                        stopping = true;
                    }
                    Output::TerminateWorker => {
                        prop_assert!(runs);
                        leaving = true;
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
