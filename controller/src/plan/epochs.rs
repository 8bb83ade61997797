//! In-place restart: from the epochs that the agents report to `syncedEpoch` and `deprecatedEpoch` (KEP-467).
//!
//! The rule itself is [`decide`], a function over counts. The rest of this file does the bookkeeping.

use std::ops::ControlFlow;

use super::incident::{self, Incident};
use super::members::{self, Slots};
use super::pass::Pass;
use super::restart::{self, Cause, Counting};
use super::{Action, Fact, PodDeletion};
use crate::store::pods::PodView;
use jobset_api::conditions;
use k8s_openapi::jiff::SignedDuration;

/// How long a Pod whose agent restarted alone is left to itself: the kubelet may be about to restart the rest.
const AGENT_ALONE: SignedDuration = SignedDuration::from_secs(10);

/// `status.syncedEpoch`, `deprecatedEpoch` and `freeEpoch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// The epoch whose workers may run.
    pub synced: i32,
    /// Pods at this epoch or below must restart.
    pub deprecated: i32,
    /// The advance to this epoch is not counted: the controller caused it.
    pub free: i32,
}

impl Epochs {
    /// The epoch that agents report next.
    fn next(self) -> i32 {
        self.synced.saturating_add(1)
    }
}

/// What follows from the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochDecision {
    /// Nothing to write.
    Nothing,
    /// These epochs shall be stored. `begins_restart` if they begin a restart of the group that the controller did not
    /// cause itself.
    Store {
        /// The new epochs.
        epochs: Epochs,
        /// Whether this write is the one in which the restart is counted.
        begins_restart: bool,
    },
    /// The group would have to restart, but slots that are done cannot come back in place.
    Recreate {
        /// Whether the restart has been counted already, by the write that raised `deprecatedEpoch`.
        counted: bool,
    },
}

/// Seed 003, "Implementation - JobSet controller", with restarts counted as `protocol.md` says: in the one write that
/// raises `deprecatedEpoch` to `syncedEpoch`.
pub fn decide(current: Epochs, slots: &Slots) -> EpochDecision {
    let reported = slots.newest();
    // A worker that was seen to fail is going to report the next epoch: nobody has to wait until it does.
    let failing = slots.broken.then_some(current.next());
    let Some(newest) = reported.max(failing) else { return EpochDecision::Nothing };
    let at_newest = slots.reports.get(&newest).copied().unwrap_or(0);
    if slots.done > 0 && current.synced > 0 && newest > current.synced {
        return EpochDecision::Recreate { counted: current.deprecated == current.synced };
    }
    let expected = current.free == current.next();
    let epochs = if at_newest > 0 && at_newest == slots.open {
        // All failed at once, or the controller was away: what was never deprecated is deprecated now.
        let synced = current.synced.max(newest);
        let deprecated =
            if newest > current.synced { current.deprecated.max(current.synced) } else { current.deprecated };
        Epochs { synced, deprecated, ..current }
    } else if expected && !slots.broken && !slots.all_have_reported() {
        // The group grows: its workers run on until all newcomers are there.
        return EpochDecision::Nothing;
    } else {
        Epochs { deprecated: current.deprecated.max(newest - 1), ..current }
    };
    if epochs == current {
        return EpochDecision::Nothing;
    }
    // Before the first lift there is nothing to deprecate: a start never counts.
    let raised = epochs.deprecated > current.deprecated;
    EpochDecision::Store { epochs, begins_restart: raised && (!expected || slots.broken) }
}

/// Applies the rule to a JobSet that restarts in place.
pub(super) fn advance(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if !pass.in_place() || pass.seen.jobset.spec.is_suspended() {
        return ControlFlow::Continue(());
    }
    let current = Epochs {
        synced: pass.status.synced_epoch,
        deprecated: pass.status.deprecated_epoch,
        free: pass.status.free_epoch,
    };
    cure_invalid_reports(pass, current)?;
    delete_lonely_agents(pass)?;
    if current.synced > 0
        && let Some((lost, group)) = members::lost(pass).next()
    {
        let (cause, counting) = incident::loss(pass, lost, group);
        let free = current.free == current.next();
        let counting = match free {
            // What makes the group advance may have made the controller delete it.
            true if lost.failure.disruption.is_none() => Counting::Ignored,
            false if current.deprecated == current.synced => Counting::Already,
            _ => counting,
        };
        return restart::recreate(pass, counting, &cause);
    }
    let slots = members::slots(pass);
    match decide(current, &slots) {
        EpochDecision::Nothing => {}
        EpochDecision::Recreate { counted } => {
            let Incident { cause, counting, counted: told } = incident::first(pass);
            let (counting, what) = match counted {
                true => (Counting::Already, format!("{}; {told}", cause.message)),
                // Nothing has failed.
                false if current.free == current.next() && !slots.broken => {
                    (Counting::Ignored, "the controller makes the group advance; not counted".to_owned())
                }
                false => (counting, format!("{}; {told}", cause.message)),
            };
            let message = format!(
                "{what}; workers that have succeeded or failed for good cannot come back in place: {}",
                slots.done
            );
            let cause = Cause { reason: conditions::SUCCEEDED_WORKERS.to_owned(), message, ..cause };
            restart::recreate(pass, counting, &cause)?;
        }
        EpochDecision::Store { epochs, begins_restart } => {
            if begins_restart {
                let Incident { cause, counting, counted } = incident::first(pass);
                restart::count(pass, counting, &cause)?;
                // Nobody shall take it for the one that was announced.
                pass.status.free_epoch = 0;
                let (synced, next) = (current.synced, current.next());
                let message = format!("in place, from epoch {synced} to {next}: {}; {counted}", cause.message);
                restart::begin(pass, pass.strategy, counting, &cause, &message);
            }
            if epochs.synced > current.synced {
                pass.facts.push(Fact::BarrierLifted);
                pass.tell("BarrierLifted", format!("all workers have reported epoch {}, and run", epochs.synced));
            }
            pass.status.synced_epoch = epochs.synced;
            pass.status.deprecated_epoch = epochs.deprecated;
        }
    }
    ControlFlow::Continue(())
}

/// Lifts the barrier of agents that were not told, or do not understand, that their JobSet does not restart in place by its
/// specification. They report and wait: the next epoch begins as soon as all that wait are there, stage by stage. Nothing is
/// deprecated by that: who runs already runs on.
pub(super) fn let_through(pass: &mut Pass<'_>) {
    if pass.seen.not_in_place().is_none() || pass.seen.jobset.spec.is_suspended() {
        return;
    }
    let next = pass.next_epoch();
    if members::created_slots(pass).all_wait_or_run(next) {
        pass.status.synced_epoch = next;
    }
}

/// A report that is no valid epoch counts as none. One that is too high can never become valid: the agent is beyond help.
fn cure_invalid_reports(pass: &mut Pass<'_>, current: Epochs) -> ControlFlow<()> {
    let newest = current.next();
    let pods = members::running_jobs(pass).flat_map(|(pods, _)| pods.invalid_reports(newest));
    let invalid: Vec<_> = pods.map(|(pod, epoch)| (pod.clone(), epoch)).collect();
    let is_above = |pod: &PodView| pod.epoch.number().is_some_and(|epoch| epoch > newest) && pod.deleted_at.is_none();
    // Whoever comes in its place reports the next epoch, and nothing has failed.
    if invalid.iter().any(|(pod, _)| is_above(pod)) {
        pass.announce_free_epoch()?;
    }
    for (pod, epoch) in invalid {
        let above = is_above(&pod);
        let cure = if above { ": it is deleted" } else { "" };
        pass.warn(
            "EpochInvalid",
            format!("Pod {} reports the epoch {epoch:?}, which is not a number from 1 to {newest}{cure}", pod.name),
        );
        if above {
            pass.actions.push(Action::DeletePod {
                name: pod.name,
                uid: pod.uid,
                reason: PodDeletion::EpochAbove(newest),
            });
        }
    }
    ControlFlow::Continue(())
}

/// The worker of such a Pod runs on in an epoch that is over, and its agent will never restart it.
fn delete_lonely_agents(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let alone: Vec<_> = members::running_jobs(pass).flat_map(|(pods, _)| pods.alone()).cloned().collect();
    for pod in alone.into_iter().filter(|pod| pod.deleted_at.is_none()) {
        let Some(due) = pod.agent_started.and_then(|started| started.checked_add(AGENT_ALONE).ok()) else { continue };
        if pass.now.0 < due {
            pass.requeue_at(due);
            continue;
        }
        // One that was believed, because a late status showed no worker: that it restarted has been counted, and whoever
        // comes in its place reports the next epoch.
        if pod.epoch.number().is_some_and(|epoch| epoch <= pass.status.synced_epoch) {
            pass.announce_free_epoch()?;
        }
        pass.warn(
            "AgentRestartedAlone",
            format!(
                "Pod {} is deleted: its agent restarted and its worker did not; check the agent's restartPolicyRules",
                pod.name
            ),
        );
        pass.actions.push(Action::DeletePod { name: pod.name, uid: pod.uid, reason: PodDeletion::AgentAlone });
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn epochs(synced: i32, deprecated: i32) -> Epochs {
        Epochs { synced, deprecated, free: 0 }
    }

    fn slots(open: usize, done: usize, reports: &[i32]) -> Slots {
        let mut slots = Slots { open, done, ..Slots::default() };
        for epoch in reports {
            *slots.reports.entry(*epoch).or_default() += 1;
        }
        slots
    }

    fn store(synced: i32, deprecated: i32, begins_restart: bool) -> EpochDecision {
        EpochDecision::Store { epochs: epochs(synced, deprecated), begins_restart }
    }

    #[rstest]
    // Seed 003, "Integration tests".
    #[case::all_in_sync(epochs(1, 0), slots(2, 0, &[1, 1]), EpochDecision::Nothing)]
    #[case::all_just_became_in_sync(epochs(1, 1), slots(2, 0, &[2, 2]), store(2, 1, false))]
    #[case::one_restarted_into_a_new_epoch(epochs(1, 0), slots(2, 0, &[1, 2]), store(1, 1, true))]
    #[case::a_second_one_followed_but_not_all(epochs(1, 1), slots(3, 0, &[1, 2, 2]), EpochDecision::Nothing)]
    // The start of a JobSet is no restart.
    #[case::nobody_has_reported(epochs(0, 0), slots(2, 0, &[]), EpochDecision::Nothing)]
    #[case::one_of_two_has_reported(epochs(0, 0), slots(2, 0, &[1]), EpochDecision::Nothing)]
    #[case::the_first_lift(epochs(0, 0), slots(2, 0, &[1, 1]), store(1, 0, false))]
    // A Pod was deleted, its replacement has not reported: the others run on.
    #[case::a_pod_is_missing(epochs(3, 2), slots(2, 0, &[3]), EpochDecision::Nothing)]
    #[case::its_replacement_reported(epochs(3, 2), slots(2, 0, &[3, 4]), store(3, 3, true))]
    #[case::only_the_replacement_is_there(epochs(3, 2), slots(2, 0, &[4]), store(3, 3, true))]
    // All failed before the controller saw any of it: one write lifts and counts.
    #[case::all_failed_at_once(epochs(3, 2), slots(2, 0, &[4, 4]), store(4, 3, true))]
    // Done slots.
    #[case::the_rest_runs_on(epochs(1, 0), slots(1, 1, &[1]), EpochDecision::Nothing)]
    #[case::all_are_done(epochs(1, 0), slots(0, 2, &[]), EpochDecision::Nothing)]
    #[case::a_late_failure(epochs(1, 0), slots(1, 1, &[2]), EpochDecision::Recreate { counted: false })]
    #[case::a_late_failure_of_one_of_two(epochs(1, 0), slots(2, 1, &[1, 2]), EpochDecision::Recreate { counted: false })]
    #[case::a_success_during_the_restart(epochs(1, 1), slots(1, 1, &[2]), EpochDecision::Recreate { counted: true })]
    #[case::a_success_before_all_are_back(epochs(1, 1), slots(2, 1, &[1, 2]), EpochDecision::Recreate { counted: true })]
    fn decide_follows_the_protocol(#[case] current: Epochs, #[case] slots: Slots, #[case] wanted: EpochDecision) {
        assert_eq!(decide(current, &slots), wanted);
    }

    #[test]
    fn an_advance_that_the_controller_caused_is_not_counted() {
        let current = Epochs { synced: 3, deprecated: 2, free: 4 };
        let decision = decide(current, &slots(2, 0, &[3, 4]));
        let wanted = EpochDecision::Store { epochs: Epochs { deprecated: 3, ..current }, begins_restart: false };
        assert_eq!(decision, wanted);
    }

    /// Whatever the order in which agents restart and report, an incident is counted once, and the group ends in one
    /// epoch.
    #[rstest]
    fn an_incident_is_counted_once(#[values(2, 3, 5)] pods: usize, #[values(1, 2)] failing: usize) {
        let mut reports = vec![1; pods];
        let mut current = epochs(1, 0);
        let mut counted = 0;
        reports[..failing].fill(2);
        for _ in 0..2 * pods + 2 {
            match decide(current, &slots(pods, 0, &reports)) {
                EpochDecision::Store { epochs, begins_restart } => {
                    current = epochs;
                    counted += usize::from(begins_restart);
                }
                EpochDecision::Nothing => {
                    // The next agent that must restart does.
                    let Some(behind) = reports.iter_mut().find(|epoch| **epoch <= current.deprecated) else { break };
                    *behind = current.next();
                }
                EpochDecision::Recreate { .. } => panic!("no slot is done"),
            }
        }
        assert_eq!((current, counted, reports), (epochs(2, 1), 1, vec![2; pods]));
    }
}
