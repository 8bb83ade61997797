//! Rules broken on purpose: each property has to notice when what it is about is not so.

use jobset_api::conditions;
use rstest::rstest;

use super::cluster::run;
use super::properties::SimulationProperty;
use crate::engine::{Kind, Ranges, View, WatchEvent};
use crate::observe::Observed;
use crate::plan::{Note, Plan};

/// Seeds within which a broken rule has to be caught.
const SEEDS: u64 = 1_000;

/// What is done wrong, around the real store and rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleMutation {
    /// The barrier is never lifted again after the first time.
    LiftedOnce,
    /// A worker that was not seen running is taken for one that has failed.
    ImpatientWithLateStatuses,
    /// A restart that is under way is counted with every pass.
    CountedWithEveryPass,
    /// One more restart is allowed than there may be.
    BudgetOffByOne,
    /// A status is written over whatever is there.
    ConflictsIgnored,
    /// A Job that is active is in no bucket.
    ActiveForgotten,
    /// A Pod that was asked to go is taken for one that was disrupted.
    DeletionsAreDisruptions,
    /// An advance that the controller causes is counted.
    FreeEpochForgotten,
    /// The same is said with every pass.
    ChattersAtRest,
    /// The status changes with each reconciliation.
    NeverContent,
    /// The free epoch is not taken back when it has begun.
    FreeEpochOutlivesItsReason,
    /// Who stays does not restart when others leave.
    ShrinkWithoutRestart,
    /// After a lost answer, the status is written again, whatever is stored by then.
    WriteRepeatedAfterALostAnswer,
    /// Bulk work has its turn before urgent work.
    BulkBeforeUrgent,
    /// While Pods are new, a member that reports the next epoch is taken for one of them.
    OldSlotTakenForNewcomer,
    /// The barrier is lifted one report early.
    LiftedOneReportEarly,
    /// The end of a Pod does not reach the engine.
    EndsNotSeen,
    /// What a panic has cost is not listed again.
    EntryLostAfterAPanic,
    /// A supervisor goes on to the next epoch while its worker still runs.
    SupervisorsDoNotWait,
}

/// What of an event reaches the engine.
pub(super) fn edit_seen(broken: Option<RuleMutation>, mut seen: WatchEvent) -> Option<WatchEvent> {
    match (broken, &mut seen) {
        (Some(RuleMutation::EndsNotSeen), WatchEvent::Gone(Kind::Pod, ..)) => return None,
        (Some(RuleMutation::DeletionsAreDisruptions), WatchEvent::Put { view: View::Pod(view), .. })
            if view.deleted_at.is_some() =>
        {
            let failure = view.failure.get_or_insert_default();
            failure.disruption.get_or_insert_with(|| ("Taken".to_owned(), "for a disruption".to_owned()));
        }
        (Some(RuleMutation::OldSlotTakenForNewcomer), WatchEvent::Put { view: View::JobSet(view), .. }) => {
            let jobset = std::sync::Arc::make_mut(view);
            let sizes: Vec<i32> =
                jobset.spec.replicated_jobs.iter().map(|group| group.replicas() * group.template.spec.pods()).collect();
            let status = jobset.status.iter_mut().flat_map(|status| &mut status.replicated_jobs_status);
            for (recorded, size) in status.zip(sizes) {
                let pods = recorded.synced_pods.as_deref().map(Ranges::parse);
                if pods.is_some_and(|pods| pods.count_below(i32::MAX) < size) {
                    recorded.synced_pods = Some(String::new());
                }
            }
        }
        (Some(RuleMutation::BudgetOffByOne), WatchEvent::Put { view: View::JobSet(view), .. }) => {
            let jobset = std::sync::Arc::make_mut(view);
            if let Some(policy) = &mut jobset.spec.failure_policy {
                policy.max_restarts = policy.max_restarts.map(|limit| limit + 1);
            }
        }
        _ => {}
    }
    Some(seen)
}

/// What becomes of a plan.
pub(super) fn edit_plan(broken: Option<RuleMutation>, seen: &Observed<'_>, plan: &mut Plan) {
    let Some(broken) = broken else { return };
    let (before, status) = (seen.status(), &mut plan.status);
    let synced = before.synced_epoch;
    let jobs = || seen.jobs().filter_map(|(_, job)| seen.pods_of(job));
    match broken {
        RuleMutation::LiftedOnce if synced > 0 => status.synced_epoch = synced,
        RuleMutation::ImpatientWithLateStatuses if synced > 0 && before.deprecated_epoch < synced => {
            let reported: usize = jobs().filter_map(|pods| pods.reports().get(&synced)).sum();
            let running: usize = jobs().map(|pods| pods.running_in(synced)).sum();
            if running < reported && status.deprecated_epoch < synced {
                status.deprecated_epoch = synced;
                status.group_restarts += 1;
            }
        }
        RuleMutation::CountedWithEveryPass if conditions::is_true(&before.conditions, conditions::RESTARTING) => {
            status.restarts_count_towards_max += 1;
        }
        RuleMutation::ActiveForgotten => {
            if let Some(group) = status.replicated_jobs_status.iter_mut().find(|group| group.active > 0) {
                group.active -= 1;
            }
        }
        RuleMutation::FreeEpochForgotten if status.free_epoch == synced + 1 && before.deprecated_epoch < synced => {
            status.free_epoch = 0;
            status.group_restarts = before.group_restarts + 1;
            status.restarts_count_towards_max = before.restarts_count_towards_max + 1;
        }
        RuleMutation::ChattersAtRest => {
            plan.notes.push(Note::normal("StillHere", "still here".to_owned()));
        }
        RuleMutation::NeverContent if before.jobs_ready == status.jobs_ready => status.jobs_ready.push('?'),
        RuleMutation::FreeEpochOutlivesItsReason if status.synced_epoch > synced => {
            status.free_epoch = before.free_epoch;
        }
        RuleMutation::ShrinkWithoutRestart if before.deprecated_epoch < synced && status.free_epoch > 0 => {
            let specified = seen.jobset.spec.expected_pods();
            let pods: i64 = seen.jobs().map(|(_, job)| i64::from(job.pods)).sum();
            if specified < pods {
                (status.deprecated_epoch, status.free_epoch) = (before.deprecated_epoch, 0);
            }
        }
        RuleMutation::LiftedOneReportEarly => {
            let reported: usize = jobs().filter_map(|pods| pods.reports().get(&(synced + 1))).sum();
            let wanted = seen.jobset.spec.expected_pods();
            if i64::try_from(reported).is_ok_and(|reported| reported + 1 == wanted) {
                (status.synced_epoch, status.deprecated_epoch) = (synced + 1, synced);
            }
        }
        _ => {}
    }
}

#[rstest]
#[case::no_hang(RuleMutation::LiftedOnce, &[SimulationProperty::NoHang])]
#[case::no_restart_without_a_failure(RuleMutation::ImpatientWithLateStatuses, &[SimulationProperty::OneEpochPerIncident])]
#[case::counted_once(RuleMutation::CountedWithEveryPass, &[SimulationProperty::ExactBudget])]
#[case::no_restart_beyond_the_budget(RuleMutation::BudgetOffByOne, &[SimulationProperty::ExactBudget])]
#[case::no_count_is_lost(RuleMutation::ConflictsIgnored, &[SimulationProperty::ExactBudget, SimulationProperty::OneEpochPerIncident])]
#[case::active_jobs_are_counted(RuleMutation::ActiveForgotten, &[SimulationProperty::CountsOfJobs])]
#[case::deletions_are_no_failures(RuleMutation::DeletionsAreDisruptions, &[SimulationProperty::OwnDeletionsAreNoFailures])]
#[case::advances_of_its_own_are_free(RuleMutation::FreeEpochForgotten, &[SimulationProperty::OwnDeletionsAreNoFailures, SimulationProperty::OneEpochPerIncident])]
#[case::write_repeated_after_a_lost_answer(RuleMutation::WriteRepeatedAfterALostAnswer, &[SimulationProperty::Facts])]
#[case::bulk_before_urgent(RuleMutation::BulkBeforeUrgent, &[SimulationProperty::UrgentFirst])]
#[case::free_epoch_outlives_its_reason(RuleMutation::FreeEpochOutlivesItsReason, &[SimulationProperty::FreeEpoch])]
#[case::shrink_without_restart(RuleMutation::ShrinkWithoutRestart, &[SimulationProperty::ShrinkRestarts])]
#[case::old_slot_taken_for_newcomer(RuleMutation::OldSlotTakenForNewcomer, &[SimulationProperty::NoHang])]
#[case::nothing_is_said_twice(RuleMutation::ChattersAtRest, &[SimulationProperty::Rest])]
#[case::it_comes_to_rest(RuleMutation::NeverContent, &[SimulationProperty::Rest])]
#[case::nobody_runs_before_all_are_there(RuleMutation::LiftedOneReportEarly, &[SimulationProperty::Barrier])]
#[case::counts_are_those_of_what_is_there(RuleMutation::EndsNotSeen, &[SimulationProperty::Counts])]
#[case::entry_lost_after_a_panic(RuleMutation::EntryLostAfterAPanic, &[SimulationProperty::NoHang])]
#[case::one_worker_at_a_time(RuleMutation::SupervisorsDoNotWait, &[SimulationProperty::Barrier])]
fn a_broken_rule_is_caught(#[case] broken: RuleMutation, #[case] by: &[SimulationProperty]) {
    let caught = |seed| run(seed, Some(broken)).err().filter(|(violation, _)| by.contains(&violation.property));
    assert!((0..SEEDS).find_map(caught).is_some(), "{broken:?} is not caught by {by:?} within {SEEDS} seeds");
}
