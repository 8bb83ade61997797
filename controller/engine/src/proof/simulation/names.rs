//! Names that settle: an epoch begins only some time after the last Pod of the group has got its address, in lives that ask for it.

use std::time::Duration;

use fastrand::Rng;
use jobset_api::{JobSet, JobSetStatus, conditions, labels};
use jobset_store::Observed;
use jobset_store::pods::{PodPhase, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::cluster::SimulatedCluster;
use super::scenario::key;
use super::slots::is_current;
use crate::proof::{CheckResult, Property, ensure};

/// Lives in which names take time to settle.
const LIVES: u8 = 4;
/// How long they take, in seconds.
const TIMES: [u64; 3] = [2, 10, 35];

/// Lets names take time to settle in some lives. Returns how long.
pub(super) fn draw(rng: &mut Rng, metadata: &mut Value) -> Duration {
    if rng.u8(..LIVES) != 0 {
        return Duration::ZERO;
    }
    let time = TIMES[rng.usize(..TIMES.len())];
    metadata["annotations"][labels::SETTLE_NAMES] = json!(format!("{time}s"));
    Duration::from_secs(time)
}

impl SimulatedCluster {
    /// No epoch but the first begins while the address of a member is too young, as far as the controller has observed.
    pub(super) fn check_names(&self, base: &JobSet, decided: &JobSetStatus) -> CheckResult {
        let before = base.status.clone().unwrap_or_default();
        let settle = SignedDuration::try_from(self.scenario.settle_names).unwrap_or(SignedDuration::ZERO);
        let begins = before.synced_epoch > 0 && decided.synced_epoch > before.synced_epoch;
        let Some(seen) = Observed::of(&self.controller.engine.store, key()).filter(|_| begins && !settle.is_zero())
        else {
            return Ok(());
        };
        let (members, now) = (self.recorded(&before), self.now().0);
        for (name, job) in seen.jobs().filter(|(_, job)| job.finished.is_none() && is_current(&before, job)) {
            let is_member = |pod: &PodView| pod.index.is_some_and(|index| members.contains(&(name.to_owned(), index)));
            let waits = |pod: &&PodView| {
                pod.phase == PodPhase::Open
                    && pod.deleted_at.is_none()
                    && pod.epoch.number() == Some(decided.synced_epoch)
                    && is_member(pod)
            };
            let pods = seen.pods().on_nodes(|_| true).into_iter();
            for pod in pods.filter(|(uid, _)| *uid == job.uid).map(|(_, pod)| pod).filter(waits) {
                let is_old = |since: Timestamp| since + settle <= now;
                let holds = pod.address_since.map_or_else(|| has_waited(&before, is_old), is_old);
                ensure(holds, Property::NamesSettle, || {
                    format!(
                        "epoch {} begins at {now}, and {} has its address since {:?}",
                        decided.synced_epoch, pod.name, pod.address_since
                    )
                })?;
            }
        }
        Ok(())
    }
}

/// Whether the group has waited for names since such a time: the status of a Pod that has reported need not say when it got its
/// address.
fn has_waited(before: &JobSetStatus, is_old: impl Fn(Timestamp) -> bool) -> bool {
    let waits = before.conditions.iter().find(|it| it.type_ == conditions::BARRIER_WAITING && it.status == "True");
    waits.is_some_and(|it| it.reason == conditions::NAMES_SETTLE && is_old(it.last_transition_time.0))
}
