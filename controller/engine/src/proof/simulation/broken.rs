//! Each property notices when it does not hold.

use rstest::rstest;

use super::cluster::run;
use crate::proof::Property::{
    self, AvoidedNodesLast, Backoff, Barrier, BlameIsTrue, BoundedPlans, CordonsAreFree, CountsOfJobs, Deadline,
    EngineCounts, ExactBudget, ExecutionAttempts, Facts, FreeEpoch, HealthyPodsStay, LeavingStayOut, Ledger,
    LossesFirst, MovedPodsKeepAway, NamesSettle, NoHang, NoProgress, OneRestartPerIncident, OneWorkerPerEpoch,
    OwnDeletionsAreNoFailures, PinnedPodsStay, RefusalsAreFree, RequestsOnce, Rest, ShrinkRestarts, StallsStrikeOnce,
    SuccessIsFinal, ToldInTime, UrgentFirst,
};
use crate::proof::RuleMutation;

/// Seeds within which a broken rule has to be caught.
const SEEDS: u64 = 16_000;

#[rstest]
#[case::no_hang(RuleMutation::LiftedOnce, &[NoHang])]
#[case::no_restart_without_a_failure(RuleMutation::LateStatusesAreFailures, &[OneRestartPerIncident])]
#[case::counted_once(RuleMutation::CountedEachReconciliation, &[OneRestartPerIncident])]
#[case::no_restart_beyond_the_budget(RuleMutation::BudgetOffByOne, &[ExactBudget])]
#[case::no_count_is_lost(RuleMutation::ConflictsIgnored, &[ExactBudget, OneRestartPerIncident])]
#[case::active_jobs_are_counted(RuleMutation::ActiveForgotten, &[CountsOfJobs])]
#[case::deletions_are_no_failures(RuleMutation::DeletionsAreDisruptions, &[OwnDeletionsAreNoFailures])]
#[case::own_advances_are_free(RuleMutation::FreeEpochForgotten, &[OwnDeletionsAreNoFailures, OneRestartPerIncident])]
#[case::write_repeated_after_a_lost_answer(RuleMutation::WriteRepeatedAfterALostAnswer, &[Facts])]
#[case::bulk_before_urgent(RuleMutation::BulkBeforeUrgent, &[UrgentFirst])]
#[case::free_epoch_outlives_its_reason(RuleMutation::FreeEpochOutlivesItsReason, &[FreeEpoch])]
#[case::shrink_without_restart(RuleMutation::ShrinkWithoutRestart, &[ShrinkRestarts])]
#[case::old_slot_taken_for_newcomer(RuleMutation::OldSlotTakenForNewcomer, &[NoHang])]
#[case::notes_are_not_repeated(RuleMutation::RepeatsNotes, &[Rest])]
#[case::controller_comes_to_rest(RuleMutation::NeverAtRest, &[Rest])]
#[case::no_worker_runs_before_all_have_reported(RuleMutation::LiftedOneReportEarly, &[Barrier])]
#[case::engine_counts_are_those_of_the_objects(RuleMutation::PodEndsNotObserved, &[EngineCounts])]
#[case::failed_by_the_deadline_for_good(RuleMutation::CompletedAfterTheDeadline, &[Deadline])]
#[case::deadline_not_observed(RuleMutation::DeadlineNotObserved, &[NoHang])]
#[case::resume_not_numbered(RuleMutation::ResumeNotNumbered, &[ExecutionAttempts])]
#[case::backoff_forgotten(RuleMutation::BackoffForgotten, &[Backoff])]
#[case::entry_lost_after_a_panic(RuleMutation::EntryLostAfterAPanic, &[NoHang])]
#[case::answers_read_before_the_hello(RuleMutation::AnswersReadBeforeTheHello, &[OneWorkerPerEpoch])]
#[case::answers_from_a_cache(RuleMutation::AnswersFromACache, &[OneWorkerPerEpoch])]
#[case::lift_sent_before_write(RuleMutation::LiftSentBeforeWrite, &[Barrier])]
#[case::reports_of_hellos_are_new(RuleMutation::ReportsOfHellosAreNew, &[OneRestartPerIncident, Barrier])]
#[case::life_of_others_counts(RuleMutation::LifeOfOthersCounts, &[ToldInTime])]
#[case::answers_to_others_taken(RuleMutation::AnswersToOthersTaken, &[OneWorkerPerEpoch, ToldInTime])]
#[case::old_statements_taken(RuleMutation::OldStatementsTaken, &[Barrier, OneWorkerPerEpoch])]
#[case::states_not_repeated(RuleMutation::StatesNotRepeated, &[ToldInTime])]
#[case::annotation_left_to_the_stream(RuleMutation::AnnotationLeftToTheStream, &[NoHang, EngineCounts])]
#[case::fall_back_reports_older_epoch(RuleMutation::FallBackReportsOlderEpoch, &[EngineCounts, NoHang])]
#[case::writes_overtake_each_other(RuleMutation::WritesOvertakeEachOther, &[EngineCounts, NoHang])]
#[case::success_policy_not_observed(RuleMutation::SuccessPolicyNotObserved, &[SuccessIsFinal])]
#[case::leaving_let_in(RuleMutation::LeavingLetIn, &[LeavingStayOut])]
#[case::notes_of_specified_jobs(RuleMutation::NotesOfSpecifiedJobs, &[BoundedPlans])]
#[case::refusals_are_no_failures(RuleMutation::RefusalsAreFailures, &[RefusalsAreFree])]
#[case::pods_that_cannot_return_are_replaced(RuleMutation::ReturnsForgotten, &[NoHang])]
#[case::replacements_are_free(RuleMutation::ReplacementsCounted, &[OneRestartPerIncident, OwnDeletionsAreNoFailures])]
#[case::healthy_pods_stay(RuleMutation::WaitingTakenForEnding, &[HealthyPodsStay])]
#[case::names_settle(RuleMutation::SettleTimeNotObserved, &[NamesSettle])]
#[case::requests_are_carried_out_once(RuleMutation::RequestsForgotten, &[RequestsOnce])]
#[case::stalls_count_once(RuleMutation::StallsCountedTwice, &[OneRestartPerIncident])]
#[case::stalls_restart_the_group(RuleMutation::StallsNotObserved, &[NoHang])]
#[case::stalls_strike_no_other_node(RuleMutation::StalledTakenForStopped, &[StallsStrikeOnce])]
#[case::stalls_strike_once(RuleMutation::StallsStrikeAgain, &[StallsStrikeOnce])]
#[case::restarts_without_progress_outlive_leaders(RuleMutation::RestartsWithoutProgressForgotten, &[NoProgress])]
#[case::progress_begins_the_count_again(RuleMutation::ProgressNotObserved, &[NoProgress])]
#[case::ledger_has_all_the_time(RuleMutation::LedgerLosesTime, &[Ledger])]
#[case::ledger_has_it_in_true_buckets(RuleMutation::LedgerCountsAhead, &[Ledger])]
#[case::moves_are_free(RuleMutation::MovesCounted, &[OneRestartPerIncident, OwnDeletionsAreNoFailures])]
#[case::avoided_nodes_outlive_their_leader(RuleMutation::AvoidedNodesForgotten, &[AvoidedNodesLast])]
#[case::no_pod_waits_for_a_preference(RuleMutation::HardWhereSoftWasAsked, &[NoHang])]
#[case::pinned_pods_stay(RuleMutation::PinsNotObserved, &[PinnedPodsStay])]
#[case::moved_pods_keep_away(RuleMutation::LabelsNotObserved, &[MovedPodsKeepAway])]
#[case::avoided_nodes_last(RuleMutation::ClearedOnceLeft, &[AvoidedNodesLast])]
#[case::first_to_fail_is_blamed(RuleMutation::FirstToReportBlamed, &[BlameIsTrue])]
#[case::cordons_are_free(RuleMutation::CordonsCounted, &[CordonsAreFree])]
#[case::cordons_cool_down(RuleMutation::CoolDownForgotten, &[CordonsAreFree])]
#[case::losses_are_stored_first(RuleMutation::LossesNotStored, &[LossesFirst])]
#[case::one_worker_at_a_time(RuleMutation::SupervisorsDoNotWait, &[Barrier])]
fn a_broken_rule_is_caught(#[case] broken: RuleMutation, #[case] by: &[Property]) {
    let caught = |seed| run(seed, Some(broken)).err().filter(|(violation, _)| by.contains(&violation.property));
    let found = (0..SEEDS).find_map(|seed| Some((seed, caught(seed)?.0)));
    println!("{broken:?}: {found:?}");
    assert!(found.is_some(), "{broken:?} is not caught by {by:?} within {SEEDS} seeds");
}
