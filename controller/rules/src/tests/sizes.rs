//! Numbers at their edges.

use jobset_api::conditions;
use jobset_store::JobView;
use serde_json::json;

use super::fixture::{job, jobs_of, jobset, observed, reasons, reconcile};

#[test]
fn jobset_of_overflowing_size_is_invalid() {
    let group = json!({"name": "a", "replicas": i32::MAX, "template": {"spec": {"parallelism": i32::MAX}}});
    let plan = reconcile(&observed(jobset(&json!({"replicatedJobs": [group]}), &json!(null)), []));
    assert_eq!((jobs_of(&plan), reasons(&plan)), (vec![], vec!["InvalidSpecification"]));
    assert!(conditions::is_true(&plan.status.conditions, conditions::INVALID));
}

#[test]
fn large_jobset_creates_at_most_200_jobs() {
    let group = json!({"name": "a", "replicas": 20_000, "template": {"spec": {}}});
    let plan = reconcile(&observed(jobset(&json!({"replicatedJobs": [group]}), &json!(null)), []));
    assert_eq!(jobs_of(&plan).len(), 200);
}

#[test]
fn jobset_of_no_replicated_jobs_has_not_completed() {
    let plan = reconcile(&observed(jobset(&json!({"replicatedJobs": []}), &json!(null)), []));
    assert_eq!(plan.status.terminal_state, "");
}

#[test]
fn job_of_no_pods_is_ready() {
    let only = JobView { pods: 0, ..job(0, None) };
    let plan = reconcile(&observed(jobset(&json!({}), &json!(null)), [("train-w-0", only)]));
    let counted = &plan.status.replicated_jobs_status[0];
    assert_eq!((counted.ready, counted.active), (1, 0));
}
