//! The barrier of a JobSet with in-place restart. It follows from epochs alone: those that the Pods report, and the synced and
//! deprecated epoch of the JobSet's status.

use jobset_api::agent::uses_relay;
use jobset_api::epoch::{EpochVerdict, GroupEpochs};
use jobset_api::{JobSet, JobSetStatus, RestartStrategy, labels};
use jobset_objects::PartialPod;
use serde::Serialize;

use super::pod::epoch;

/// The epochs of a JobSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Epochs {
    /// The epoch whose workers may run; 0 before the first start. The controller writes it.
    pub synced: i32,
    /// Pods at this or an earlier epoch restart. The controller writes it.
    pub deprecated: i32,
    /// Whether agents report over the stream, so that the annotations of their Pods follow later.
    #[serde(skip)]
    pub by_stream: bool,
}

impl Epochs {
    /// The epochs of a JobSet; none without in-place restart, or if it is switched off for the agents.
    pub fn of(jobset: &JobSet) -> Option<Self> {
        let GroupEpochs { synced, deprecated } = jobset.status.as_ref().map(JobSetStatus::epochs).unwrap_or_default();
        let annotations = jobset.metadata.annotations.as_ref();
        let switched_off = annotations.is_some_and(|it| it.contains_key(labels::DISABLE_IN_PLACE_RESTART));
        let in_place = jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart && !switched_off;
        let mut pods = jobset.spec.replicated_jobs.iter().filter_map(|it| it.template.spec.template.spec.as_ref());
        let by_stream = pods.any(uses_relay);
        in_place.then_some(Self { synced, deprecated, by_stream })
    }

    /// The epoch that Pods report when they wait at the barrier.
    pub fn next(self) -> i32 {
        self.group().next().unwrap_or(i32::MAX)
    }

    /// Whether no worker may run: before the first start and during a restart.
    pub fn is_closed(self) -> bool {
        self.group().is_closed()
    }

    fn group(self) -> GroupEpochs {
        GroupEpochs { synced: self.synced, deprecated: self.deprecated }
    }
}

/// The barrier of the whole group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Barrier {
    /// Whether workers may run.
    pub lifted: bool,
    /// The running epoch if the barrier is lifted, or else the next one.
    pub epoch: i32,
    /// Pods that have reported the next epoch.
    pub reported: usize,
    /// Pods that the barrier waits for.
    pub expected: i64,
}

impl Barrier {
    /// The barrier of a group of `expected` Pods, of which `reported` have reported the next epoch.
    pub fn of(epochs: Epochs, reported: usize, expected: i64) -> Self {
        let lifted = !epochs.is_closed();
        let epoch = if lifted { epochs.synced } else { epochs.next() };
        Self { lifted, epoch, reported, expected }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum PodBarrier {
    /// The agent has not reported an epoch yet.
    Unreported,
    /// The Pod waits for the other Pods.
    Waiting,
    /// The worker may run.
    Lifted,
    /// The epoch is deprecated: the Pod restarts or is about to.
    Restarting,
    /// The reported value is no epoch, or an impossible one.
    Invalid,
}

impl PodBarrier {
    /// The barrier of a Pod that reports this epoch.
    pub fn of(epoch: Option<&str>, epochs: Epochs) -> Self {
        let Some(text) = epoch else { return Self::Unreported };
        match text.parse::<i32>() {
            Ok(epoch) if epoch < 1 || epoch > epochs.next() => Self::Invalid,
            Ok(epoch) if epoch == epochs.next() => Self::Waiting,
            Ok(epoch) if epochs.group().verdict(epoch) == EpochVerdict::Restart => Self::Restarting,
            Ok(_) => Self::Lifted,
            Err(_) => Self::Invalid,
        }
    }

    /// The barrier of a Pod, by its annotation. While the barrier is lifted, the annotation of an agent that reports over the stream
    /// may be old: the epoch has begun only because all Pods have reported it, so a Pod that is ready is in it.
    pub fn of_pod(pod: &PartialPod, epochs: Epochs) -> Self {
        let barrier = Self::of(epoch(pod).as_deref(), epochs);
        let may_be_old = epochs.by_stream && !epochs.is_closed();
        match barrier {
            Self::Unreported | Self::Restarting if may_be_old && pod.is_ready() => Self::Lifted,
            barrier => barrier,
        }
    }

    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreported => "not reported",
            Self::Waiting => "waiting",
            Self::Lifted => "lifted",
            Self::Restarting => "restarting",
            Self::Invalid => "invalid epoch",
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::first_start(None, (0, 0), PodBarrier::Unreported)]
    #[case::reported_first(Some("1"), (0, 0), PodBarrier::Waiting)]
    #[case::runs(Some("1"), (1, 0), PodBarrier::Lifted)]
    #[case::failed_and_is_back(Some("2"), (1, 0), PodBarrier::Waiting)]
    #[case::has_to_restart(Some("1"), (1, 1), PodBarrier::Restarting)]
    #[case::is_back(Some("2"), (1, 1), PodBarrier::Waiting)]
    #[case::runs_again(Some("2"), (2, 1), PodBarrier::Lifted)]
    #[case::slept_through_it(Some("1"), (2, 1), PodBarrier::Restarting)]
    #[case::nothing(Some("0"), (2, 1), PodBarrier::Invalid)]
    #[case::too_far(Some("4"), (2, 1), PodBarrier::Invalid)]
    #[case::no_number(Some("many"), (2, 1), PodBarrier::Invalid)]
    #[case::last_of_all(Some("2147483647"), (i32::MAX, 1), PodBarrier::Waiting)]
    fn pod_barrier_follows_from_epoch(
        #[case] epoch: Option<&str>,
        #[case] (synced, deprecated): (i32, i32),
        #[case] expected: PodBarrier,
    ) {
        assert_eq!(PodBarrier::of(epoch, Epochs { synced, deprecated, by_stream: false }), expected);
    }

    #[test]
    fn barrier_next_epoch_is_expected_until_synced() {
        let of = |synced, deprecated| Barrier::of(Epochs { synced, deprecated, by_stream: false }, 1, 3);
        assert_eq!(of(0, 0), Barrier { lifted: false, epoch: 1, reported: 1, expected: 3 });
        assert_eq!(of(2, 1), Barrier { lifted: true, epoch: 2, reported: 1, expected: 3 });
        assert_eq!(of(2, 2), Barrier { lifted: false, epoch: 3, reported: 1, expected: 3 });
    }
}
