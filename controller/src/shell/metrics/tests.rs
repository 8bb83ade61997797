mod ledger;

use std::sync::Arc;

use RestartStrategy::{InPlaceRestart as InPlace, Recreate};
use jobset_api::{
    FailurePolicy, FailurePolicyAction, JobSet, JobSetSpec, LaterFields, RecentRestart, ReplicatedJobStatus,
    RestartStrategy, conditions,
};
use jobset_rules::{Barrier, ExitClass, Fact, Trigger};
use jobset_store::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use prometheus::{Registry, TextEncoder};
use rstest::rstest;
use serde_json::json;

use super::clock::{Clock, Measured};
use super::{Ledger, ObjectMetrics, labels};

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

fn with_condition(mut jobset: JobSet, type_: &str, status: bool, reason: &str, second: i64) -> JobSet {
    let conditions = &mut jobset.status.get_or_insert_default().conditions;
    conditions::set(conditions, type_, status, reason, "", &Time(at(second)));
    jobset
}

/// A JobSet whose condition RestartingJobSet has changed in second 10.
fn restarting(strategy: RestartStrategy, status: bool, reason: &str) -> JobSet {
    let mut jobset = jobset();
    jobset.spec.failure_policy = Some(FailurePolicy { restart_strategy: Some(strategy), ..Default::default() });
    with_condition(jobset, conditions::RESTARTING, status, reason, 10)
}

/// A JobSet that restarts in place, whose last restart that the status keeps began and completed in these seconds.
fn restarted_at(start: i64, completion: Option<i64>) -> JobSet {
    let mut jobset = restarting(InPlace, true, conditions::IN_PLACE_RESTART);
    jobset.status.get_or_insert_default().recent_restarts = vec![RecentRestart {
        number: 1,
        strategy: InPlace,
        counted: true,
        consecutive_failures: 1,
        start_time: MicroTime(at(start)),
        completion_time: completion.map(|second| MicroTime(at(second))),
        message: String::new(),
        later: LaterFields::new(),
    }];
    jobset
}

fn began(strategy: RestartStrategy, failed_at: Option<i64>) -> Fact {
    let (action, trigger) = (FailurePolicyAction::RestartJobSet, Trigger::ContainerExit(ExitClass::Error));
    Fact::RestartBegan { strategy, action, counted: true, trigger, failed_at: failed_at.map(at) }
}

fn job_restart_began() -> Fact {
    let (action, trigger) = (FailurePolicyAction::RestartJob, Trigger::JobFailed);
    Fact::RestartBegan { strategy: Recreate, action, counted: true, trigger, failed_at: Some(at(5)) }
}

const FAILED: Fact = Fact::Failed { budget_exhausted: false };

/// The durations that a clock measures, each fact at its second.
fn measured(mut clock: Clock, facts: &[(i64, Fact)]) -> String {
    let durations = facts.iter().flat_map(|(second, fact)| clock.take(fact, at(*second)));
    let texts = durations.map(|measured| match measured {
        Measured::Startup(seconds) => format!("startup {seconds}"),
        Measured::Undisturbed(seconds) => format!("undisturbed {seconds}"),
        Measured::Restart(strategy, what, seconds) | Measured::Phase(strategy, what, seconds) => {
            format!("{} {what} {seconds}", labels::strategy(strategy))
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[rstest]
#[case::start(&[(7, Fact::Started)], "startup 7")]
#[case::started_twice(&[(7, Fact::Started), (9, Fact::Started)], "startup 7")]
#[case::in_place(
    &[(10, began(InPlace, Some(8))), (13, Fact::BarrierLifted), (14, Fact::Recovered)],
    "in_place detect 2, in_place register 3, in_place recovered 6, in_place lift 1"
)]
#[case::failure_not_observed(
    &[(10, began(Recreate, None)), (14, Fact::Recovered)],
    "recreate recovered 4, recreate recreate 4"
)]
#[case::failure_by_a_fast_clock(
    &[(10, began(Recreate, Some(12))), (14, Fact::Recovered)],
    "recreate detect 0, recreate recovered 4, recreate recreate 4"
)]
#[case::superseded(
    &[(10, began(InPlace, None)), (15, began(Recreate, Some(12))), (18, Fact::Recovered)],
    "recreate detect 3, in_place superseded 2, recreate recovered 6, recreate recreate 3"
)]
#[case::superseded_by_a_failure_of_a_slow_clock(
    &[(10, began(InPlace, None)), (15, began(InPlace, Some(9))), (18, Fact::Recovered)],
    "in_place detect 6, in_place superseded 0, in_place recovered 8"
)]
#[case::in_place_that_turns_into_recreation(
    &[(10, began(InPlace, Some(8))), (13, Fact::RestartRecreates { strategy: Recreate }), (20, Fact::Recovered)],
    "in_place detect 2, recreate recovered 12, recreate recreate 7"
)]
#[case::turned_into_recreation_after_a_suspension(&[(13, Fact::RestartRecreates { strategy: Recreate })], "")]
#[case::failed_during_a_restart(&[(10, began(InPlace, None)), (15, FAILED)], "in_place failed 5")]
#[case::failed_without_a_restart(&[(15, FAILED)], "")]
#[case::completed_during_a_restart(
    &[(10, began(Recreate, None)), (15, Fact::Completed)],
    "recreate recovered 5, recreate recreate 5"
)]
#[case::between_restarts(
    &[(7, Fact::Started), (20, began(Recreate, Some(17)))],
    "startup 7, recreate detect 3, undisturbed 10"
)]
#[case::after_a_recovery(
    &[(10, began(InPlace, None)), (14, Fact::Recovered), (20, began(InPlace, None))],
    "in_place recovered 4, undisturbed 6"
)]
#[case::first_lift(&[(7, Fact::BarrierLifted)], "")]
#[case::one_job_alone(&[(7, job_restart_began())], "")]
fn clock_measures_facts(#[case] facts: &[(i64, Fact)], #[case] expected: &str) {
    assert_eq!(measured(Clock::of(&jobset()), facts), expected);
}

#[rstest]
#[case(restarting(InPlace, true, conditions::IN_PLACE_RESTART), Fact::Recovered, "in_place recovered 5")]
#[case(
    restarting(Recreate, true, conditions::FAILED_JOBS),
    Fact::Recovered,
    "recreate recovered 5, recreate recreate 5"
)]
#[case(
    restarting(InPlace, true, conditions::FAILED_JOBS),
    Fact::Recovered,
    "recreate recovered 5, recreate recreate 5"
)]
#[case(restarting(InPlace, false, conditions::JOBS_READY), began(InPlace, None), "undisturbed 5")]
#[case::worker_ended_before(restarted_at(8, None), Fact::Recovered, "in_place recovered 7")]
#[case::another_restart_since(restarted_at(12, None), Fact::Recovered, "in_place recovered 3")]
#[case::restart_is_over(restarted_at(4, Some(6)), Fact::Recovered, "in_place recovered 5")]
fn clock_of_a_new_leader_begins_with_the_conditions(
    #[case] jobset: JobSet,
    #[case] fact: Fact,
    #[case] expected: &str,
) {
    assert_eq!(measured(Clock::of(&jobset), &[(15, fact)]), expected);
}

#[rstest]
#[case(jobset(), false, Fact::Started, "startup 3")]
#[case(restarting(InPlace, true, conditions::IN_PLACE_RESTART), true, Fact::Recovered, "")]
fn clock_excludes_the_time_of_suspension(
    #[case] before: JobSet,
    #[case] suspended: bool,
    #[case] fact: Fact,
    #[case] expected: &str,
) {
    let mut clock = Clock::of(&before);
    clock.see(&with_condition(jobset(), conditions::SUSPENDED, !suspended, "", 11));
    clock.see(&with_condition(jobset(), conditions::SUSPENDED, suspended, "", 12));
    assert_eq!(measured(clock, &[(15, fact)]), expected);
}

/// What a scrape shows, without the buckets of histograms, and without what each metric is: the reference has that.
fn scraped(registry: &Registry) -> String {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let series = text.lines().filter(|line| !line.contains("_bucket{") && !line.starts_with('#'));
    series.collect::<Vec<_>>().join("\n")
}

/// Compares what scrapes have shown, each below its title.
fn matches_snapshot(name: &str, scrapes: &[(&str, String)]) {
    let text: Vec<_> = scrapes.iter().map(|(title, scrape)| format!("# {title}\n{scrape}\n")).collect();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../../cases/metrics");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(name, text.join("\n")));
}

fn train() -> Key {
    Key { namespace: "ml".to_owned(), name: "train".to_owned() }
}

#[test]
fn ledger_facts_match_snapshot() {
    let registry = Registry::new();
    let (mut ledger, key) = (Ledger::register(&registry).unwrap(), train());
    ledger.see(&key, &jobset());
    let observed = scraped(&registry);
    let applied = |rule| Fact::PolicyApplied { action: FailurePolicyAction::RestartJobSet, rule };
    ledger.written(
        &key,
        &[Fact::Started, began(InPlace, Some(5)), applied(None), applied(Some(2)), applied(Some(200))],
        at(8),
    );
    ledger.written(&key, &[Fact::BarrierLifted, Fact::Recovered], at(12));
    ledger.written(&key, &[Fact::Failed { budget_exhausted: true }], at(20));
    let failed = scraped(&registry);
    ledger.forget(&key, at(30));
    ledger.forget_namespace("ml");
    let forgotten = scraped(&registry);
    matches_snapshot("ledger", &[("observed", observed), ("failed", failed), ("forgotten", forgotten)]);
}

#[test]
fn jobset_series_begin_at_end_and_leave_with_jobset() {
    let registry = Registry::new();
    let (mut ledger, key) = (Ledger::register(&registry).unwrap(), train());
    let counts = || ["failed", "completed"].map(|end| scraped(&registry).contains(&format!("jobset_{end}_total{{")));
    ledger.see(&key, &jobset());
    ledger.written(&key, &[FAILED], at(1));
    assert_eq!(counts(), [true, false]);
    let mut successor = jobset();
    successor.metadata.uid = Some("v".to_owned());
    ledger.see(&key, &successor);
    assert_eq!(counts(), [false, false]);
    ledger.written(&key, &[Fact::Completed], at(2));
    assert_eq!(counts(), [false, true]);
    ledger.forget(&key, at(30));
    // The answer to a write comes after the deletion.
    ledger.written(&key, &[Fact::Completed], at(3));
    ledger.forget(&key, at(30));
    assert_eq!(counts(), [false, false]);
}

/// What increase() is asked of over weeks, when all of its JobSets are long gone.
#[test]
fn restarts_of_namespace_outlive_their_jobsets() {
    let registry = Registry::new();
    let mut ledger = Ledger::register(&registry).unwrap();
    let series = r#"jobset_restarts_total{action="restart_jobset",counted="true",namespace="ml",strategy="in_place"}"#;
    for number in 1..=3 {
        let key = Key { namespace: "ml".to_owned(), name: format!("train-{number}") };
        ledger.see(&key, &jobset());
        ledger.written(&key, &[began(InPlace, None)], at(number));
        ledger.forget(&key, at(30));
        assert!(scraped(&registry).contains(&format!("{series} {number}")), "{}", scraped(&registry));
    }
    ledger.forget_namespace("ml");
    assert!(!scraped(&registry).contains("namespace=\"ml\""), "{}", scraped(&registry));
}

#[test]
fn active_jobsets_are_counted_by_namespace() {
    let registry = Registry::new();
    let mut ledger = Ledger::register(&registry).unwrap();
    let key = |name: &str| Key { namespace: "ml".to_owned(), name: name.to_owned() };
    let is = |number| assert_eq!(gauge(&registry, r#"jobset_active_jobsets{namespace="ml"}"#), number);
    let finished = with_condition(jobset(), conditions::COMPLETED, true, "", 1);
    ledger.see(&key("old"), &finished);
    is(Some(0));
    for name in ["a", "b", "c", "d"] {
        ledger.see(&key(name), &jobset());
    }
    ledger.see(&key("a"), &jobset());
    is(Some(4));
    for _ in 0..2 {
        ledger.see(&key("a"), &finished);
    }
    is(Some(3));
    let mut suspended = jobset();
    suspended.spec.suspend = Some(true);
    for (jobset, number) in [(&suspended, 2), (&suspended, 2), (&jobset(), 3)] {
        ledger.see(&key("d"), jobset);
        is(Some(number));
    }
    let mut successor = jobset();
    successor.metadata.uid = Some("v".to_owned());
    ledger.see(&key("a"), &successor);
    ledger.see(&key("b"), &successor);
    is(Some(4));
    ledger.forget(&key("b"), at(30));
    ledger.forget(&key("old"), at(30));
    ledger.forget(&key("old"), at(30));
    is(Some(3));
    ledger.forget_namespace("ml");
    ledger.forget(&key("a"), at(30));
    is(None);
}

/// `None` if there is no such series.
fn gauge(registry: &Registry, series: &str) -> Option<i64> {
    scraped(registry).lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn stalled_jobsets_are_counted_while_they_stall() {
    let registry = Registry::new();
    let (mut ledger, key) = (Ledger::register(&registry).unwrap(), train());
    let number = || gauge(&registry, r#"jobset_stalled_jobsets{namespace="ml"}"#);
    let stalls = |is_so, reason| with_condition(jobset(), conditions::PROGRESS_STALLED, is_so, reason, 1);
    let stalled = stalls(true, conditions::PROGRESS_STALLED);
    ledger.see(&key, &jobset());
    assert_eq!(number(), Some(0));
    for _ in 0..2 {
        ledger.see(&key, &stalled);
        assert_eq!(number(), Some(1));
    }
    ledger.see(&key, &stalls(false, conditions::STRAGGLER));
    assert_eq!(number(), Some(0), "others make progress");
    ledger.see(&key, &stalled);
    ledger.see(&key, &with_condition(stalled.clone(), conditions::FAILED, true, "", 2));
    assert_eq!(number(), Some(0), "it has ended");
    ledger.see(&key, &stalled);
    ledger.forget(&key, at(30));
    assert_eq!(number(), Some(0), "it is gone");
    ledger.see(&key, &stalled);
    assert_eq!(number(), Some(1), "a new leader finds it");
    ledger.forget_namespace("ml");
    assert_eq!(number(), None);
}

#[test]
fn exceeded_deadline_is_counted_once_until_its_jobset_is_gone() {
    let registry = Registry::new();
    let (mut ledger, key) = (Ledger::register(&registry).unwrap(), train());
    let series = r#"jobset_active_deadline_exceeded_total{jobset_name="train",namespace="ml"}"#;
    let is_shown = || scraped(&registry).contains(&format!("{series} 1"));
    ledger.see(&key, &jobset());
    assert!(!scraped(&registry).contains(series));
    ledger.written(&key, &[Fact::DeadlineExceeded, FAILED], at(1));
    assert!(is_shown(), "{}", scraped(&registry));
    ledger.forget(&key, at(30));
    assert!(!scraped(&registry).contains(series));
}

#[test]
fn state_of_a_jobset_matches_snapshot() {
    let registry = Registry::new();
    let (objects, key) = (ObjectMetrics::register(&registry).unwrap(), train());
    assert_eq!(scraped(&registry), "");
    let mut jobset = with_condition(jobset(), conditions::RESTARTING, true, "", 1);
    // The replicatedJob x is not counted yet.
    jobset.spec = serde_json::from_value(json!({
        "failurePolicy": {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"},
        "replicatedJobs": [{"name": "w", "replicas": 4, "template": {"spec": {}}}, {"name": "x", "template": {"spec": {}}}],
    }))
    .unwrap();
    let status = jobset.status.get_or_insert_default();
    let counts = ReplicatedJobStatus { name: "w".to_owned(), ready: 1, active: 2, failed: 3, ..Default::default() };
    status.replicated_jobs_status = vec![counts];
    (status.restarts, status.group_restarts, status.restarts_count_towards_max) = (1, 5, 2);
    objects.see(&key, &Arc::new(jobset.clone()), Some(Barrier { open: false, waiting: 7 }));
    let state = scraped(&registry);

    // The successor has another replicatedJob, another condition and no barrier.
    jobset.spec.replicated_jobs.remove(0);
    jobset.status = None;
    let successor = with_condition(jobset, conditions::SUSPENDED, true, "", 2);
    let successor = with_condition(successor, conditions::SUSPENDED, false, "", 3);
    objects.see(&key, &Arc::new(successor), None);
    matches_snapshot("state", &[("JobSet", state), ("its successor", scraped(&registry))]);
    objects.forget(&key);
    assert_eq!(scraped(&registry), "");
}
