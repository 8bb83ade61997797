//! Counts of Jobs.

use jobset_store::{Finished, JobView};
use rstest::rstest;
use serde_json::json;

use super::fixture::{failed, job, jobset, observed, reconcile};

/// `ready/succeeded/failed/active/suspended` of the only replicatedJob.
#[rstest]
#[case::pending(JobView { active: 1, ..job(0, None) }, "0/0/0/1/0")]
#[case::ready(JobView { active: 1, ready: 1, ..job(0, None) }, "1/0/0/1/0")]
#[case::a_pod_of_two_is_not_enough(JobView { active: 2, ready: 1, pods: 2, ..job(0, None) }, "0/0/0/1/0")]
#[case::ready_and_succeeded_pods_together(JobView { active: 1, ready: 1, succeeded: 1, pods: 2, ..job(0, None) }, "1/0/0/1/0")]
#[case::suspended(JobView { suspended: true, ..job(0, None) }, "0/0/0/0/1")]
#[case::suspended_with_a_pod(JobView { suspended: true, active: 1, ready: 1, ..job(0, None) }, "1/0/0/1/1")]
#[case::without_a_pod(job(0, None), "0/0/0/0/0")]
#[case::zero_pods(JobView { pods: 0, ..job(0, None) }, "1/0/0/0/0")]
#[case::succeeded(job(0, Some(Finished::Completed)), "0/1/0/0/0")]
#[case::failed(job(0, Some(failed(1, "A", ""))), "0/0/1/0/0")]
#[case::being_deleted(JobView { deleting: true, active: 1, ..job(0, None) }, "0/0/0/0/0")]
fn job_is_counted_as_the_go_jobset_counts(#[case] only: JobView, #[case] expected: &str) {
    let plan = reconcile(&observed(jobset(&json!({}), &json!(null)), [("train-w-0", only)]));
    let counted = &plan.status.replicated_jobs_status[0];
    let jobset_api::ReplicatedJobStatus { ready, succeeded, failed, active, suspended, .. } = counted;
    assert_eq!(format!("{ready}/{succeeded}/{failed}/{active}/{suspended}"), expected);
}
