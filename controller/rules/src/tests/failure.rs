//! The failure policy.

use jobset_api::conditions;
use rstest::rstest;
use serde_json::{Value, json};

use super::fixture::{failed, job, jobset, observed, reconcile};

#[rstest]
#[case::no_policy(json!(null), "Failed", conditions::FAILED_JOBS, 0)]
#[case::no_restart_left(json!({"maxRestarts": 0}), "Failed", conditions::REACHED_MAX_RESTARTS, 0)]
#[case::by_reason(json!({"maxRestarts": 9, "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}]}),
    "Failed", conditions::FAIL_JOB_SET_ACTION, 0)]
#[case::other_reason(json!({"maxRestarts": 9, "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["FailedIndexes"]}]}), "", "", 1)]
#[case::other_target(json!({"maxRestarts": 9, "rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["x"]}]}), "", "", 1)]
#[case::by_message(json!({"maxRestarts": 9, "rules": [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["^late"]}]}),
    "Failed", conditions::FAIL_JOB_SET_ACTION, 0)]
#[case::uncounted(json!({"maxRestarts": 0, "rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}), "", "", 1)]
// The first rule that any failed Job matches wins: the later Job matches it, the earlier Job matches the second rule.
#[case::first_rule_before_first_job(
    json!({"maxRestarts": 9, "rules": [
        {"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}, {"action": "RestartJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}]}),
    "Failed", conditions::FAIL_JOB_SET_ACTION, 0)]
fn failure_policy_rules_decide_outcome(
    #[case] policy: Value,
    #[case] terminal_state: &str,
    #[case] reason: &str,
    #[case] restarts: i32,
) {
    let spec = if policy.is_null() { json!({}) } else { json!({"failurePolicy": policy}) };
    let jobs = [
        ("train-w-0", job(0, Some(failed(1, "BackoffLimitExceeded", "early")))),
        ("train-w-1", job(0, Some(failed(2, "DeadlineExceeded", "late")))),
    ];
    let plan = reconcile(&observed(jobset(&spec, &json!(null)), jobs));
    assert_eq!(plan.status.terminal_state, terminal_state);
    assert_eq!(conditions::terminal(&plan.status.conditions).map_or("", |condition| &condition.reason), reason);
    assert_eq!((plan.status.restarts, plan.status.group_restarts), (restarts, restarts));
}

#[rstest]
#[case::the_earlier(2, 1, "train-w-1")]
#[case::a_tie_by_name(1, 1, "train-w-0")]
fn failures_of_two_jobs_event_names_first(#[case] first: i64, #[case] second: i64, #[case] named: &str) {
    let spec = json!({"failurePolicy": {"rules": [{"name": "stop", "action": "FailJobSet"}]}});
    let jobs =
        [("train-w-0", job(0, Some(failed(first, "A", "x")))), ("train-w-1", job(0, Some(failed(second, "A", "x"))))];
    let plan = reconcile(&observed(jobset(&spec, &json!(null)), jobs));
    assert_eq!(plan.notes[0].message, format!("Job {named} failed (A: x); rule stop"));
}
