//! Restarts: first the counter, then the Jobs of the next attempt.

use jobset_store::JobView;
use serde_json::json;

use super::fixture::{failed, job, jobs_of, jobset, observed, reconcile};

#[test]
fn restart_counter_stored_deletes_jobs_in_next_reconciliation() {
    let spec = json!({"failurePolicy": {"maxRestarts": 1}});
    let jobs = [("train-w-0", job(0, Some(failed(1, "BackoffLimitExceeded", "")))), ("train-w-1", job(0, None))];
    let counted = reconcile(&observed(jobset(&spec, &json!(null)), jobs.clone()));
    assert_eq!((counted.status.restarts, counted.status.restarts_count_towards_max), (1, 1));
    assert_eq!(counted.actions, [], "nothing is deleted before the count is stored");

    let stored = serde_json::to_value(&counted.status).unwrap();
    let plan = reconcile(&observed(jobset(&spec, &stored), jobs));
    assert_eq!(jobs_of(&plan), ["-train-w-0", "-train-w-1"]);
    assert_eq!(plan.status.restarts, 1, "the restart counts once");

    let deleting = JobView { deleting: true, ..job(0, None) };
    let plan = reconcile(&observed(jobset(&spec, &stored), [("train-w-1", deleting.clone())]));
    assert_eq!(jobs_of(&plan), ["+train-w-0"], "a Job is created as soon as its predecessor is gone");

    let blocking = json!({"failurePolicy": {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}});
    let plan = reconcile(&observed(jobset(&blocking, &stored), [("train-w-1", deleting)]));
    assert_eq!(jobs_of(&plan), [""; 0], "no Job is created before all predecessors are gone");
}
