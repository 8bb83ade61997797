//! The state of a JobSet.

use jobset_api::{JobSet, JobSetStatus, conditions};
use serde::Serialize;

/// Label by which Kueue takes an object into a queue.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// The state of a JobSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum JobSetState {
    Completed,
    /// It has failed for good.
    Failed,
    /// It has a deletion timestamp.
    Deleting,
    /// Another controller reconciles it (`spec.managedBy`).
    ManagedElsewhere,
    /// `spec.suspend` is true.
    Suspended,
    /// The controller does not reconcile it, because its specification is not valid.
    Invalid,
    Restarting,
    /// No replicatedJob has replicas.
    NoJobs,
    /// All its Jobs are ready, have succeeded, or stay failed by the action `FailJob` of its failure policy.
    Running,
    /// All its Jobs are ready by its status, but a worker waits.
    NotReady,
    /// Not all of its Jobs are ready.
    Starting,
}

impl JobSetState {
    /// Whether the JobSet runs or has completed.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Completed | Self::Running)
    }

    /// Whether the JobSet does not run until a user acts.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Failed | Self::Invalid)
    }
}

/// The state of the JobSet, by its specification and status.
pub fn state(jobset: &JobSet) -> JobSetState {
    let none = JobSetStatus::default();
    let status = jobset.status.as_ref().unwrap_or(&none);
    let is_true = |condition| conditions::is_true(&status.conditions, condition);
    let (ready, wanted) = jobs(jobset);
    // As for the controller: a Job that has failed while the JobSet goes on stays so, and nothing waits for it.
    let failed: i64 = status.replicated_jobs_status.iter().map(|group| i64::from(group.failed)).sum();
    if let Some(terminal) = conditions::terminal(&status.conditions) {
        if terminal.type_ == conditions::COMPLETED { JobSetState::Completed } else { JobSetState::Failed }
    } else if jobset.metadata.deletion_timestamp.is_some() {
        JobSetState::Deleting
    } else if jobset.spec.is_suspended() {
        JobSetState::Suspended
    } else if is_true(conditions::INVALID) {
        JobSetState::Invalid
    } else if is_true(conditions::RESTARTING) {
        JobSetState::Restarting
    } else if wanted == 0 {
        JobSetState::NoJobs
    } else if wanted > 0 && ready + failed >= wanted {
        JobSetState::Running
    } else if jobset.is_managed_here() {
        JobSetState::Starting
    } else {
        JobSetState::ManagedElsewhere
    }
}

/// Jobs that are ready or have succeeded, and expected Jobs.
pub fn jobs(jobset: &JobSet) -> (i64, i64) {
    let groups = jobset.status.iter().flat_map(|status| &status.replicated_jobs_status);
    let ready = groups.map(|group| i64::from(group.ready) + i64::from(group.succeeded)).sum();
    (ready, jobset.spec.global_replicas())
}

/// The Kueue queue that suspends and resumes the JobSet.
pub fn queue(jobset: &JobSet) -> Option<&str> {
    jobset.metadata.labels.as_ref()?.get(QUEUE).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::all_are_ready(3, 0, 0, JobSetState::Running)]
    #[case::some_have_succeeded(1, 2, 0, JobSetState::Running)]
    #[case::one_stays_failed(2, 0, 1, JobSetState::Running)]
    #[case::one_stays_failed_and_one_starts(1, 0, 1, JobSetState::Starting)]
    fn jobset_runs_when_its_jobs_are_settled(
        #[case] ready: i32,
        #[case] succeeded: i32,
        #[case] failed: i32,
        #[case] expected: JobSetState,
    ) {
        let jobset: JobSet = serde_json::from_value(json!({
            "metadata": {"name": "train", "namespace": "ml"},
            "spec": {"replicatedJobs": [{"name": "workers", "replicas": 3, "template": {"spec": {}}}]},
            "status": {"replicatedJobsStatus": [
                {"name": "workers", "ready": ready, "succeeded": succeeded, "failed": failed}]},
        }))
        .unwrap();
        assert_eq!((state(&jobset), jobs(&jobset)), (expected, (i64::from(ready + succeeded), 3)));
    }
}
