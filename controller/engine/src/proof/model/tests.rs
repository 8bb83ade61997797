//! What is checked, in which settings, and that each property can fail.

use rstest::rstest;

use super::explorer::{Counterexample, check};
use super::setting::{Budget, Faults, Late, Mode, Setting, Stream};
use crate::proof::Property::{
    self, Barrier, ExactBudget, NoHang, OneRestartPerIncident, OneWorkerPerEpoch, ToldInTime,
};
use crate::proof::RuleMutation;

const NO_FAULT: Faults = Faults { worker: false, agent: false, pod: false, eviction: false, loss: false };
const WORKER: Faults = Faults { worker: true, ..NO_FAULT };
const AGENT: Faults = Faults { agent: true, ..NO_FAULT };
const POD: Faults = Faults { pod: true, ..NO_FAULT };
const REPLACED: Faults = Faults { eviction: true, loss: true, ..NO_FAULT };
const ANY: Faults = Faults { worker: true, agent: true, pod: true, eviction: true, loss: true };
const NOTHING: Budget = Budget {
    faults: 0,
    reports: 0,
    crashes: 0,
    suspensions: 0,
    stale_reads: 0,
    breaks: 0,
    late_reports: 0,
    woken: 0,
    stalls: 0,
    hostile: false,
};
const ONE: Budget = Budget { faults: 1, ..NOTHING };
const TWO: Budget = Budget { faults: 2, ..NOTHING };
const PROMPT: Late = Late { statuses: false, pods: 0, jobsets: false, writes: false };
const STATUSES: Late = Late { statuses: true, ..PROMPT };
const WATCHES: Late = Late { pods: 2, jobsets: true, ..PROMPT };
const WRITES: Late = Late { writes: true, ..PROMPT };
const ALL: Late = Late { statuses: true, pods: 1, jobsets: true, writes: true };

/// Three Pods whose workers run, with sidecars, and nobody but the agents is late.
const THREE: Setting = Setting {
    mode: Mode::Sidecar,
    pods: 3,
    from_birth: false,
    max_restarts: 9,
    late: PROMPT,
    faults: WORKER,
    left: TWO,
    strict: false,
    stream: Stream::Absent,
    broken: None,
};
/// The same with two Pods.
const TWO_PODS: Setting = Setting { pods: 2, ..THREE };
/// Three Pods that supervise their workers.
const SUPERVISED: Setting = Setting { mode: Mode::Supervisor, ..THREE };
/// Two Pods whose agents know a relay.
const STREAM: Setting = Setting { stream: Stream::Prompt, left: ONE, ..TWO_PODS };
/// The same with supervisors.
const SUPERVISED_STREAM: Setting = Setting { mode: Mode::Supervisor, ..STREAM };
const ONE_BREAK: Budget = Budget { breaks: 1, ..ONE };
const ONE_WAKES: Budget = Budget { woken: 1, ..ONE };
/// Two Pods whose workers may stall.
const STALLS: Setting = Setting { left: Budget { stalls: 2, ..NOTHING }, ..TWO_PODS };
/// The same with supervisors.
const SUPERVISED_STALLS: Setting = Setting { mode: Mode::Supervisor, ..STALLS };
/// Relays that do what they like with what passes.
const HOSTILE: Budget = Budget { hostile: true, ..ONE };

#[rstest]
#[case::workers_fail(THREE)]
#[case::pods_restart(Setting { faults: POD, ..THREE })]
#[case::agents_restart_alone(Setting { faults: AGENT, ..THREE })]
#[case::pods_are_replaced(Setting { faults: REPLACED, ..THREE })]
#[case::a_start_with_a_lost_report(Setting { from_birth: true, faults: ANY, left: Budget { reports: 1, ..ONE }, ..THREE })]
#[case::a_budget_that_is_spent(Setting { max_restarts: 1, from_birth: true, faults: ANY, ..TWO_PODS })]
#[case::late_statuses(Setting { late: STATUSES, faults: Faults { pod: true, ..WORKER }, ..TWO_PODS })]
#[case::late_statuses_and_agents_alone(Setting { late: STATUSES, faults: AGENT, left: ONE, from_birth: true, ..TWO_PODS })]
#[case::late_statuses_and_replacement(Setting { late: STATUSES, faults: REPLACED, ..TWO_PODS })]
#[case::late_watches(Setting { late: WATCHES, ..TWO_PODS })]
#[case::late_watches_and_agents_alone(Setting { late: WATCHES, faults: AGENT, left: ONE, ..TWO_PODS })]
#[case::late_watches_and_replacement(Setting { late: WATCHES, faults: REPLACED, left: ONE, ..TWO_PODS })]
#[case::everything_late(Setting { late: ALL, left: ONE, ..THREE })]
#[case::failover(Setting { late: WRITES, left: Budget { crashes: 2, ..TWO }, ..TWO_PODS })]
#[case::a_lost_report(Setting { left: Budget { reports: 1, ..ONE }, ..THREE })]
#[case::everything_late_and_failover(Setting { late: ALL, left: Budget { crashes: 1, ..ONE }, ..TWO_PODS })]
#[case::suspensions(Setting { left: Budget { suspensions: 1, ..ONE }, ..THREE })]
#[case::suspensions_and_replacement(Setting { faults: REPLACED, left: Budget { suspensions: 1, ..ONE }, ..TWO_PODS })]
#[case::supervised_workers_fail(SUPERVISED)]
#[case::supervisors_restart(Setting { faults: AGENT, ..SUPERVISED })]
#[case::supervised_pods_are_replaced(Setting { faults: REPLACED, ..SUPERVISED })]
#[case::supervised_with_lost_reports(Setting { from_birth: true, left: Budget { reports: 2, ..TWO }, ..SUPERVISED })]
#[case::supervised_with_a_lost_report(Setting { left: Budget { reports: 1, ..TWO }, ..SUPERVISED })]
#[case::supervised_late_and_failover(Setting { late: ALL, faults: Faults { agent: true, ..WORKER }, left: Budget { crashes: 1, ..ONE }, ..SUPERVISED })]
#[case::supervised_late_and_replacement(Setting { pods: 2, late: ALL, faults: REPLACED, left: ONE, ..SUPERVISED })]
#[case::supervised_suspensions(Setting { left: Budget { suspensions: 1, ..ONE }, ..SUPERVISED })]
#[case::supervised_budget_that_is_spent(Setting { max_restarts: 1, from_birth: true, faults: ANY, ..SUPERVISED })]
fn properties_hold(#[case] setting: Setting) {
    let setting = if std::env::var_os("MODEL_LARGE").is_some() { setting.larger() } else { setting };
    if let Some(Counterexample { property, trace }) = check(setting) {
        panic!("{trace}{property:?} does not hold");
    }
}

/// With the stream beside the watches.
#[rstest]
#[case::workers_fail(STREAM)]
#[case::connections_break(Setting { left: ONE_BREAK, ..STREAM })]
#[case::hostile_relays(Setting { left: HOSTILE, ..STREAM })]
#[case::agents_restart_alone(Setting { faults: AGENT, ..STREAM })]
#[case::pods_are_replaced(Setting { faults: REPLACED, left: Budget { late_reports: 1, ..ONE }, ..STREAM })]
#[case::a_start(Setting { from_birth: true, left: NOTHING, ..STREAM })]
#[case::without_watches(Setting { stream: Stream::Alone, faults: AGENT, ..SUPERVISED_STREAM })]
#[case::supervised_workers_fail(Setting { left: TWO, ..SUPERVISED_STREAM })]
#[case::supervised_connections_break(Setting { left: ONE_BREAK, ..SUPERVISED_STREAM })]
#[case::supervised_reports_get_lost(Setting { left: Budget { reports: 1, ..ONE_BREAK }, ..SUPERVISED_STREAM })]
#[case::supervised_hostile_relays(Setting { left: HOSTILE, ..SUPERVISED_STREAM })]
#[case::hostile_relays_and_agents_alone(Setting { left: HOSTILE, faults: AGENT, ..STREAM })]
#[case::supervised_hostile_relays_and_replacement(Setting { left: HOSTILE, faults: REPLACED, ..SUPERVISED_STREAM })]
#[case::supervised_hostile_relays_and_everything_late(Setting { late: ALL, left: HOSTILE, ..SUPERVISED_STREAM })]
#[case::supervised_leader_wakes(Setting { left: ONE_WAKES, ..SUPERVISED_STREAM })]
#[case::supervised_failover(Setting { late: WRITES, left: Budget { crashes: 1, ..ONE }, ..SUPERVISED_STREAM })]
#[case::supervisors_restart(Setting { stream: Stream::Late, faults: AGENT, ..SUPERVISED_STREAM })]
#[case::supervised_pods_are_replaced(Setting { faults: REPLACED, left: Budget { late_reports: 1, ..ONE }, ..SUPERVISED_STREAM })]
#[case::supervised_everything_late(Setting { late: ALL, ..SUPERVISED_STREAM })]
fn properties_hold_with_the_stream(#[case] setting: Setting) {
    properties_hold(setting);
}

/// With workers that make no progress: a stall is reported as an epoch is, late, or by a Pod that is gone.
#[rstest]
#[case::two_in_a_row(Setting { left: Budget { stalls: 4, ..NOTHING }, ..STALLS })]
#[case::three_pods(Setting { pods: 3, left: Budget { stalls: 4, ..NOTHING }, ..STALLS })]
#[case::workers_fail(Setting { left: Budget { stalls: 3, ..ONE }, ..STALLS })]
#[case::pods_are_replaced(Setting { faults: REPLACED, left: Budget { stalls: 3, ..ONE }, ..STALLS })]
#[case::late_watches(Setting { late: WATCHES, ..STALLS })]
#[case::failover(Setting { late: WRITES, left: Budget { stalls: 3, crashes: 1, ..NOTHING }, ..STALLS })]
#[case::suspensions(Setting { left: Budget { stalls: 2, suspensions: 1, ..NOTHING }, ..STALLS })]
#[case::a_budget_that_is_spent(Setting { max_restarts: 0, ..STALLS })]
#[case::supervised(Setting { late: WATCHES, left: Budget { stalls: 3, ..NOTHING }, ..SUPERVISED_STALLS })]
#[case::supervised_reports_get_lost(Setting { left: Budget { stalls: 3, reports: 1, ..ONE }, ..SUPERVISED_STALLS })]
#[case::stream(Setting { stream: Stream::Prompt, ..STALLS })]
#[case::supervised_stream(Setting { stream: Stream::Prompt, left: Budget { stalls: 2, breaks: 1, late_reports: 1, ..NOTHING }, ..SUPERVISED_STALLS })]
#[case::supervised_stream_and_loss(Setting { stream: Stream::Prompt, faults: Faults { loss: true, ..NO_FAULT }, left: Budget { stalls: 2, late_reports: 1, ..ONE }, ..SUPERVISED_STALLS })]
fn properties_hold_with_stalls(#[case] setting: Setting) {
    properties_hold(setting);
}

#[rstest]
#[case::a_leader_wakes(Setting { left: ONE_WAKES, ..STREAM })]
#[case::failover(Setting { late: WRITES, left: Budget { crashes: 1, ..ONE }, ..STREAM })]
#[case::suspensions(Setting { left: Budget { suspensions: 1, late_reports: 1, ..NOTHING }, ..STREAM })]
#[case::late_watches(Setting { late: WATCHES, ..STREAM })]
#[case::supervised_hostile_relays_and_failover(Setting { late: WRITES, left: Budget { crashes: 1, ..HOSTILE }, ..SUPERVISED_STREAM })]
#[case::hostile_relays_and_two_failures(Setting { left: Budget { faults: 2, ..HOSTILE }, ..STREAM })]
#[case::hostile_relays_and_late_leader(Setting { stream: Stream::Late, left: HOSTILE, ..STREAM })]
#[case::hostile_relays_and_replacement(Setting { left: HOSTILE, faults: REPLACED, ..STREAM })]
#[case::hostile_relays_and_suspensions(Setting { left: Budget { suspensions: 1, hostile: true, ..NOTHING }, ..STREAM })]
#[case::supervised_connections_break_and_leader_wakes(Setting { left: Budget { woken: 1, ..ONE_BREAK }, ..SUPERVISED_STREAM })]
#[case::supervised_connections_break_and_failover(Setting { late: WRITES, left: Budget { crashes: 1, ..ONE_BREAK }, ..SUPERVISED_STREAM })]
#[case::supervisors_restart(Setting { faults: AGENT, left: Budget { late_reports: 1, ..TWO }, ..SUPERVISED_STREAM })]
#[case::without_watches(Setting { stream: Stream::Alone, faults: AGENT, left: TWO, ..SUPERVISED_STREAM })]
#[case::supervised_stalls_and_replacement(Setting { stream: Stream::Prompt, faults: REPLACED, left: Budget { stalls: 2, late_reports: 1, ..ONE }, ..SUPERVISED_STALLS })]
#[ignore = "too many states for each run: make model"]
fn properties_hold_with_the_stream_at_large(#[case] setting: Setting) {
    properties_hold(setting);
}

#[rstest]
#[case::answers_from_a_cache(RuleMutation::AnswersFromACache, Setting { late: Late { jobsets: true, ..PROMPT }, faults: Faults { agent: true, ..WORKER }, left: TWO, ..SUPERVISED_STREAM }, OneWorkerPerEpoch)]
#[case::answers_read_before_the_hello(RuleMutation::AnswersReadBeforeTheHello, Setting { faults: AGENT, left: ONE_WAKES, ..SUPERVISED_STREAM }, OneWorkerPerEpoch)]
#[case::answers_overtaken(RuleMutation::AnswersOvertaken, Setting { stream: Stream::Alone, faults: AGENT, left: TWO, ..SUPERVISED_STREAM }, NoHang)]
#[case::broadcasts_taken_for_answers(RuleMutation::BroadcastsTakenForAnswers, Setting { stream: Stream::Late, faults: AGENT, left: ONE_WAKES, ..SUPERVISED_STREAM }, OneWorkerPerEpoch)]
#[case::lift_sent_before_write(RuleMutation::LiftSentBeforeWrite, Setting { late: WRITES, left: Budget { crashes: 1, ..ONE }, ..SUPERVISED_STREAM }, Barrier)]
#[case::report_of_replaced_pod(RuleMutation::ReportOfReplacedPodCounts, Setting { faults: Faults { loss: true, ..WORKER }, left: Budget { late_reports: 1, ..TWO }, ..SUPERVISED_STREAM }, Barrier)]
#[case::life_of_others_counts(RuleMutation::LifeOfOthersCounts, Setting { left: HOSTILE, ..SUPERVISED_STREAM }, ToldInTime)]
#[case::states_not_repeated(RuleMutation::StatesNotRepeated, Setting { left: HOSTILE, ..SUPERVISED_STREAM }, ToldInTime)]
#[case::answers_to_others_taken(RuleMutation::AnswersToOthersTaken, Setting { left: HOSTILE, faults: AGENT, ..SUPERVISED_STREAM }, OneWorkerPerEpoch)]
#[case::old_statements_taken(RuleMutation::OldStatementsTaken, Setting { left: HOSTILE, ..SUPERVISED_STREAM }, Barrier)]
#[case::annotation_left_to_the_stream(RuleMutation::AnnotationLeftToTheStream, Setting { left: HOSTILE, ..SUPERVISED_STREAM }, NoHang)]
#[case::reports_of_hellos_are_new(RuleMutation::ReportsOfHellosAreNew, Setting { left: ONE_BREAK, ..SUPERVISED_STREAM }, OneRestartPerIncident)]
#[case::fall_back_reports_older_epoch(RuleMutation::FallBackReportsOlderEpoch, Setting { left: ONE_BREAK, ..SUPERVISED_STREAM }, NoHang)]
#[case::writes_overtake_each_other(RuleMutation::WritesOvertakeEachOther, Setting { left: TWO, ..SUPERVISED_STREAM }, NoHang)]
#[case::a_report_early(RuleMutation::LiftedOneReportEarly, THREE, Barrier)]
#[case::before_its_worker_has_ended(RuleMutation::SupervisorsDoNotWait, Setting { left: ONE, ..SUPERVISED }, OneWorkerPerEpoch)]
#[case::lonely_agents(RuleMutation::LonelyAgentsAreBelieved, Setting { faults: AGENT, left: ONE, ..THREE }, OneWorkerPerEpoch)]
#[case::reports_once(RuleMutation::ReportsOnce, Setting { left: Budget { reports: 1, ..ONE }, ..THREE }, NoHang)]
#[case::late_statuses(RuleMutation::LateStatusesAreFailures, Setting { late: STATUSES, left: ONE, ..TWO_PODS }, OneRestartPerIncident)]
#[case::counted_each_reconciliation(RuleMutation::CountedEachReconciliation, Setting { left: ONE, ..THREE }, OneRestartPerIncident)]
#[case::a_budget_off_by_one(RuleMutation::BudgetOffByOne, Setting { max_restarts: 1, ..TWO_PODS }, ExactBudget)]
#[case::free_epoch_forgotten(RuleMutation::FreeEpochForgotten, Setting { left: Budget { suspensions: 1, ..NOTHING }, ..TWO_PODS }, OneRestartPerIncident)]
#[case::confirmed_by_pods_alone(RuleMutation::ConfirmedByPodsAlone, Setting { pods: 2, late: Late { jobsets: true, ..PROMPT }, ..SUPERVISED }, OneRestartPerIncident)]
#[case::stalls_outlive_their_epoch(RuleMutation::StallsOutliveTheirEpoch, STALLS, OneRestartPerIncident)]
#[case::stalls_not_observed(RuleMutation::StallsNotObserved, STALLS, NoHang)]
#[case::stalls_counted_twice(RuleMutation::StallsCountedTwice, STALLS, OneRestartPerIncident)]
#[case::stalls_over_the_stream_counted_twice(RuleMutation::StallsCountedTwice, Setting { stream: Stream::Prompt, ..SUPERVISED_STALLS }, OneRestartPerIncident)]
fn a_broken_rule_is_caught(#[case] broken: RuleMutation, #[case] setting: Setting, #[case] by: Property) {
    let found = check(Setting { broken: Some(broken), ..setting });
    let Some(Counterexample { property, trace }) = found else { panic!("{broken:?} is not caught") };
    println!("{broken:?}\n{trace}");
    assert_eq!(property, by, "{trace}");
}

/// The assumption of the protocol that the first read of an agent is consistent. Without it an agent reports the epoch
/// that runs, and its worker joins that alone.
#[test]
fn a_stale_first_read_lets_a_worker_join_alone() {
    let setting = Setting { from_birth: true, left: Budget { stale_reads: 1, ..ONE }, ..TWO_PODS };
    let Some(Counterexample { property, trace }) = check(setting) else { panic!("a stale read does no harm") };
    println!("{trace}");
    assert_eq!(property, OneWorkerPerEpoch, "{trace}");
}

/// What the protocol leaves open: an advance that is announced because the JobSet is resumed is free, unless a failure was
/// observed before. One that an agent alone has noticed is absorbed by it.
#[test]
fn a_failure_just_before_a_suspension_is_not_counted() {
    let setting = Setting { pods: 2, strict: true, left: Budget { suspensions: 1, ..ONE }, ..SUPERVISED };
    let Some(Counterexample { property, trace }) = check(setting) else { panic!("it is counted") };
    println!("{trace}");
    assert_eq!(property, ExactBudget, "{trace}");
}
