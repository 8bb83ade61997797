//! Execution attempts: whatever write is lost, each resume counts once.

use jobset_api::JobSetStatus;
use jobset_api::gates::Gates;
use jobset_store::JobView;
use rstest::rstest;
use serde_json::{Value, json};

use super::fixture::{job, jobset, observed, reconcile};
use super::world::World;
use crate::{Action, Plan, Settings};

/// The JobSet with two Jobs of the present attempt, which are suspended or not.
fn world(spec: &Value, status: &Value, suspended: bool) -> World {
    let attempt = status["restarts"].as_i64().unwrap_or_default().try_into().unwrap();
    let job = JobView { suspended, ..job(attempt, None) };
    let mut world = observed(jobset(spec, status), [("train-w-0", job.clone()), ("train-w-1", job)]);
    let gates = Gates { execution_attempts_tracking: true, ..Gates::default() };
    world.settings = Settings { gates, ..Settings::default() };
    world
}

fn attempts(status: &JobSetStatus) -> (Option<i32>, bool) {
    (status.execution_attempts, status.execution_ended)
}

/// The execution attempts of the Jobs that the plan resumes.
fn resumed(plan: &Plan) -> Vec<i32> {
    plan.actions
        .iter()
        .filter_map(|action| match action {
            Action::ResumeJob { desired, .. } => desired.attempt.execution,
            _ => None,
        })
        .collect()
}

#[test]
fn resume_is_counted_once_before_any_job_is_resumed() {
    let stored = json!({"executionAttempts": 6, "executionEnded": true});
    let world = world(&json!({"suspend": false}), &stored, true);
    let mut plan = reconcile(&world);
    // The API server refuses the status: the next reconciliation finds the stored one again.
    for _ in 0..3 {
        assert_eq!((attempts(&plan.status), resumed(&plan)), ((Some(7), false), vec![]));
        plan = reconcile(&world);
    }
    let world = world.with_status(plan.status);
    // It is stored, and requests to resume are refused.
    for _ in 0..3 {
        let plan = reconcile(&world);
        assert_eq!((attempts(&plan.status), resumed(&plan)), ((Some(7), false), vec![7, 7]));
    }
}

#[rstest]
#[case::first(json!({}), 0)]
#[case::restarted_before(json!({"restarts": 4}), 4)]
fn first_number_needs_no_write_before_jobs_are_resumed(#[case] stored: Value, #[case] expected: i32) {
    let plan = reconcile(&world(&json!({"suspend": false}), &stored, true));
    assert_eq!((attempts(&plan.status), resumed(&plan)), ((Some(expected), false), vec![expected; 2]));
}

#[test]
fn restart_of_jobs_ahead_keeps_number_above_restarts() {
    let failed = super::fixture::failed(1, "BackoffLimitExceeded", "");
    let mut world = observed(
        jobset(&json!({"failurePolicy": {"maxRestarts": 1}}), &json!({"executionAttempts": 0})),
        [("train-w-0", job(5, Some(failed))), ("train-w-1", job(5, None))],
    );
    world.settings.gates.execution_attempts_tracking = true;
    let plan = reconcile(&world);
    assert_eq!((plan.status.restarts, plan.status.execution_attempts), (6, Some(6)));
}
