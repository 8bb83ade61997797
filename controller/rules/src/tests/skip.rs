//! JobSets that the rules skip.

use jobset_api::conditions;
use serde_json::json;

use super::fixture::{at, jobs_of, jobset, observed, reasons, reconcile};
use crate::Plan;

#[test]
fn jobset_deleted_or_managed_by_another_is_skipped() {
    let mut deleted = jobset(&json!({}), &json!(null));
    deleted.metadata.deletion_timestamp = Some(at(1));
    let managed = jobset(&json!({"managedBy": "example.com/other"}), &json!(null));
    for jobset in [deleted, managed] {
        assert_eq!(reconcile(&observed(jobset, [])), Plan::default());
    }
}

#[test]
fn jobset_of_overflowing_size_is_invalid() {
    let group = json!({"name": "a", "replicas": i32::MAX, "template": {"spec": {"parallelism": i32::MAX}}});
    let plan = reconcile(&observed(jobset(&json!({"replicatedJobs": [group]}), &json!(null)), []));
    assert_eq!((jobs_of(&plan), reasons(&plan)), (vec![], vec!["InvalidSpecification"]));
    assert!(conditions::is_true(&plan.status.conditions, conditions::INVALID));
}
