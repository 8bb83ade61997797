//! In-place restart: computes `syncedEpoch` and `deprecatedEpoch` from the epochs that the agents report (KEP-467).
//!
//! [`decide`] is the rule, a function over counts. The rest of this file reads its input and writes its result.

use std::ops::ControlFlow;

use jobset_api::{JobSetStatus, conditions, event};

use crate::cause::{Cause, Counting};
use crate::incident::{self, Incident};
use crate::members::{self, Slots};
use crate::nodes::moves;
use crate::reconciliation::Reconciliation;
use crate::types::{Fact, Trigger};
use crate::{backoff, lost_index, no_progress, restart, settle, success, wrong_reports};

/// `status.syncedEpoch`, `deprecatedEpoch` and `freeEpoch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// The epoch whose workers may run.
    pub synced: i32,
    /// Pods at this epoch or below must restart.
    pub deprecated: i32,
    /// The restart into this epoch does not count: the controller itself has begun it. 0 otherwise.
    pub free: i32,
}

impl Epochs {
    pub(super) fn of(status: &JobSetStatus) -> Self {
        Self { synced: status.synced_epoch, deprecated: status.deprecated_epoch, free: status.free_epoch }
    }

    /// The epoch that agents report next.
    pub(super) fn next(self) -> i32 {
        self.synced.saturating_add(1)
    }

    /// Whether the group restarts: the synced epoch is over.
    pub(super) fn is_over(self) -> bool {
        self.synced > 0 && self.deprecated == self.synced
    }
}

/// What the controller does after the agents' reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochDecision {
    Nothing,
    Store {
        epochs: Epochs,
        /// Whether the write begins, and counts, a restart after a failure.
        begins_restart: bool,
    },
    /// Recreate the group: it has to restart, and slots that are done cannot restart in place.
    Recreate {
        /// Whether a write has begun the restart already, counted or not.
        has_begun: bool,
        /// Whether a member has failed.
        failed: bool,
    },
}

impl EpochDecision {
    /// Whether the next epoch begins.
    fn lifts(self, current: Epochs) -> bool {
        matches!(self, Self::Store { epochs, .. } if epochs.synced > current.synced)
    }

    /// Whether it is worth nothing before names have settled: the next epoch begins, or workers stop for newcomers to join them.
    fn needs_names(self, current: Epochs) -> bool {
        self.lifts(current) || matches!(self, Self::Store { begins_restart: false, .. })
    }
}

/// Decides on the next epochs.
///
/// Source: KEP-467. `docs/src/protocol.md` adds how restarts are counted: in the one write
/// that raises `deprecatedEpoch` to `syncedEpoch`. A member that reports the next epoch has failed. Newcomers wait until all
/// of them have reported it; then the group restarts in its new size, and that does not count.
///
/// While the barrier is `held`, no epoch begins.
pub fn decide(current: Epochs, slots: &Slots, held: bool) -> EpochDecision {
    let (next, has_begun) = (current.next(), current.is_over());
    if next == current.synced {
        // No epoch follows the largest number.
        return EpochDecision::Nothing;
    }
    let (failed, arrived) = (slots.has_failed(next), slots.all_have_arrived());
    if slots.done > 0 && current.synced > 0 && (failed || arrived) {
        return EpochDecision::Recreate { has_begun, failed };
    }
    let begins = current.synced > 0 && !has_begun && (failed || arrived);
    // The agents of all members may report before the controller has deprecated the present epoch: all failed at once, or
    // the controller was down. Then one write deprecates and lifts.
    let all_wait = if slots.members() > 0 { slots.members_at(next) == slots.members() } else { arrived };
    let lifts = all_wait && !held && (begins || has_begun || current.synced == 0);
    let mut epochs = current;
    if begins {
        (epochs.deprecated, epochs.free) = (current.synced, if failed { 0 } else { next });
    }
    if lifts {
        (epochs.synced, epochs.free) = (next, 0);
    }
    if epochs == current {
        return EpochDecision::Nothing;
    }
    EpochDecision::Store { epochs, begins_restart: begins && failed }
}

/// Applies [`decide`] to a JobSet that restarts in place.
pub(super) fn advance(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let current = Epochs::of(&reconciliation.status);
    wrong_reports::handle_invalid(reconciliation, current)?;
    wrong_reports::delete_agents_alone(reconciliation)?;
    if current.synced > 0
        && let Some((lost, is_member, group)) = members::lost_workers(reconciliation).next()
    {
        let (cause, counting) = incident::loss(reconciliation, lost, group);
        let counting = match counting {
            _ if current.is_over() => Counting::Already,
            // The group runs without this worker.
            _ if !is_member => Counting::Ignored,
            counting => counting,
        };
        return restart::recreate(reconciliation, counting, &cause);
    }
    if success::is_decided(reconciliation) {
        // The workers that are left fail because the others have done their work.
        return ControlFlow::Continue(());
    }
    if current.synced > 0 {
        lost_index::recreate(reconciliation, current)?;
    }
    let slots = members::slots(reconciliation);
    let leaves = moves::is_pending(reconciliation) || reconciliation.leaves_cordoned;
    let held = backoff::waits_until(reconciliation).is_some() || leaves;
    let mut decision = decide(current, &slots, held);
    if decision.lifts(current) && members::leaving(reconciliation).is_some() {
        decision = decide(current, &slots, true);
    }
    if decision.needs_names(current) {
        reconciliation.settling = settle::waits(reconciliation);
    }
    if reconciliation.settling.is_some() {
        decision = match decide(current, &slots, true) {
            // The workers go on beside newcomers that wait.
            EpochDecision::Store { begins_restart: false, .. } => EpochDecision::Nothing,
            decision => decision,
        };
    }
    match decision {
        EpochDecision::Nothing => {}
        EpochDecision::Recreate { has_begun, failed } => {
            let Incident { cause, counting, counted } = incident::first(reconciliation);
            let by_failure = || format!("{}; {counted}", cause.message);
            let (counting, trigger, what) = match (has_begun, failed) {
                (true, _) => (Counting::Already, cause.trigger, by_failure()),
                (false, true) => (counting, cause.trigger, by_failure()),
                (false, false) => {
                    (Counting::Ignored, Trigger::Requested, "the group grows, which is not counted".to_owned())
                }
            };
            let cause = Cause { trigger, ..beyond_repair(cause, &what, slots.done) };
            restart::recreate(reconciliation, counting, &cause)?;
        }
        EpochDecision::Store { epochs, begins_restart } => {
            if begins_restart {
                begin_counted(reconciliation)?;
            }
            // The failure that begins the restart may make the group wait, or move Pods.
            let waits = backoff::waits_until(reconciliation).is_some() || moves::is_pending(reconciliation);
            let lifts = epochs.synced > current.synced && !waits;
            if lifts {
                no_progress::judge(reconciliation)?;
                moves::conclude(reconciliation);
                members::record(reconciliation, &slots);
                reconciliation.facts.push(Fact::BarrierLifted);
                if backoff::is_announced(reconciliation) {
                    let message =
                        format!("all Pods have reported epoch {}, and their workers may start", epochs.synced);
                    reconciliation.note(event::BARRIER_LIFTED, message);
                }
            }
            reconciliation.status.synced_epoch = if lifts { epochs.synced } else { current.synced };
            reconciliation.status.deprecated_epoch = epochs.deprecated;
            reconciliation.status.free_epoch = epochs.free;
        }
    }
    ControlFlow::Continue(())
}

/// Restarts the group in place, uncounted, because the controller is about to take Pods of it away or to bring them back.
/// Breaks if this begins the restart: the status has to be stored first, and the next reconciliation continues. A failure
/// that has been observed is counted.
pub(super) fn restart_uncounted(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let current = Epochs::of(&reconciliation.status);
    if !reconciliation.in_place() || current.synced == 0 || current.is_over() {
        return ControlFlow::Continue(());
    }
    if members::slots(reconciliation).has_failed(current.next()) {
        begin_counted(reconciliation)?;
    } else {
        deprecate(reconciliation, true);
    }
    ControlFlow::Break(())
}

/// Deprecates the synced epoch of a group that restarts in place. Returns whether it was not deprecated before.
pub(super) fn deprecate(reconciliation: &mut Reconciliation<'_>, uncounted: bool) -> bool {
    let current = Epochs::of(&reconciliation.status);
    let begins = reconciliation.in_place() && current.synced > 0 && !current.is_over();
    if begins {
        reconciliation.status.deprecated_epoch = current.synced;
        reconciliation.status.free_epoch = if uncounted { current.next() } else { 0 };
    }
    begins
}

/// Begins and counts an in-place restart after a failure. Breaks if no budget is left.
fn begin_counted(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let Incident { cause, counting, counted } = incident::first(reconciliation);
    begin(reconciliation, counting, &cause, &counted, false)
}

/// Begins an in-place restart, and counts it as `counting` says; `counted` says the same in words. A `free` one is the controller's
/// own: a failure in the epoch that ends counts all the same. Breaks if no budget is left.
pub(super) fn begin(
    reconciliation: &mut Reconciliation<'_>,
    counting: Counting,
    cause: &Cause,
    counted: &str,
    free: bool,
) -> ControlFlow<()> {
    let current = Epochs::of(&reconciliation.status);
    restart::count(reconciliation, counting, cause)?;
    backoff::record(reconciliation, reconciliation.strategy, counting, cause);
    deprecate(reconciliation, free);
    let (synced, next) = (current.synced, current.next());
    let message = format!("in place, from epoch {synced} to {next}: {}; {counted}", cause.message);
    restart::begin(reconciliation, reconciliation.strategy, counting, cause, &message);
    ControlFlow::Continue(())
}

/// Restarts the group because of an incident: in place, or by recreation if slots are done. Breaks: the status has to be stored
/// first.
pub(super) fn restart_for(reconciliation: &mut Reconciliation<'_>, incident: Incident) -> ControlFlow<()> {
    let Incident { cause, counting, counted } = incident;
    match members::slots(reconciliation).done {
        0 => {
            begin(reconciliation, counting, &cause, &counted, false)?;
            ControlFlow::Break(())
        }
        done => {
            let what = format!("{}; {counted}", cause.message);
            restart::recreate(reconciliation, counting, &beyond_repair(cause, &what, done))
        }
    }
}

/// The cause of a recreation instead of a restart in place: so many slots are done. `what` says what restarts the group.
fn beyond_repair(cause: Cause, what: &str, done: usize) -> Cause {
    let message = format!("{what}; workers that have succeeded or failed for good cannot come back in place: {done}");
    Cause { reason: conditions::SUCCEEDED_WORKERS.to_owned(), message, ..cause }
}

/// Lifts the barrier for agents of a JobSet whose specification does not allow in-place restart.
///
/// Some agents do not see the annotation that disables the barrier, or do not know it. They report and wait. The next epoch
/// begins when all Pods of the Jobs that exist have reported or run. No epoch is deprecated, so running workers go on.
pub(super) fn lift_for_recreated(reconciliation: &mut Reconciliation<'_>) {
    if reconciliation.observed.not_in_place().is_none() || reconciliation.is_suspended() {
        return;
    }
    let next = reconciliation.next_epoch();
    if members::created_slots(reconciliation).all_wait_or_run(next) {
        reconciliation.status.synced_epoch = next;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn epochs(synced: i32, deprecated: i32) -> Epochs {
        Epochs { synced, deprecated, free: 0 }
    }

    /// Slots of members only.
    fn slots(open: usize, done: usize, reports: &[i32]) -> Slots {
        let mut slots = Slots { open, done, ..Slots::default() };
        for epoch in reports {
            *slots.reports.entry(*epoch).or_default() += 1;
        }
        slots
    }

    /// The same, with `waiting` newcomers that have not reported and `arrived` ones that have.
    fn growing(synced: i32, members: &[i32], waiting: usize, arrived: usize) -> Slots {
        let mut slots = slots(members.len() + waiting + arrived, 0, members);
        (slots.newcomers, slots.arrived) = (waiting + arrived, arrived);
        *slots.reports.entry(synced + 1).or_default() += arrived;
        slots
    }

    fn store(synced: i32, deprecated: i32, begins_restart: bool) -> EpochDecision {
        EpochDecision::Store { epochs: epochs(synced, deprecated), begins_restart }
    }

    fn free(synced: i32, deprecated: i32, free: i32) -> EpochDecision {
        EpochDecision::Store { epochs: Epochs { synced, deprecated, free }, begins_restart: false }
    }

    #[rstest]
    // KEP-467, "Integration tests".
    #[case::all_in_sync(epochs(1, 0), slots(2, 0, &[1, 1]), EpochDecision::Nothing)]
    #[case::all_just_became_in_sync(epochs(1, 1), slots(2, 0, &[2, 2]), store(2, 1, false))]
    #[case::one_restarted_into_a_new_epoch(epochs(1, 0), slots(2, 0, &[1, 2]), store(1, 1, true))]
    #[case::a_second_one_followed_but_not_all(epochs(1, 1), slots(3, 0, &[1, 2, 2]), EpochDecision::Nothing)]
    // The start of a JobSet counts no restart.
    #[case::no_pod_has_reported(epochs(0, 0), growing(0, &[], 2, 0), EpochDecision::Nothing)]
    #[case::one_of_two_has_reported(epochs(0, 0), growing(0, &[], 1, 1), EpochDecision::Nothing)]
    #[case::the_first_lift(epochs(0, 0), growing(0, &[], 0, 2), store(1, 0, false))]
    // A Pod was deleted and its replacement has not reported: the other workers go on.
    #[case::a_pod_is_missing(epochs(3, 2), slots(2, 0, &[3]), EpochDecision::Nothing)]
    #[case::its_replacement_reported(epochs(3, 2), slots(2, 0, &[3, 4]), store(3, 3, true))]
    #[case::only_the_replacement_is_there(epochs(3, 2), slots(2, 0, &[4]), store(3, 3, true))]
    // All workers failed before the controller observed any failure: one write lifts and counts.
    #[case::all_failed_at_once(epochs(3, 2), slots(2, 0, &[4, 4]), store(4, 3, true))]
    // Done slots.
    #[case::the_rest_runs_on(epochs(1, 0), slots(1, 1, &[1]), EpochDecision::Nothing)]
    #[case::all_are_done(epochs(1, 0), slots(0, 2, &[]), EpochDecision::Nothing)]
    #[case::a_late_failure(epochs(1, 0), slots(1, 1, &[2]), EpochDecision::Recreate { has_begun: false, failed: true })]
    #[case::a_late_failure_of_one_of_two(epochs(1, 0), slots(2, 1, &[1, 2]), EpochDecision::Recreate { has_begun: false, failed: true })]
    #[case::a_success_during_the_restart(epochs(1, 1), slots(1, 1, &[2]), EpochDecision::Recreate { has_begun: true, failed: true })]
    #[case::a_success_before_all_are_back(epochs(1, 1), slots(2, 1, &[1, 2]), EpochDecision::Recreate { has_begun: true, failed: true })]
    fn decide_reports_follow_protocol(#[case] current: Epochs, #[case] slots: Slots, #[case] expected: EpochDecision) {
        assert_eq!(decide(current, &slots, false), expected);
    }

    // KEP-467 leaves resizing open; `docs/src/protocol.md`, "With failures of Pods and Jobs".
    #[rstest]
    #[case::newcomers_wait(epochs(3, 2), growing(3, &[3, 3], 1, 1), EpochDecision::Nothing)]
    #[case::all_newcomers_are_there(epochs(3, 2), growing(3, &[3, 3], 0, 2), free(3, 3, 4))]
    #[case::members_follow(Epochs { free: 4, ..epochs(3, 3) }, growing(3, &[4, 4], 0, 2), store(4, 3, false))]
    #[case::member_fails_meanwhile(epochs(3, 2), growing(3, &[3, 4], 1, 1), store(3, 3, true))]
    #[case::members_do_not_wait_for_newcomers(epochs(3, 3), growing(3, &[4, 4], 1, 1), store(4, 3, false))]
    #[case::resumed_group_waits_for_all(Epochs { free: 4, ..epochs(3, 3) }, growing(3, &[], 1, 3), EpochDecision::Nothing)]
    #[case::resumed_group_is_there(Epochs { free: 4, ..epochs(3, 3) }, growing(3, &[], 0, 4), store(4, 3, false))]
    fn decide_newcomers_begin_uncounted_restart(
        #[case] current: Epochs,
        #[case] slots: Slots,
        #[case] expected: EpochDecision,
    ) {
        assert_eq!(decide(current, &slots, false), expected);
    }

    #[rstest]
    #[case::first(epochs(0, 0), growing(0, &[], 0, 2), EpochDecision::Nothing)]
    #[case::restart(epochs(3, 3), slots(2, 0, &[4, 4]), EpochDecision::Nothing)]
    #[case::all_failed_at_once(epochs(3, 2), slots(2, 0, &[4, 4]), store(3, 3, true))]
    fn decide_held_barrier_is_not_lifted(
        #[case] current: Epochs,
        #[case] slots: Slots,
        #[case] expected: EpochDecision,
    ) {
        assert_eq!(decide(current, &slots, true), expected);
    }

    #[test]
    fn decide_newcomers_of_group_with_done_slots_recreate_it() {
        let slots = Slots { done: 1, ..growing(3, &[3], 0, 1) };
        assert_eq!(decide(epochs(3, 2), &slots, false), EpochDecision::Recreate { has_begun: false, failed: false });
    }

    /// An incident counts once and the group ends in one epoch, for every number of Pods and of failures.
    #[rstest]
    fn decide_one_incident_counts_once(#[values(2, 3, 5)] pods: usize, #[values(1, 2)] failing: usize) {
        let mut reports = vec![1; pods];
        let mut current = epochs(1, 0);
        let mut counted = 0;
        reports[..failing].fill(2);
        for _ in 0..2 * pods + 2 {
            match decide(current, &slots(pods, 0, &reports), false) {
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
