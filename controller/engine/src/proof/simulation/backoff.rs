//! A group that keeps failing waits before it runs again, also when the leader changes.

use jobset_api::{JobSetStatus, RecentRestart};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::cluster::SimulatedCluster;
use crate::proof::{CheckResult, Property, ensure};

impl SimulatedCluster {
    /// The status that has just been written over another one.
    pub(super) fn check_backoff(&mut self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        let now = self.now().0;
        let until = [before, after].map(|status| status.barrier_until.as_ref().map(|MicroTime(until)| *until));
        let is_over = self.api.jobset.spec.is_suspended() || after.is_finished();
        let is_kept = until[0].is_none_or(|until_before| until_before <= now || until[1] >= until[0]);
        ensure(is_kept || is_over, Property::Backoff, || {
            format!("the group waits until {:?}, and then until {:?}", until[0], until[1])
        })?;
        let begins = after.synced_epoch > before.synced_epoch;
        ensure(!begins || until.iter().flatten().all(|until| *until <= now), Property::Backoff, || {
            format!("epoch {} begins at {now}, and the group waits until {until:?}", after.synced_epoch)
        })?;
        let numbers = |status: &JobSetStatus| status.recent_restarts.last().map(|last| last.number);
        if let Some(last) = after.recent_restarts.last().filter(|_| numbers(before) != numbers(after)) {
            self.check_recorded_restart(before, after, last)?;
        }
        if begins {
            // The controller reads the time when it plans, and writes later.
            let lifted = after.epoch_transition_time.as_ref().map(|MicroTime(lifted)| *lifted);
            ensure(lifted.is_some_and(|lifted| lifted <= now), Property::Backoff, || {
                format!("epoch {} begins at {now}, and the status says {lifted:?}", after.synced_epoch)
            })?;
            self.truth.lifted_at = lifted;
        }
        Ok(())
    }

    /// A restart that has just been recorded is the next one in a row if the group ran for a short time, and waits for as
    /// long as its number in the row says.
    fn check_recorded_restart(&self, before: &JobSetStatus, after: &JobSetStatus, last: &RecentRestart) -> CheckResult {
        let backoff = self.api.jobset.spec.restart_backoff();
        let in_a_row = last.consecutive_failures;
        let previous = before.recent_restarts.last().map_or(0, |previous| previous.consecutive_failures);
        // What takes Pods away, who asks for a restart, and who leaves a cordoned node, says nothing of their workers.
        let requested = Self::requested_restart(before, after).is_some() || Self::leaves_cordoned(before, after);
        let is_loss = in_a_row == previous && (requested || self.truth.was_lost_in(before.synced_epoch));
        let continues = in_a_row == previous.saturating_add(1) || is_loss;
        ensure(continues || in_a_row == 1 || in_a_row == 0, Property::Backoff, || {
            format!("restart {} is number {in_a_row} in a row after number {previous}", last.number)
        })?;
        let stable = SignedDuration::try_from(backoff.stable).unwrap_or(SignedDuration::MAX);
        let MicroTime(started) = last.start_time;
        let ran = |lifted: Timestamp| started.duration_since(lifted);
        if self.scenario.in_place()
            && let Some(lifted) = self.truth.lifted_at
        {
            let was_open = !before.epochs().is_closed();
            let ran_well = was_open && ran(lifted) >= stable;
            let holds = in_a_row == 0 || (if ran_well { in_a_row == 1 } else { continues });
            ensure(holds, Property::Backoff, || {
                format!(
                    "the group ran for {:?}, and restart {} is number {in_a_row} in a row",
                    ran(lifted),
                    last.number
                )
            })?;
        }
        let wait = backoff.wait(in_a_row, last.strategy);
        let expected = started.checked_add(wait).ok().filter(|_| !wait.is_zero());
        let until = after.barrier_until.as_ref().map(|MicroTime(until)| *until);
        // A restart that no worker has failed in leaves the wait of an earlier one as it is, and so does one that waits for less time.
        let is_kept = (in_a_row == 0 || is_loss || until > expected) && after.barrier_until == before.barrier_until;
        ensure(until == expected || is_kept || after.is_finished(), Property::Backoff, || {
            format!(
                "restart {} is number {in_a_row} in a row, and waits until {until:?}, not {expected:?}",
                last.number
            )
        })
    }
}
