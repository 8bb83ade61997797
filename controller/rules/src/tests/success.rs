//! The success policy.

use jobset_store::Finished;
use rstest::rstest;
use serde_json::{Value, json};

use super::fixture::{job, jobset, observed, reconcile};

#[rstest]
#[case(json!({"operator": "All"}), false)]
#[case(json!({"operator": "Any"}), true)]
#[case(json!({"operator": "Any", "targetReplicatedJobs": ["other"]}), false)]
fn success_policy_operator_and_targets_decide_completion(#[case] policy: Value, #[case] completed: bool) {
    let jobs = [("train-w-0", job(0, Some(Finished::Completed))), ("train-w-1", job(0, None))];
    let plan = reconcile(&observed(jobset(&json!({"successPolicy": policy}), &json!(null)), jobs));
    assert_eq!(plan.status.terminal_state == "Completed", completed);
}

#[rstest]
#[case::no_job_is_targeted(json!({"successPolicy": {"operator": "All", "targetReplicatedJobs": ["nope"]}}))]
#[case::no_jobs(json!({"replicatedJobs": []}))]
fn success_policy_without_jobs_is_not_met(#[case] spec: Value) {
    assert_eq!(reconcile(&observed(jobset(&spec, &json!(null)), [])).status.terminal_state, "");
}
