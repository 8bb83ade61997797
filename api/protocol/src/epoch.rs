//! Epochs of a group that restarts in place, and the rule by which a barrier lifts (KEP-467; `docs/src/protocol.md`).
//!
//! An epoch is a positive int32. An agent that starts reports [`GroupEpochs::next`]. The controller raises
//! `status.syncedEpoch` once all Pods have reported it, and `status.deprecatedEpoch` to restart the Pods of an epoch.

/// The epochs that the controller publishes to all agents of a group. Both are 0 before the first start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupEpochs {
    /// `status.syncedEpoch`: the epoch whose workers may run.
    pub synced: i32,
    /// `status.deprecatedEpoch`: Pods at this epoch or an earlier one must restart. Not above `synced`.
    pub deprecated: i32,
}

/// What a Pod must do that has reported an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpochVerdict {
    /// The epoch is deprecated: the Pod restarts.
    Restart,
    /// The epoch is the synced one: the worker runs.
    Run,
    /// The epoch is not synced: the worker waits at the barrier, or runs on if it already runs.
    Wait,
}

impl GroupEpochs {
    /// The epoch that a starting agent reports. `None` after the last int32.
    pub fn next(self) -> Option<i32> {
        self.synced.checked_add(1)
    }

    /// What a Pod must do that has reported this epoch.
    pub fn verdict(self, epoch: i32) -> EpochVerdict {
        if epoch <= self.deprecated {
            EpochVerdict::Restart
        } else if epoch == self.synced {
            EpochVerdict::Run
        } else {
            EpochVerdict::Wait
        }
    }

    /// Whether no worker may run: before the first start, and from the beginning of a group restart to its end.
    pub fn is_closed(self) -> bool {
        self.synced == 0 || self.verdict(self.synced) == EpochVerdict::Restart
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_follows_from_synced_and_deprecated_epoch() {
        let running = GroupEpochs { synced: 2, deprecated: 1 };
        assert_eq!(
            [1, 2, 3].map(|epoch| running.verdict(epoch)),
            [EpochVerdict::Restart, EpochVerdict::Run, EpochVerdict::Wait]
        );
        let restarting = GroupEpochs { synced: 2, deprecated: 2 };
        assert_eq!([2, 3].map(|epoch| restarting.verdict(epoch)), [EpochVerdict::Restart, EpochVerdict::Wait]);
    }

    #[test]
    fn barrier_before_start_and_during_restart_is_closed() {
        let closed = |synced, deprecated| GroupEpochs { synced, deprecated }.is_closed();
        assert_eq!([closed(0, 0), closed(1, 0), closed(1, 1), closed(2, 1)], [true, false, true, false]);
    }

    #[test]
    fn next_epoch_after_the_last_int32_is_absent() {
        assert_eq!(GroupEpochs { synced: 4, deprecated: 3 }.next(), Some(5));
        assert_eq!(GroupEpochs { synced: i32::MAX, deprecated: 1 }.next(), None);
    }
}
