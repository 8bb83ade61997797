//! The barrier of a JobSet that restarts in place, read from epochs alone: what the Pods report against what the controller
//! has synced and deprecated (`JobSetStatus`).

use jobset_api::epoch::{EpochVerdict, GroupEpochs};
use serde::Serialize;

/// The epochs of a JobSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Epochs {
    /// The epoch whose workers may run; 0 before the first start.
    pub synced: i32,
    /// Pods at this epoch or before it restart.
    pub deprecated: i32,
}

impl Epochs {
    /// The epoch that Pods at the barrier report.
    pub fn next(self) -> i32 {
        self.group().next().unwrap_or(i32::MAX)
    }

    /// Whether no worker may run: before the first start, and from the beginning of a restart to its end.
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
    /// The epoch that runs, or that is waited for.
    pub epoch: i32,
    /// Pods that have reported the epoch that is waited for.
    pub reported: usize,
    /// Pods that have to.
    pub expected: i64,
}

impl Barrier {
    /// The barrier as these Pods see it, which should be as many as `expected`.
    pub fn of(epochs: Epochs, pods: impl Iterator<Item = PodBarrier>, expected: i64) -> Self {
        let lifted = !epochs.is_closed();
        let epoch = if lifted { epochs.synced } else { epochs.next() };
        Self { lifted, epoch, reported: pods.filter(|pod| *pod == PodBarrier::Waiting).count(), expected }
    }
}

/// The barrier of one Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum PodBarrier {
    /// Its agent has not reported any epoch yet.
    Unreported,
    /// It waits for the others.
    Waiting,
    /// Its worker may run.
    Lifted,
    /// Its epoch is over: it is to restart, or does already.
    Restarting,
    /// It reports what is no epoch, or none that there can be.
    Invalid,
}

impl PodBarrier {
    /// What a Pod waits for that reports this epoch.
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

    /// In a word.
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
    fn a_pod_is_at_the_barrier_by_its_epoch(
        #[case] epoch: Option<&str>,
        #[case] (synced, deprecated): (i32, i32),
        #[case] expected: PodBarrier,
    ) {
        assert_eq!(PodBarrier::of(epoch, Epochs { synced, deprecated }), expected);
    }

    #[test]
    fn the_group_waits_for_the_next_epoch_until_it_is_synced() {
        let of = |synced, deprecated| {
            let pods = [PodBarrier::Waiting, PodBarrier::Restarting];
            Barrier::of(Epochs { synced, deprecated }, pods.into_iter(), 3)
        };
        assert_eq!(of(0, 0), Barrier { lifted: false, epoch: 1, reported: 1, expected: 3 });
        assert_eq!(of(2, 1), Barrier { lifted: true, epoch: 2, reported: 1, expected: 3 });
        assert_eq!(of(2, 2), Barrier { lifted: false, epoch: 3, reported: 1, expected: 3 });
    }
}
