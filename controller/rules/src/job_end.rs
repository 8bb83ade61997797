//! Whether a Job deletes Pods of its own accord. The Job controller deletes them before its status says why.

use jobset_store::JobView;
use jobset_store::pods::PodFailure;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::reconciliation::{Current, Reconciliation};

/// By how much the clock of the Job controller may be ahead.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(10);

/// Whether the Job may have deleted its Pods itself: it ends, is suspended, or is about to.
pub(super) fn deletes_pods(reconciliation: &Reconciliation<'_>, current: &Current<'_>) -> bool {
    let job = current.job;
    reconciliation.is_suspended()
        || job.suspended
        || job.deleting
        || job.failing
        || job.bears_no_failure
        || current.is_over()
        || deadline_is_near(reconciliation, job)
        || has_fatal_pod(reconciliation, current)
}

/// Whether the Job is about to fail: the Job controller says so, or will say so once it has judged a Pod that has failed.
pub(super) fn is_about_to_fail(reconciliation: &Reconciliation<'_>, current: &Current<'_>) -> bool {
    let Current { job, pods, .. } = *current;
    // The Job controller has not counted a failed Pod yet that it tracks.
    let bears_no_failure = || job.bears_no_failure && pods.is_some_and(|pods| pods.failed().any(|pod| pod.tracked));
    !current.is_over() && (job.failing || has_fatal_pod(reconciliation, current) || bears_no_failure())
}

/// Whether a Pod has failed that fails the Job by its podFailurePolicy.
fn has_fatal_pod(reconciliation: &Reconciliation<'_>, current: &Current<'_>) -> bool {
    let template = &reconciliation.groups()[current.group].template.spec;
    let fails_job = |failure: &PodFailure| failure.first_action(template) == Some("FailJob");
    template.pod_failure_policy.is_some()
        && current.pods.is_some_and(|pods| pods.failed().any(|pod| pod.failure.as_deref().is_some_and(fails_job)))
}

fn deadline_is_near(reconciliation: &Reconciliation<'_>, job: &JobView) -> bool {
    let Some((started, deadline)) = job.started.zip(job.deadline) else { return false };
    let latest = reconciliation.now.0.checked_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX);
    started.checked_add(SignedDuration::from_secs(deadline)).is_ok_and(|end| end <= latest)
}
