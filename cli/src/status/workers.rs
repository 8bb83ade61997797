//! The workers of a JobSet, by its Jobs and Pods. They tell more than the JobSet's status, which is old if no controller runs.

use jobset_api::{JobSet, ReplicatedJob};
use serde::Serialize;

use super::report::{JobNode, ReplicatedJobNode};

/// The workers of a JobSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Workers {
    /// Workers that should run: one for each Pod, but for those of Jobs that have ended or are suspended.
    pub expected: i64,
    /// Workers that do not run: the Pod does not exist, is not ready, or is at the barrier.
    pub waiting: i64,
}

impl Workers {
    /// The workers of these replicatedJobs of a JobSet.
    pub fn of(jobset: &JobSet, groups: &[ReplicatedJobNode]) -> Self {
        let groups = jobset.spec.replicated_jobs.iter().zip(groups);
        groups.map(|(specified, group)| of_group(specified, group)).fold(Self::default(), |all, of| Self {
            expected: all.expected + of.expected,
            waiting: all.waiting + of.waiting,
        })
    }
}

fn of_group(specified: &ReplicatedJob, group: &ReplicatedJobNode) -> Workers {
    let missing_jobs = (i64::from(group.replicas) - i64::try_from(group.jobs.len()).unwrap_or(i64::MAX)).max(0);
    let missing = missing_jobs * i64::from(specified.template.spec.pods());
    let mut workers = Workers { expected: missing, waiting: missing };
    for job in group.jobs.iter().filter(|job| !matches!(job.state, "Complete" | "Failed" | "Suspended")) {
        let expected = i64::from(job.remaining_pods);
        workers.expected += expected;
        workers.waiting += (expected - running(job)).max(0);
    }
    workers
}

fn running(job: &JobNode) -> i64 {
    i64::try_from(job.pods.iter().filter(|pod| pod.runs()).count()).unwrap_or(i64::MAX)
}
