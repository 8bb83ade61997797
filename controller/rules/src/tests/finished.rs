//! Finished JobSets.

use jobset_store::Finished;
use serde_json::json;

use super::fixture::{at, job, jobs_of, jobset, observed, reconcile};

#[test]
fn finished_jobset_deletes_active_jobs_and_keeps_finished() {
    let status = json!({"conditions": [{
        "type": "Failed", "status": "True", "reason": "x", "message": "", "lastTransitionTime": at(1)}]});
    let jobs = [("train-w-0", job(0, Some(Finished::Completed))), ("train-w-1", job(0, None))];
    assert_eq!(jobs_of(&reconcile(&observed(jobset(&json!({}), &status), jobs))), ["-train-w-1"]);
}
