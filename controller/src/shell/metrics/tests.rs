use std::sync::Arc;

use jobset_api::{FailurePolicyAction, JobSet, JobSetSpec, ReplicatedJobStatus, RestartStrategy, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use prometheus::{Registry, TextEncoder};
use rstest::rstest;
use serde_json::json;

use super::clock::{Clock, Measured, Outcome, Phase};
use super::{Ledger, ObjectMetrics};
use crate::engine::Key;
use crate::plan::{Barrier, ExitClass, Fact, Trigger};

use RestartStrategy::{InPlaceRestart as InPlace, Recreate};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn jobset() -> JobSet {
    let mut jobset = JobSet::new("train", JobSetSpec::default());
    jobset.metadata.namespace = Some("ml".to_owned());
    jobset.metadata.uid = Some("u".to_owned());
    jobset.metadata.creation_timestamp = Some(Time(at(0)));
    jobset
}

fn began(strategy: RestartStrategy, failed_at: Option<i64>) -> Fact {
    Fact::RestartBegan {
        strategy,
        action: FailurePolicyAction::RestartJobSet,
        counted: true,
        trigger: Trigger::ContainerExit(ExitClass::Error),
        failed_at: failed_at.map(at),
    }
}

fn failed() -> Fact {
    Fact::Failed { budget_exhausted: false }
}

/// What is measured of facts, each at its second.
fn measure(mut clock: Clock, facts: &[(i64, Fact)]) -> Vec<Measured> {
    facts.iter().flat_map(|(second, fact)| clock.take(fact, at(*second))).collect()
}

#[rstest]
#[case::start(&[(7, Fact::Started)], vec![Measured::Startup(7.0)])]
#[case::jobs_that_were_ready_before(&[(7, Fact::Started), (9, Fact::Started)], vec![Measured::Startup(7.0)])]
#[case::in_place(
    &[(10, began(InPlace, Some(8))), (13, Fact::BarrierLifted), (14, Fact::Recovered)],
    vec![
        Measured::Phase(InPlace, Phase::Detect, 2.0),
        Measured::Phase(InPlace, Phase::Register, 3.0),
        Measured::Restart(InPlace, Outcome::Recovered, 6.0),
        Measured::Downtime(6.0),
        Measured::Phase(InPlace, Phase::Lift, 1.0),
    ]
)]
#[case::a_failure_that_was_not_seen(
    &[(10, began(Recreate, None)), (14, Fact::Recovered)],
    vec![
        Measured::Restart(Recreate, Outcome::Recovered, 4.0),
        Measured::Downtime(4.0),
        Measured::Phase(Recreate, Phase::Recreate, 4.0),
    ]
)]
#[case::a_failure_by_a_clock_that_is_ahead(
    &[(10, began(Recreate, Some(12))), (14, Fact::Recovered)],
    vec![
        Measured::Phase(Recreate, Phase::Detect, 0.0),
        Measured::Restart(Recreate, Outcome::Recovered, 4.0),
        Measured::Downtime(4.0),
        Measured::Phase(Recreate, Phase::Recreate, 4.0),
    ]
)]
#[case::superseded_and_each_second_counted_once(
    &[(10, began(InPlace, None)), (15, began(Recreate, Some(12))), (18, Fact::Recovered)],
    vec![
        Measured::Phase(Recreate, Phase::Detect, 3.0),
        Measured::Restart(InPlace, Outcome::Superseded, 5.0),
        Measured::Downtime(5.0),
        Measured::Restart(Recreate, Outcome::Recovered, 3.0),
        Measured::Downtime(3.0),
        Measured::Phase(Recreate, Phase::Recreate, 3.0),
    ]
)]
#[case::failed_on_the_way(
    &[(10, began(InPlace, None)), (15, failed())],
    vec![Measured::Restart(InPlace, Outcome::Failed, 5.0), Measured::Downtime(5.0)]
)]
#[case::failed_without_a_restart(&[(15, failed())], vec![])]
#[case::completed_before_all_were_ready_at_once(
    &[(10, began(Recreate, None)), (15, Fact::Completed)],
    vec![
        Measured::Restart(Recreate, Outcome::Recovered, 5.0),
        Measured::Downtime(5.0),
        Measured::Phase(Recreate, Phase::Recreate, 5.0),
    ]
)]
#[case::between_restarts(
    &[(7, Fact::Started), (20, began(Recreate, Some(17)))],
    vec![Measured::Startup(7.0), Measured::Phase(Recreate, Phase::Detect, 3.0), Measured::Undisturbed(10.0)]
)]
#[case::first_lift_of_all(&[(7, Fact::BarrierLifted)], vec![])]
#[case::one_job_alone(
    &[(7, Fact::RestartBegan {
        strategy: Recreate,
        action: FailurePolicyAction::RestartJob,
        counted: true,
        trigger: Trigger::JobFailed,
        failed_at: Some(at(5)),
    })],
    vec![]
)]
fn a_jobset(#[case] facts: &[(i64, Fact)], #[case] wanted: Vec<Measured>) {
    assert_eq!(measure(Clock::of(&jobset()), facts), wanted);
}

fn restarting(status: bool, reason: &str, strategy: RestartStrategy) -> JobSet {
    let mut jobset = jobset();
    jobset.spec.failure_policy =
        Some(jobset_api::FailurePolicy { restart_strategy: Some(strategy), ..Default::default() });
    let conditions = &mut jobset.status.get_or_insert_default().conditions;
    conditions::set(conditions, conditions::RESTARTING, status, reason, "", &Time(at(10)));
    jobset
}

#[rstest]
#[case::in_place(restarting(true, conditions::IN_PLACE_RESTART, InPlace), InPlace, None)]
#[case::by_recreation(restarting(true, conditions::FAILED_JOBS, Recreate), Recreate, Some(Phase::Recreate))]
#[case::fell_back(restarting(true, conditions::SUCCEEDED_WORKERS, InPlace), Recreate, Some(Phase::Recreate))]
fn a_restart_that_another_leader_began_has_its_duration(
    #[case] jobset: JobSet,
    #[case] strategy: RestartStrategy,
    #[case] phase: Option<Phase>,
) {
    let mut wanted = vec![Measured::Restart(strategy, Outcome::Recovered, 5.0), Measured::Downtime(5.0)];
    wanted.extend(phase.map(|phase| Measured::Phase(strategy, phase, 5.0)));
    assert_eq!(measure(Clock::of(&jobset), &[(15, Fact::Recovered)]), wanted);
}

#[test]
fn a_group_that_recovered_under_another_leader_has_run_since_then() {
    let jobset = restarting(false, conditions::JOBS_READY, InPlace);
    let measured = measure(Clock::of(&jobset), &[(40, began(InPlace, None))]);
    assert_eq!(measured, [Measured::Undisturbed(30.0)]);
}

#[test]
fn the_start_of_a_suspended_jobset_counts_from_its_resumption() {
    let mut jobset = jobset();
    let mut clock = Clock::of(&jobset);
    let conditions = &mut jobset.status.get_or_insert_default().conditions;
    conditions::set(conditions, conditions::SUSPENDED, false, conditions::RESUMED_JOBS, "", &Time(at(100)));
    clock.see(&jobset);
    assert_eq!(clock.take(&Fact::Started, at(107)), [Measured::Startup(7.0)]);
}

#[test]
fn the_time_in_which_a_jobset_is_suspended_belongs_to_no_restart() {
    let mut clock = Clock::of(&restarting(true, conditions::IN_PLACE_RESTART, InPlace));
    let mut suspended = jobset();
    let conditions = &mut suspended.status.get_or_insert_default().conditions;
    conditions::set(conditions, conditions::SUSPENDED, true, conditions::SUSPENDED_JOBS, "", &Time(at(12)));
    clock.see(&suspended);
    assert_eq!(clock.take(&Fact::Recovered, at(10_000)), []);
}

fn text(registry: &Registry) -> String {
    TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}

fn lines(registry: &Registry, start: &str) -> Vec<String> {
    text(registry).lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
}

fn train() -> Key {
    Key { namespace: "ml".to_owned(), name: "train".to_owned() }
}

#[test]
fn series_of_a_jobset_begin_with_its_end_and_go_with_it() {
    let registry = Registry::new();
    let mut ledger = Ledger::register(&registry).unwrap();
    let key = train();
    let of_jobset = |registry: &Registry| {
        [lines(registry, "jobset_failed_total"), lines(registry, "jobset_completed_total")].concat()
    };
    let finished = |failed: u8| {
        [("completed", 0), ("failed", failed)]
            .map(|(result, count)| format!(r#"jobset_finished_total{{namespace="ml",result="{result}"}} {count}"#))
    };
    ledger.see(&key, &jobset());
    assert_eq!(of_jobset(&registry), [""; 0], "thousands of them would be series of nothing");
    assert_eq!(lines(&registry, "jobset_finished_total"), finished(0), "the first one is an increase");
    ledger.see(&key, &jobset());
    ledger.written(&key, &[Fact::Failed { budget_exhausted: true }], at(1));
    assert_eq!(of_jobset(&registry), [r#"jobset_failed_total{jobset_name="train",namespace="ml"} 1"#]);
    assert_eq!(lines(&registry, "jobset_finished_total"), finished(1));
    let exhausted = r#"jobset_restart_budget_exhausted_total{namespace="ml"} 1"#;
    assert_eq!(lines(&registry, "jobset_restart_budget"), [exhausted]);

    let mut successor = jobset();
    successor.metadata.uid = Some("v".to_owned());
    ledger.see(&key, &successor);
    assert_eq!(of_jobset(&registry), [""; 0], "it is another one");
    ledger.written(&key, &[Fact::Completed], at(2));
    assert_eq!(of_jobset(&registry), [r#"jobset_completed_total{jobset_name="train",namespace="ml"} 1"#]);
    ledger.forget(&key);
    assert_eq!(of_jobset(&registry), [""; 0]);
    assert_eq!(lines(&registry, "jobset_restart_budget"), [exhausted], "what counts for the namespace stays");
}

#[test]
fn a_write_that_ends_after_its_jobset_has_gone_leaves_no_series() {
    let registry = Registry::new();
    let mut ledger = Ledger::register(&registry).unwrap();
    let key = train();
    ledger.see(&key, &jobset());
    ledger.forget(&key);
    ledger.written(&key, &[Fact::Completed], at(1));
    ledger.forget(&key);
    assert_eq!(lines(&registry, "jobset_completed_total"), [""; 0]);
}

/// With a replicatedJob that is counted and one that is not yet.
fn running() -> JobSet {
    let mut jobset = jobset();
    jobset.spec = serde_json::from_value(json!({
        "failurePolicy": {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"},
        "replicatedJobs": [{"name": "w", "replicas": 4, "template": {"spec": {}}}, {"name": "x", "template": {"spec": {}}}],
    }))
    .unwrap();
    let status = jobset.status.get_or_insert_default();
    let counted = ReplicatedJobStatus { name: "w".to_owned(), ready: 1, active: 2, failed: 3, ..Default::default() };
    status.replicated_jobs_status = vec![counted];
    (status.restarts, status.group_restarts, status.restarts_count_towards_max) = (1, 5, 2);
    conditions::set(&mut status.conditions, conditions::RESTARTING, true, "", "", &Time(at(1)));
    jobset
}

#[test]
fn the_state_of_a_jobset_is_what_was_last_seen_of_it_and_nothing_else() {
    let registry = Registry::new();
    let objects = ObjectMetrics::register(&registry).unwrap();
    let key = train();
    let series = |name: &str| lines(&registry, name).concat();
    assert_eq!(lines(&registry, ""), [""; 0]);
    let mut jobset = running();
    objects.see(&key, &Arc::new(jobset.clone()), Some(Barrier { open: false, waiting: 7 }));
    let of_group = |name: &str, group: &str, value: u8| {
        format!(
            r#"kube_jobset_{name}_replicas{{jobset_name="train",namespace="ml",replicated_job_name="{group}"}} {value}"#
        )
    };
    for (name, value) in [("ready", 1), ("succeeded", 0), ("failed", 3), ("active", 2), ("suspended", 0)] {
        assert_eq!(series(&format!("kube_jobset_{name}_replicas")), of_group(name, "w", value));
    }
    assert_eq!(
        lines(&registry, "kube_jobset_specified_"),
        [of_group("specified", "w", 4), of_group("specified", "x", 1)]
    );
    let condition = |type_: &str, value: u8| {
        format!(
            r#"kube_jobset_status_condition{{condition="{type_}",jobset_name="train",namespace="ml",status="true"}} {value}"#
        )
    };
    assert_eq!(series("kube_jobset_status_condition"), condition("RestartingJobSet", 1));
    for (name, value) in [
        ("kube_jobset_restarts", 5),
        ("jobset_max_restarts", 3),
        ("jobset_restarts_counted", 2),
        ("jobset_barrier_waiting_pods", 7),
        ("jobset_barrier_open", 0),
    ] {
        assert_eq!(series(&format!("{name}{{")), format!(r#"{name}{{jobset_name="train",namespace="ml"}} {value}"#));
    }

    // The replicatedJob x goes, a condition gives way to another, and there is no barrier any more.
    jobset.spec.replicated_jobs.truncate(1);
    let status = jobset.status.as_mut().unwrap();
    status.conditions.clear();
    conditions::set(&mut status.conditions, conditions::SUSPENDED, true, "", "", &Time(at(2)));
    conditions::set(&mut status.conditions, conditions::SUSPENDED, false, "", "", &Time(at(3)));
    objects.see(&key, &Arc::new(jobset), None);
    assert_eq!(series("kube_jobset_specified_"), of_group("specified", "w", 4));
    assert_eq!(series("kube_jobset_status_condition"), condition("Suspended", 0));
    assert_eq!(series("jobset_barrier_"), "");

    // Another JobSet of this name has not been counted yet.
    let mut successor = running();
    successor.status = None;
    objects.see(&key, &Arc::new(successor), None);
    assert_eq!(series("kube_jobset_ready_replicas") + &series("kube_jobset_status_condition"), "");
    assert!(series("kube_jobset_restarts").ends_with(" 0"));
    objects.forget(&key);
    assert_eq!(lines(&registry, ""), [""; 0]);
}

#[test]
fn a_restart_is_counted_with_its_cause_and_its_rule() {
    let registry = Registry::new();
    let mut ledger = Ledger::register(&registry).unwrap();
    let key = train();
    ledger.see(&key, &jobset());
    let applied = |rule| Fact::PolicyApplied { action: FailurePolicyAction::RestartJobSet, rule };
    let facts = [began(InPlace, None), applied(None), applied(Some(2)), applied(Some(200))];
    ledger.written(&key, &facts, at(1));
    assert_eq!(
        lines(
            &registry,
            "jobset_restarts_total{action=\"restart_jobset\",counted=\"true\",namespace=\"ml\",strategy=\"in"
        ),
        [r#"jobset_restarts_total{action="restart_jobset",counted="true",namespace="ml",strategy="in_place"} 1"#]
    );
    assert_eq!(
        lines(&registry, "jobset_restart_triggers_total"),
        [r#"jobset_restart_triggers_total{exit_class="1-127",namespace="ml",reason="container_exit"} 1"#]
    );
    assert_eq!(
        lines(&registry, "jobset_failure_policy"),
        ["2", "32+", "default"].map(|rule| {
            format!(r#"jobset_failure_policy_actions_total{{action="restart_jobset",rule_index="{rule}"}} 1"#)
        })
    );
}
