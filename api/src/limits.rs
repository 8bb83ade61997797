//! What one JobSet may take. Admission rejects what exceeds it; the controller does not carry it out.

use crate::{JobSetSpec, weight};

/// The limits of one JobSet. 0 sets no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSetLimits {
    /// Number of Jobs: the replicas of all replicatedJobs together.
    pub jobs: u32,
    /// Number of Pods at the same time, of all replicatedJobs together ([`JobSetSpec::expected_pods`]).
    pub pods: u32,
    /// Memory that the specification takes, in bytes ([`crate::weight`]).
    pub memory: usize,
}

impl Default for JobSetLimits {
    /// The defaults of the flags. Kubernetes supports clusters of up to 150,000 Pods.
    fn default() -> Self {
        Self { jobs: 20_000, pods: 150_000, memory: weight::MAX_SPEC }
    }
}

impl JobSetLimits {
    pub const NONE: Self = Self { jobs: 0, pods: 0, memory: 0 };

    /// The number of Jobs, if it exceeds the limit.
    pub fn excess_jobs(&self, spec: &JobSetSpec) -> Option<i64> {
        let jobs = spec.replicated_jobs.iter().map(|job| i64::from(job.replicas().max(0))).sum();
        (self.jobs > 0 && jobs > i64::from(self.jobs)).then_some(jobs)
    }

    /// The number of Pods, if it exceeds the limit.
    pub fn excess_pods(&self, spec: &JobSetSpec) -> Option<i64> {
        let pods = spec.expected_pods();
        (self.pods > 0 && pods > i64::from(self.pods)).then_some(pods)
    }

    /// The memory that a specification may take, in bytes; without a limit, any.
    pub fn most_memory(&self) -> usize {
        if self.memory == 0 { usize::MAX } else { self.memory }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::at_limits(&[(2, 3), (1, 4)], None, None)]
    #[case::jobs(&[(2, 0), (2, 0)], Some(4), None)]
    #[case::pods(&[(1, 6), (1, 5)], None, Some(11))]
    #[case::negative(&[(i32::MIN, 1), (3, 3), (0, i32::MAX)], None, None)]
    #[case::largest(&[(i32::MAX, i32::MAX); 9], Some(9 * i64::from(i32::MAX)), Some(i64::MAX))]
    fn excess_is_told_by_the_sum(
        #[case] groups: &[(i32, i32)],
        #[case] excess_jobs: Option<i64>,
        #[case] excess_pods: Option<i64>,
    ) {
        let group = |(replicas, pods): &(i32, i32)| json!({ "name": "w", "replicas": replicas, "template": { "spec": { "parallelism": pods } } });
        let spec = json!({ "replicatedJobs": groups.iter().map(group).collect::<Vec<_>>() });
        let spec: JobSetSpec = serde_json::from_value(spec).unwrap();
        let limits = JobSetLimits { jobs: 3, pods: 10, memory: 1 };
        assert_eq!((limits.excess_jobs(&spec), limits.excess_pods(&spec)), (excess_jobs, excess_pods));
        assert_eq!((JobSetLimits::NONE.excess_jobs(&spec), JobSetLimits::NONE.excess_pods(&spec)), (None, None));
        assert_eq!((limits.most_memory(), JobSetLimits::NONE.most_memory()), (1, usize::MAX));
    }
}
