//! What has to hold in both worlds: of each status that is written over another one, of each report, and of each start of a worker.

use jobset_api::JobSetStatus;

use super::{CheckResult, Property, ensure};

/// The epochs and the counters of a status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct GroupStatus {
    pub synced: i32,
    pub deprecated: i32,
    pub free: i32,
    /// `restarts`: how often all Jobs were recreated.
    pub recreations: i32,
    /// `groupRestarts`.
    pub restarts: i32,
    /// `restartsCountTowardsMax`.
    pub counted: i32,
}

impl GroupStatus {
    pub(super) fn of(status: &JobSetStatus) -> Self {
        Self {
            synced: status.synced_epoch,
            deprecated: status.deprecated_epoch,
            free: status.free_epoch,
            recreations: status.restarts,
            restarts: status.group_restarts,
            counted: status.restarts_count_towards_max,
        }
    }

    /// Whether the epoch of the status before has ended.
    pub(super) fn ends(&self, before: &Self) -> bool {
        before.synced > 0 && before.deprecated < before.synced && self.deprecated >= before.synced
    }

    /// What has to hold of this status when it is written over another one.
    pub(super) fn check(&self, before: &Self) -> CheckResult {
        let Self { synced, deprecated, free, .. } = *self;
        let (s, d) = (before.synced, before.deprecated);
        let advances = (s..=s + 1).contains(&synced) && (d..=synced).contains(&deprecated);
        ensure(advances, Property::OneRestartPerIncident, || {
            format!("epochs {:?} after {:?}", (deprecated, synced), (d, s))
        })?;
        ensure(free == 0 || deprecated == synced && free == synced + 1, Property::FreeEpoch, || {
            format!("epoch {free} is free, and the group does not restart: {self:?}")
        })?;
        let [recreated, restarted, counted] =
            [self.recreations - before.recreations, self.restarts - before.restarts, self.counted - before.counted];
        let once = [recreated, restarted, counted].iter().all(|by| (0..=1).contains(by));
        ensure(once && counted <= restarted, Property::ExactBudget, || {
            format!("recreations rise by {recreated}, restarts by {restarted}, counted ones by {counted}")
        })?;
        ensure(restarted == 0 || recreated > 0 || self.ends(before), Property::OneRestartPerIncident, || {
            format!("a restart of the group that does not end epoch {s}")
        })
    }
}

/// A Pod reports an epoch.
pub(super) fn check_report(pod: &str, epoch: i32, synced: i32) -> CheckResult {
    ensure(epoch <= synced + 1, Property::Barrier, || {
        format!("{pod} reports {epoch}, and the synced epoch is {synced}")
    })
}

/// The worker of a Pod starts in an epoch, and `last` is the one in which it was started before.
pub(super) fn check_start(pod: &str, epoch: i32, last: Option<i32>, synced: i32) -> CheckResult {
    let what = || format!("the worker of {pod} starts in epoch {epoch}, and the synced epoch is {synced}");
    ensure(epoch <= synced, Property::Barrier, what)?;
    ensure(last < Some(epoch), Property::OneWorkerPerEpoch, || format!("{}, and it was started in {last:?}", what()))
}
