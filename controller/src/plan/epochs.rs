//! In-place restart: computes `syncedEpoch` and `deprecatedEpoch` from the epochs that the agents report (KEP-467).
//!
//! [`decide`] is the rule, a function over counts. The rest of this file reads its input and writes its result.

use std::ops::ControlFlow;

use super::cause::{Cause, Counting};
use super::incident::{self, Incident};
use super::members::{self, Slots};
use super::reconciliation::Reconciliation;
use super::restart;
use super::{Action, Fact, PodDeletion};
use crate::engine::pods::PodView;
use jobset_api::conditions;
use k8s_openapi::jiff::SignedDuration;

/// How long the controller waits before it deletes a Pod whose agent restarted alone. The kubelet may be about to restart
/// the other containers.
const AGENT_ALONE: SignedDuration = SignedDuration::from_secs(10);

/// `status.syncedEpoch`, `deprecatedEpoch` and `freeEpoch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// The epoch whose workers may run.
    pub synced: i32,
    /// Pods at this epoch or below must restart.
    pub deprecated: i32,
    /// The advance to this epoch does not count as a restart, because the controller causes it.
    pub free: i32,
}

impl Epochs {
    /// The epoch that agents report next.
    fn next(self) -> i32 {
        self.synced.saturating_add(1)
    }
}

/// What the controller does after the agents' reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochDecision {
    /// Nothing to write.
    Nothing,
    /// Store these epochs.
    Store {
        /// The new epochs.
        epochs: Epochs,
        /// Whether the write begins, and counts, a group restart that the controller did not cause itself.
        begins_restart: bool,
    },
    /// Recreate the group: it has to restart, and slots that are done cannot restart in place.
    Recreate {
        /// Whether the write that raised `deprecatedEpoch` has counted the restart already.
        counted: bool,
    },
}

/// Decides on the next epochs.
///
/// Source: seed 003, "Implementation - JobSet controller". `protocol.md` adds how restarts are counted: in the one write
/// that raises `deprecatedEpoch` to `syncedEpoch`.
pub fn decide(current: Epochs, slots: &Slots) -> EpochDecision {
    let reported = slots.newest();
    // The agent of a failed worker will report the next epoch. The restart begins before that report.
    let failing = slots.has_failed_worker.then_some(current.next());
    let Some(newest) = reported.max(failing) else { return EpochDecision::Nothing };
    let at_newest = slots.reports.get(&newest).copied().unwrap_or(0);
    if slots.done > 0 && current.synced > 0 && newest > current.synced {
        return EpochDecision::Recreate { counted: current.deprecated == current.synced };
    }
    let is_free = current.free == current.next();
    let epochs = if at_newest > 0 && at_newest == slots.open {
        // All slots have reported the next epoch before the controller deprecated the present one: all failed at once, or
        // the controller was down. This write deprecates and lifts.
        let synced = current.synced.max(newest);
        let deprecated =
            if newest > current.synced { current.deprecated.max(current.synced) } else { current.deprecated };
        Epochs { synced, deprecated, ..current }
    } else if is_free && !slots.has_failed_worker && !slots.all_have_reported() {
        // The group grows: its workers go on until all new Pods have reported.
        return EpochDecision::Nothing;
    } else {
        Epochs { deprecated: current.deprecated.max(newest - 1), ..current }
    };
    if epochs == current {
        return EpochDecision::Nothing;
    }
    // A start never counts, because there is no epoch to deprecate before the first lift.
    let raised = epochs.deprecated > current.deprecated;
    EpochDecision::Store { epochs, begins_restart: raised && (!is_free || slots.has_failed_worker) }
}

/// Applies [`decide`] to a JobSet that restarts in place.
pub(super) fn advance(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if !reconciliation.in_place() || reconciliation.observed.jobset.spec.is_suspended() {
        return ControlFlow::Continue(());
    }
    let current = Epochs {
        synced: reconciliation.status.synced_epoch,
        deprecated: reconciliation.status.deprecated_epoch,
        free: reconciliation.status.free_epoch,
    };
    handle_invalid_reports(reconciliation, current)?;
    delete_agents_alone(reconciliation)?;
    if current.synced > 0
        && let Some((lost, group)) = members::lost_workers(reconciliation).next()
    {
        let (cause, counting) = incident::loss(reconciliation, lost, group);
        let free = current.free == current.next();
        let counting = match free {
            // The controller itself may have deleted the Pod, to make the group advance.
            true if lost.failure.disruption.is_none() => Counting::Ignored,
            false if current.deprecated == current.synced => Counting::Already,
            _ => counting,
        };
        return restart::recreate(reconciliation, counting, &cause);
    }
    let slots = members::slots(reconciliation);
    match decide(current, &slots) {
        EpochDecision::Nothing => {}
        EpochDecision::Recreate { counted } => {
            let Incident { cause, counting, counted: note } = incident::first(reconciliation);
            let (counting, what) = match counted {
                true => (Counting::Already, format!("{}; {note}", cause.message)),
                // No worker has failed.
                false if current.free == current.next() && !slots.has_failed_worker => {
                    (Counting::Ignored, "the controller makes the group advance, which is not counted".to_owned())
                }
                false => (counting, format!("{}; {note}", cause.message)),
            };
            let message = format!(
                "{what}; workers that have succeeded or failed for good cannot come back in place: {}",
                slots.done
            );
            let cause = Cause { reason: conditions::SUCCEEDED_WORKERS.to_owned(), message, ..cause };
            restart::recreate(reconciliation, counting, &cause)?;
        }
        EpochDecision::Store { epochs, begins_restart } => {
            if begins_restart {
                let Incident { cause, counting, counted } = incident::first(reconciliation);
                restart::count(reconciliation, counting, &cause)?;
                // This restart counts, so the announced free advance is over.
                reconciliation.status.free_epoch = 0;
                let (synced, next) = (current.synced, current.next());
                let message = format!("in place, from epoch {synced} to {next}: {}; {counted}", cause.message);
                restart::begin(reconciliation, reconciliation.strategy, counting, &cause, &message);
            }
            if epochs.synced > current.synced {
                reconciliation.facts.push(Fact::BarrierLifted);
                reconciliation.note(
                    "BarrierLifted",
                    format!("all Pods have reported epoch {}, and their workers run", epochs.synced),
                );
            }
            reconciliation.status.synced_epoch = epochs.synced;
            reconciliation.status.deprecated_epoch = epochs.deprecated;
        }
    }
    ControlFlow::Continue(())
}

/// Lifts the barrier for agents of a JobSet whose specification does not allow in-place restart.
///
/// Some agents do not see the annotation that disables the barrier, or do not know it. They report and wait. The next epoch
/// begins when all Pods of the Jobs that exist have reported or run. No epoch is deprecated, so running workers go on.
pub(super) fn lift_for_recreated(reconciliation: &mut Reconciliation<'_>) {
    if reconciliation.observed.not_in_place().is_none() || reconciliation.observed.jobset.spec.is_suspended() {
        return;
    }
    let next = reconciliation.next_epoch();
    if members::created_slots(reconciliation).all_wait_or_run(next) {
        reconciliation.status.synced_epoch = next;
    }
}

/// Warns of reports that are no valid epoch, and deletes Pods that report an epoch above the next one. Such a report can
/// never become valid, and the agent does not lower it.
fn handle_invalid_reports(reconciliation: &mut Reconciliation<'_>, current: Epochs) -> ControlFlow<()> {
    let newest = current.next();
    let pods = members::running_jobs(reconciliation).flat_map(|(pods, _)| pods.invalid_reports(newest));
    let invalid: Vec<_> = pods.map(|(pod, epoch)| (pod.clone(), epoch)).collect();
    let is_above = |pod: &PodView| pod.epoch.number().is_some_and(|epoch| epoch > newest) && pod.deleted_at.is_none();
    // The replacement reports the next epoch although no worker has failed.
    if invalid.iter().any(|(pod, _)| is_above(pod)) {
        reconciliation.announce_free_epoch()?;
    }
    for (pod, epoch) in invalid {
        let above = is_above(&pod);
        let action = if above { ": it is deleted" } else { "" };
        reconciliation.warn(
            "EpochInvalid",
            format!("Pod {} reports the epoch {epoch:?}, which is not a number from 1 to {newest}{action}", pod.name),
        );
        if above {
            reconciliation.actions.push(Action::DeletePod {
                name: pod.name,
                uid: pod.uid,
                reason: PodDeletion::EpochAbove(newest),
            });
        }
    }
    ControlFlow::Continue(())
}

/// Deletes Pods whose agent restarted alone. The worker of such a Pod runs on in an epoch that is over, and its agent never
/// restarts it.
fn delete_agents_alone(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let alone: Vec<_> = members::running_jobs(reconciliation).flat_map(|(pods, _)| pods.alone()).cloned().collect();
    for pod in alone.into_iter().filter(|pod| pod.deleted_at.is_none()) {
        let Some(due) = pod.agent_started.and_then(|started| started.checked_add(AGENT_ALONE).ok()) else { continue };
        if reconciliation.now.0 < due {
            reconciliation.requeue_at(due);
            continue;
        }
        // A late Pod status showed no worker, so the controller accepted the report and counted the restart. The
        // replacement of the Pod reports the next epoch, which must be free.
        if pod.epoch.number().is_some_and(|epoch| epoch <= reconciliation.status.synced_epoch) {
            reconciliation.announce_free_epoch()?;
        }
        reconciliation.warn(
            "AgentRestartedAlone",
            format!(
                "Pod {} is deleted: its agent restarted and its worker did not; check the agent's restartPolicyRules",
                pod.name
            ),
        );
        reconciliation.actions.push(Action::DeletePod {
            name: pod.name,
            uid: pod.uid,
            reason: PodDeletion::AgentAlone,
        });
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
    // The start of a JobSet counts no restart.
    #[case::no_pod_has_reported(epochs(0, 0), slots(2, 0, &[]), EpochDecision::Nothing)]
    #[case::one_of_two_has_reported(epochs(0, 0), slots(2, 0, &[1]), EpochDecision::Nothing)]
    #[case::the_first_lift(epochs(0, 0), slots(2, 0, &[1, 1]), store(1, 0, false))]
    // A Pod was deleted and its replacement has not reported: the other workers go on.
    #[case::a_pod_is_missing(epochs(3, 2), slots(2, 0, &[3]), EpochDecision::Nothing)]
    #[case::its_replacement_reported(epochs(3, 2), slots(2, 0, &[3, 4]), store(3, 3, true))]
    #[case::only_the_replacement_is_there(epochs(3, 2), slots(2, 0, &[4]), store(3, 3, true))]
    // All workers failed before the controller observed any failure: one write lifts and counts.
    #[case::all_failed_at_once(epochs(3, 2), slots(2, 0, &[4, 4]), store(4, 3, true))]
    // Done slots.
    #[case::the_rest_runs_on(epochs(1, 0), slots(1, 1, &[1]), EpochDecision::Nothing)]
    #[case::all_are_done(epochs(1, 0), slots(0, 2, &[]), EpochDecision::Nothing)]
    #[case::a_late_failure(epochs(1, 0), slots(1, 1, &[2]), EpochDecision::Recreate { counted: false })]
    #[case::a_late_failure_of_one_of_two(epochs(1, 0), slots(2, 1, &[1, 2]), EpochDecision::Recreate { counted: false })]
    #[case::a_success_during_the_restart(epochs(1, 1), slots(1, 1, &[2]), EpochDecision::Recreate { counted: true })]
    #[case::a_success_before_all_are_back(epochs(1, 1), slots(2, 1, &[1, 2]), EpochDecision::Recreate { counted: true })]
    fn decide_reports_follow_protocol(#[case] current: Epochs, #[case] slots: Slots, #[case] expected: EpochDecision) {
        assert_eq!(decide(current, &slots), expected);
    }

    #[test]
    fn decide_free_advance_is_not_counted() {
        let current = Epochs { synced: 3, deprecated: 2, free: 4 };
        let decision = decide(current, &slots(2, 0, &[3, 4]));
        let expected = EpochDecision::Store { epochs: Epochs { deprecated: 3, ..current }, begins_restart: false };
        assert_eq!(decision, expected);
    }

    /// An incident counts once and the group ends in one epoch, for every number of Pods and of failures.
    #[rstest]
    fn decide_one_incident_counts_once(#[values(2, 3, 5)] pods: usize, #[values(1, 2)] failing: usize) {
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
