//! The members of a group: the Pods that its epoch began with (`status.replicatedJobsStatus[].syncedPods`).
//!
//! A Pod of a larger size is a newcomer. It may report the next epoch while the members work, and nobody has failed. A member
//! that reports the next epoch has failed. The record is in the status, so that another leader tells them apart, too.
//!
//! Everything here costs what the ranges of the record cost, never what a size says.

use jobset_api::ReplicatedJobStatus;

use crate::Ranges;

/// Most ranges of a record. Members beyond them count as newcomers. Admission lets fewer Pods through.
const MOST_RANGES: usize = 200_000;

/// The members of one replicatedJob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Members {
    /// The status has no record: every Pod is a member.
    #[default]
    All,
    /// Numbers of Pods: index of the Job, times the parallelism, plus the completion index.
    Recorded {
        /// Pods of each Job, at least 1.
        parallelism: i64,
        pods: Ranges,
    },
}

impl Members {
    pub fn of(status: Option<&ReplicatedJobStatus>) -> Self {
        let recorded = status.and_then(|status| {
            let (parallelism, pods) = (i64::from(status.synced_parallelism), status.synced_pods.as_deref()?);
            let pods = if parallelism > 0 { Ranges::parse(pods) } else { Ranges::default() };
            Some(Self::Recorded { parallelism: parallelism.max(1), pods })
        });
        recorded.unwrap_or_default()
    }

    /// The completion indexes of the members of the Job with this index.
    pub fn of_job(&self, index: i32) -> Ranges {
        match self {
            Self::All => Ranges::all(),
            Self::Recorded { parallelism, pods } => pods.slice(i64::from(index) * parallelism, *parallelism),
        }
    }

    /// Whether the record has all Pods of this size.
    pub fn cover(&self, replicas: i32, parallelism: i32) -> bool {
        match self {
            Self::All => false,
            Self::Recorded { parallelism: recorded, pods } => {
                let size = i64::from(replicas) * i64::from(parallelism);
                *recorded == i64::from(parallelism) && pods.count_below(size) >= size
            }
        }
    }

    /// Whether a member is outside of this size.
    pub fn exceed(&self, replicas: i32, parallelism: i32) -> bool {
        match self {
            Self::All => false,
            Self::Recorded { pods, .. } => self.count_within(replicas, parallelism) < pods.count(),
        }
    }

    /// Number of members within this size; all of it without a record.
    pub fn count_within(&self, replicas: i32, parallelism: i32) -> i64 {
        let (replicas, parallelism) = (i64::from(replicas.max(0)), i64::from(parallelism.max(0)));
        let Self::Recorded { parallelism: recorded, pods } = self else { return replicas * parallelism };
        let kept = parallelism.min(*recorded);
        // Number of Pods within the size whose number is below this one.
        let below = |number: i64| {
            let number = number.min(replicas.saturating_mul(*recorded));
            (number / recorded).saturating_mul(kept).saturating_add((number % recorded).min(kept))
        };
        pods.iter().map(|(first, last)| below(last.saturating_add(1)) - below(first)).sum()
    }

    /// The numbers of the members within this size, for a record with its parallelism.
    pub fn resized(&self, replicas: i32, parallelism: i32) -> Ranges {
        let (jobs, size) = (i64::from(replicas.max(0)), i64::from(parallelism.max(0)));
        let Self::Recorded { parallelism: recorded, pods } = self else { return Ranges::below(jobs * size) };
        let whole = pods.slice(0, jobs.saturating_mul(*recorded));
        if *recorded == size {
            return whole;
        }
        whole.iter().flat_map(|range| renumbered(range, *recorded, size)).take(MOST_RANGES).collect()
    }
}

/// A range of Pods with `before` numbers for each Job, as ranges with `after` numbers for each Job.
fn renumbered((first, last): (i64, i64), before: i64, after: i64) -> impl Iterator<Item = (i64, i64)> {
    let (first_job, last_job) = (first / before, last / before);
    let of_job = move |job: i64| {
        let (begin, end) = (first.max(job * before) - job * before, last.min(job * before + before - 1) - job * before);
        (begin < after).then(|| (job * after + begin, job * after + end.min(after - 1)))
    };
    // The Jobs between the first and the last one have all their Pods. If these are as many as there are numbers, their ranges
    // touch.
    let between = (first_job + 1, last_job - 1);
    let touch = (after <= before && between.0 <= between.1)
        .then(|| (between.0.saturating_mul(after), (between.1 + 1).saturating_mul(after) - 1));
    let single = if touch.is_some() { between.0..between.0 } else { between.0..last_job };
    let last_job = (last_job > first_job).then_some(last_job);
    of_job(first_job).into_iter().chain(touch).chain(single.filter_map(of_job)).chain(last_job.and_then(of_job))
}

/// Number of newcomers among the first `size` Pods of a Job that have not completed. The others are `members`.
pub fn newcomers(members: &Ranges, size: i32, completed: &Ranges) -> i64 {
    (i64::from(size) - members.union(completed).count_below(size.into())).max(0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn members(pods: &str, parallelism: i32) -> Members {
        let synced_pods = Some(pods.to_owned());
        Members::of(Some(&ReplicatedJobStatus {
            synced_pods,
            synced_parallelism: parallelism,
            ..ReplicatedJobStatus::default()
        }))
    }

    #[test]
    fn recorded_pods_are_members_of_their_jobs() {
        let members = members("0-2,4", 2);
        let indexes = |job: i32| (0..3).filter(|index| members.of_job(job).contains(*index)).collect::<Vec<_>>();
        assert_eq!([indexes(0), indexes(1), indexes(2), indexes(3)], [vec![0, 1], vec![0], vec![0], vec![]]);
        assert_eq!(newcomers(&members.of_job(1), 3, &Ranges::parse("2")), 1, "index 1; index 2 has completed");
        assert!(members.exceed(2, 2), "the third Job");
        assert!(members.exceed(3, 1), "a second Pod");
        assert!(!members.exceed(3, 2));
        assert!(members.cover(1, 2) && !members.cover(2, 2) && !members.cover(1, 1));
    }

    #[test]
    fn without_record_every_pod_is_a_member() {
        let members = Members::of(Some(&ReplicatedJobStatus::default()));
        assert!(members.of_job(7).contains(7) && !members.exceed(1, 1));
        assert_eq!(newcomers(&members.of_job(7), 9, &Ranges::default()), 0);
        assert_eq!(members.resized(2, 3).to_string(), "0-5");
    }

    #[rstest]
    #[case::same_size("0-2,4", 2, (3, 2), "0-2,4")]
    #[case::fewer_jobs("0-5", 2, (2, 2), "0-3")]
    #[case::fewer_pods("0-11", 4, (3, 2), "0-5")]
    #[case::fewer_pods_of_some("1-10", 4, (3, 2), "1-5")]
    #[case::more_pods("0-5", 2, (3, 4), "0-1,4-5,8-9")]
    #[case::more_pods_of_some("1-4", 2, (3, 4), "1,4-5,8")]
    #[case::no_jobs("0-5", 2, (0, 2), "")]
    #[case::no_pods("0-5", 2, (3, 0), "")]
    #[case::nonsense("0-5", 0, (3, 2), "")]
    fn members_of_another_size_keep_their_job_and_index(
        #[case] pods: &str,
        #[case] recorded: i32,
        #[case] (replicas, parallelism): (i32, i32),
        #[case] expected: &str,
    ) {
        let members = members(pods, recorded);
        let resized = members.resized(replicas, parallelism);
        assert_eq!(resized.to_string(), expected);
        assert_eq!(members.count_within(replicas, parallelism), resized.count());
    }

    /// The rule of numbers, Pod by Pod.
    #[test]
    fn members_resized_by_ranges_equal_those_counted_one_by_one() {
        for seed in 0..2_000_u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (recorded, replicas, parallelism) = (random.i32(1..5), random.i32(0..6), random.i32(0..6));
            let numbers: Vec<i32> = (0..30).filter(|_| random.bool()).collect();
            let before: Ranges = numbers.iter().copied().collect();
            let kept = numbers.iter().filter(|it| *it / recorded < replicas && *it % recorded < parallelism);
            let expected: Ranges = kept.map(|it| it / recorded * parallelism + it % recorded).collect();
            let members = members(&before.to_string(), recorded);
            assert_eq!(members.resized(replicas, parallelism), expected, "{seed}");
            assert_eq!(members.count_within(replicas, parallelism), expected.count(), "{seed}");
            assert_eq!(members.exceed(replicas, parallelism), expected.count() < before.count(), "{seed}");
        }
    }

    #[test]
    fn members_at_ends_of_integers_cost_a_few_ranges() {
        let all = format!("0-{}", i64::MAX);
        for (recorded, size) in [(1, 1), (1, i32::MAX), (i32::MAX, 1), (i32::MAX, i32::MAX), (i32::MIN, i32::MIN)] {
            let members = members(&all, recorded);
            let resized = members.resized(i32::MAX, size);
            assert!(resized.iter().count() <= MOST_RANGES);
            assert!(members.count_within(i32::MAX, size) >= 0);
            assert_eq!(newcomers(&members.of_job(i32::MAX), i32::MIN, &Ranges::default()), 0);
        }
    }
}
