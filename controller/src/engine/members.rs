//! The members of a group: the Pods that its epoch began with (`status.replicatedJobsStatus[].syncedPods`).
//!
//! A Pod of a larger size is a newcomer. It may report the next epoch while the members work, and nobody has failed. A member
//! that reports the next epoch has failed. The record is in the status, so that another leader tells them apart, too.

use jobset_api::ReplicatedJobStatus;

use super::Ranges;

/// The members of one replicatedJob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Members {
    /// The status has no record: every Pod is a member.
    #[default]
    All,
    /// Numbers of Pods: index of the Job, times the parallelism, plus the completion index.
    Recorded {
        /// Pods of each Job.
        parallelism: i32,
        /// The numbers.
        pods: Ranges,
    },
}

/// The members of one Job, by completion index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JobMembers {
    /// Every Pod.
    #[default]
    All,
    /// The Pods with these indexes.
    Only(Ranges),
}

impl Members {
    /// The record in the status of a replicatedJob.
    pub fn of(status: Option<&ReplicatedJobStatus>) -> Self {
        let recorded = status.and_then(|status| {
            let pods = Ranges::parse(status.synced_pods.as_deref()?);
            Some(Self::Recorded { parallelism: status.synced_parallelism, pods })
        });
        recorded.unwrap_or_default()
    }

    /// The members of the Job with this index.
    pub fn of_job(&self, index: i32) -> JobMembers {
        match self {
            Self::All => JobMembers::All,
            Self::Recorded { parallelism, pods } => {
                JobMembers::Only(pods.slice(index.saturating_mul(*parallelism), *parallelism))
            }
        }
    }

    /// Whether the record has all Pods of this size.
    pub fn cover(&self, replicas: i32, parallelism: i32) -> bool {
        match self {
            Self::All => false,
            Self::Recorded { parallelism: recorded, pods } => {
                let size = replicas.saturating_mul(parallelism);
                *recorded == parallelism && pods.count_below(size) >= size
            }
        }
    }

    /// Whether a member is outside of this size.
    pub fn exceed(&self, replicas: i32, parallelism: i32) -> bool {
        match self {
            Self::All => false,
            Self::Recorded { parallelism: recorded, pods } => {
                pods.iter().any(|pod| *recorded == 0 || pod / recorded >= replicas || pod % recorded >= parallelism)
            }
        }
    }
}

impl JobMembers {
    /// Whether the Pod with this index is a member.
    pub fn contains(&self, index: i32) -> bool {
        match self {
            Self::All => true,
            Self::Only(pods) => pods.contains(index),
        }
    }

    /// Whether no Pod is a member.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Only(pods) if pods.is_empty())
    }

    /// Number of newcomers among the first `size` Pods that have not completed.
    pub fn newcomers(&self, size: i32, completed: &Ranges) -> i32 {
        match self {
            Self::All => 0,
            Self::Only(pods) if pods.count_below(size) >= size => 0,
            Self::Only(pods) => {
                let others = (0..size).filter(|index| !pods.contains(*index) && !completed.contains(*index));
                i32::try_from(others.count()).unwrap_or(i32::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_pods_are_members_of_their_jobs() {
        let status = ReplicatedJobStatus {
            synced_pods: Some("0-2,4".to_owned()),
            synced_parallelism: 2,
            ..ReplicatedJobStatus::default()
        };
        let members = Members::of(Some(&status));
        let indexes = |job: i32| (0..3).filter(|index| members.of_job(job).contains(*index)).collect::<Vec<_>>();
        assert_eq!([indexes(0), indexes(1), indexes(2), indexes(3)], [vec![0, 1], vec![0], vec![0], vec![]]);
        assert_eq!(members.of_job(1).newcomers(3, &Ranges::parse("2")), 1, "index 1; index 2 has completed");
        assert!(members.exceed(2, 2), "the third Job");
        assert!(members.exceed(3, 1), "a second Pod");
        assert!(!members.exceed(3, 2));
        assert!(members.cover(1, 2) && !members.cover(2, 2) && !members.cover(1, 1));
    }

    #[test]
    fn without_record_every_pod_is_a_member() {
        let members = Members::of(Some(&ReplicatedJobStatus::default()));
        assert!(members.of_job(7).contains(7) && !members.exceed(1, 1));
        assert_eq!(members.of_job(7).newcomers(9, &Ranges::default()), 0);
    }
}
