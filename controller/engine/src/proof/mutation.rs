//! Rules broken on purpose, around the real ones: each property has to notice when it does not hold.

mod writes;

use std::sync::Arc;

use jobset_api::{JobSet, JobSetStatus, conditions, labels};
use jobset_rules::{Action, Note, Plan, PodDeletion, Trigger};
use jobset_store::pods::{Exit, PodView};
use jobset_store::{Kind, Observed, Ranges, View, WatchEvent};
use k8s_openapi::jiff::Timestamp;

use super::simulation::blames;
use writes::{edit_ledger, give_up_at_once};

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RuleMutation {
    /// The barrier is never lifted again after the first time.
    LiftedOnce,
    /// The wait before a restart is not kept in the status.
    BackoffForgotten,
    /// The barrier is lifted one report early.
    LiftedOneReportEarly,
    /// A worker that was not observed running is taken for one that has failed.
    LateStatusesAreFailures,
    /// A restart that is under way is counted in each reconciliation.
    CountedEachReconciliation,
    /// One more restart is allowed than `maxRestarts`.
    BudgetOffByOne,
    /// A status overwrites whatever is stored.
    ConflictsIgnored,
    /// One active Job is not counted.
    ActiveForgotten,
    /// A deleted Pod is taken for a disrupted one.
    DeletionsAreDisruptions,
    /// An advance that the controller causes is counted.
    FreeEpochForgotten,
    /// The free epoch is not taken back when it has begun.
    FreeEpochOutlivesItsReason,
    /// Each reconciliation repeats a note.
    RepeatsNotes,
    /// The status changes with each reconciliation.
    NeverAtRest,
    /// A JobSet that has failed by its deadline completes.
    CompletedAfterTheDeadline,
    /// The deadline does not reach the engine.
    DeadlineNotObserved,
    /// A resume does not begin an execution with the next number.
    ResumeNotNumbered,
    /// A shrink does not restart the Pods that stay.
    ShrinkWithoutRestart,
    /// After a lost answer, the status is written again, whatever is stored by then.
    WriteRepeatedAfterALostAnswer,
    /// Bulk work has its turn before urgent work.
    BulkBeforeUrgent,
    /// While Pods are new, a member that reports the next epoch is taken for one of them.
    OldSlotTakenForNewcomer,
    /// The end of a Pod does not reach the engine.
    PodEndsNotObserved,
    /// The entry that a panic has cost is not listed again.
    EntryLostAfterAPanic,
    /// A supervisor goes on to the next epoch while its worker still runs.
    SupervisorsDoNotWait,
    /// Whatever an agent reports, its worker is taken to be in that epoch.
    LonelyAgentsAreBelieved,
    /// A report that got lost is not repeated.
    ReportsOnce,
    /// A report is taken to be too high by the epochs that the controller has observed, which may be old.
    ConfirmedByPodsAlone,
    /// The answer to a hello shows what a cache holds.
    AnswersFromACache,
    /// The answer to a hello shows the JobSet as it was before the hello arrived: that of a leader that was stopped.
    AnswersReadBeforeTheHello,
    /// What was said to an agent while its hello was answered is not said again after the answer.
    AnswersOvertaken,
    /// A newborn agent takes whatever a leader says for the answer to its hello.
    BroadcastsTakenForAnswers,
    /// Agents are told of epochs before these are stored.
    LiftSentBeforeWrite,
    /// The report of a Pod that was replaced counts for the one in its place.
    ReportOfReplacedPodCounts,
    /// The report of each hello is taken for a new one: what was counted before the stream was cut counts again.
    ReportsOfHellosAreNew,
    /// When the stream is cut, the agent writes an older epoch than it has reported.
    FallBackReportsOlderEpoch,
    /// The agent does not wait for the answer to one annotation before it writes the next.
    WritesOvertakeEachOther,
    /// An agent takes whatever a relay passes on for a sign of life, also if it does not name its JobSet.
    LifeOfOthersCounts,
    /// An agent takes the answer to another hello for that to its own.
    AnswersToOthersTaken,
    /// An agent takes whatever a relay repeats for new.
    OldStatementsTaken,
    /// The leader gives signs of life alone, and does not repeat the states of JobSets.
    StatesNotRepeated,
    /// An agent does not write its annotation while the stream carries its reports.
    AnnotationLeftToTheStream,
    /// The success policies of Jobs do not reach the engine: a success is known when the Job controller says so.
    SuccessPolicyNotObserved,
    /// Each Job that is specified has a note.
    NotesOfSpecifiedJobs,
    /// The barrier is lifted once all Pods of the specified size have reported, whoever else waits at it.
    LeavingLetIn,
    /// A Pod that its node refuses is taken for one that fails before its worker starts.
    RefusalsAreFailures,
    /// A Pod that cannot come back is not replaced.
    ReturnsForgotten,
    /// The replacement of a Pod is counted.
    ReplacementsCounted,
    /// A container that waits is taken for one that ends whenever it starts.
    WaitingTakenForEnding,
    /// The settle time does not reach the engine.
    SettleTimeNotObserved,
    /// A move is counted beside the restart that it belongs to.
    MovesCounted,
    /// What the status says of avoided nodes does not reach the engine.
    AvoidedNodesForgotten,
    /// The Pod webhook gives the hard form where the soft one was asked for.
    HardWhereSoftWasAsked,
    /// That Pods select their node does not reach the engine.
    PinsNotObserved,
    /// Every Job is taken for one whose Pods keep away from nodes.
    LabelsNotObserved,
    /// A node is cleared once its Pods have left it.
    ClearedOnceLeft,
    /// The Pod that is the first to report the next epoch is blamed, whoever has failed before.
    FirstToReportBlamed,
    /// A restart for the sake of cordoned nodes is counted.
    CordonsCounted,
    /// That Pods have left cordoned nodes is forgotten.
    CoolDownForgotten,
    /// Pods of a lost node are given up before the status says that they are lost.
    LossesNotStored,
    /// What the status remembers of requests to restart does not reach the engine.
    RequestsForgotten,
    /// A stall that is reported of the epoch before counts in this one.
    StallsOutliveTheirEpoch,
    /// A stall is counted again while the group restarts because of it.
    StallsCountedTwice,
    /// That workers stall does not reach the engine.
    StallsNotObserved,
    /// One worker is taken to be stopped whenever it stalls.
    StalledTakenForStopped,
    /// A stall strikes its node again while the group restarts because of it.
    StallsStrikeAgain,
    /// How many restarts have brought no progress is forgotten.
    RestartsWithoutProgressForgotten,
    /// A restart is taken for one without progress although there was some.
    ProgressNotObserved,
    /// The time since the last write is in no bucket of the ledger.
    LedgerLosesTime,
    /// The time since the last write is in the bucket that begins.
    LedgerCountsAhead,
}

/// What of an event reaches the engine.
pub(super) fn edit_event(broken: Option<RuleMutation>, mut event: WatchEvent) -> Option<WatchEvent> {
    match &mut event {
        WatchEvent::Gone(Kind::Pod, ..) if broken == Some(RuleMutation::PodEndsNotObserved) => return None,
        WatchEvent::Put { view: View::Pod(view), .. } => edit_pod(broken, view),
        WatchEvent::Put { view: View::JobSet(jobset), .. } => edit_jobset(broken, jobset),
        WatchEvent::Put { view: View::Job(job), .. } if broken == Some(RuleMutation::LabelsNotObserved) => {
            job.avoids_nodes = true;
        }
        _ => {}
    }
    Some(event)
}

pub(super) fn edit_pod(broken: Option<RuleMutation>, pod: &mut PodView) {
    match broken {
        Some(RuleMutation::DeletionsAreDisruptions) if pod.deleted_at.is_some() => {
            let failure = pod.failure.get_or_insert_default();
            failure.disruption.get_or_insert_with(|| ("Taken".to_owned(), "for a disruption".to_owned()));
        }
        Some(RuleMutation::LonelyAgentsAreBelieved) => pod.workers = 0,
        Some(RuleMutation::PinsNotObserved) => pod.pinned = false,
        Some(RuleMutation::StallsOutliveTheirEpoch) => {
            if let Some((progress, epoch)) = pod.progress.as_mut().zip(pod.epoch.number()) {
                progress.epoch = epoch;
            }
        }
        Some(RuleMutation::StallsNotObserved) => pod.progress = None,
        Some(RuleMutation::StalledTakenForStopped) if pod.name.starts_with("train-a-0-0-") => {
            if let Some(stall) = pod.progress.as_mut().and_then(|progress| progress.stall.as_mut()) {
                stall.is_stopped = true;
            }
        }
        Some(RuleMutation::RefusalsAreFailures) => {
            if let Some(failure) = &mut pod.failure {
                failure.refused = false;
            }
        }
        Some(RuleMutation::WaitingTakenForEnding) => {
            if let Some(waiting) = &mut pod.waiting {
                let finished_at = Some(Timestamp::MAX);
                waiting.ended.get_or_insert_with(|| Exit { code: 1, finished_at, ..Exit::default() });
            }
        }
        _ => {}
    }
}

pub(super) fn edit_jobset(broken: Option<RuleMutation>, jobset: &mut Arc<JobSet>) {
    match broken {
        Some(RuleMutation::DeadlineNotObserved) if jobset.spec.active_deadline_seconds.is_some() => {
            Arc::make_mut(jobset).spec.active_deadline_seconds = None;
        }
        Some(RuleMutation::SettleTimeNotObserved) if jobset.settle_names().is_some() => {
            let annotations = &mut Arc::make_mut(jobset).metadata.annotations;
            annotations.get_or_insert_default().remove(labels::SETTLE_NAMES);
        }
        Some(RuleMutation::RequestsForgotten) => {
            let status = Arc::make_mut(jobset).status.as_mut();
            status.into_iter().filter_map(|status| status.restart_requests.as_mut()).for_each(Vec::clear);
        }
        Some(RuleMutation::RestartsWithoutProgressForgotten | RuleMutation::ProgressNotObserved) => {
            let progress = Arc::make_mut(jobset).status.as_mut().and_then(|status| status.progress.as_mut());
            if let Some(progress) = progress {
                if broken == Some(RuleMutation::ProgressNotObserved) {
                    for kept in &mut progress.replicated_jobs {
                        kept.step_at_restart = kept.step_at_restart.and(Some(i64::MAX));
                    }
                } else {
                    progress.restarts_without_progress = 0;
                }
            }
        }
        Some(RuleMutation::AvoidedNodesForgotten) => {
            if let Some(status) = Arc::make_mut(jobset).status.as_mut() {
                status.avoided_nodes.clear();
            }
        }
        Some(RuleMutation::PinsNotObserved) => {
            for group in &mut Arc::make_mut(jobset).spec.replicated_jobs {
                if let Some(pod) = group.template.spec.template.spec.as_mut() {
                    pod.node_selector = None;
                }
            }
        }
        Some(RuleMutation::SuccessPolicyNotObserved) => {
            for group in &mut Arc::make_mut(jobset).spec.replicated_jobs {
                group.template.spec.success_policy = None;
            }
        }
        Some(RuleMutation::BudgetOffByOne) => {
            if let Some(policy) = &mut Arc::make_mut(jobset).spec.failure_policy {
                policy.max_restarts = policy.max_restarts.map(|limit| limit + 1);
            }
        }
        Some(RuleMutation::OldSlotTakenForNewcomer) => {
            let jobset = Arc::make_mut(jobset);
            let groups = jobset.spec.replicated_jobs.iter();
            let sizes: Vec<i64> =
                groups.map(|group| i64::from(group.replicas()) * i64::from(group.template.spec.pods())).collect();
            let status = jobset.status.iter_mut().flat_map(|status| &mut status.replicated_jobs_status);
            for (recorded, size) in status.zip(sizes) {
                let pods = recorded.synced_pods.as_deref().map(Ranges::parse);
                if pods.is_some_and(|pods| pods.count() < size) {
                    recorded.synced_pods = Some(String::new());
                }
            }
        }
        _ => {}
    }
}

/// What becomes of a plan.
pub(super) fn edit_plan(broken: Option<RuleMutation>, observed: &Observed<'_>, plan: &mut Plan) {
    let Some(broken) = broken else { return };
    let (before, status) = (observed.status(), &mut plan.status);
    let synced = before.synced_epoch;
    let runs = synced > 0 && before.deprecated_epoch < synced;
    let pods = || observed.jobs().filter_map(|(_, job)| observed.pods_of(job));
    let reported = |epoch: i32| -> usize { pods().filter_map(|pods| pods.reports().get(&epoch)).sum() };
    let specified = observed.jobset.spec.expected_pods();
    match broken {
        RuleMutation::CountedEachReconciliation if synced > 0 && !runs => count_restart(&before, status),
        RuleMutation::StallsCountedTwice | RuleMutation::StallsStrikeAgain
            if synced > 0 && !runs && pods().any(|pods| pods.stalled_in(synced).next().is_some()) =>
        {
            repeat_stall(broken, &before, status);
        }
        RuleMutation::FreeEpochForgotten if runs && status.free_epoch == synced + 1 => {
            count_restart(&before, status);
            status.free_epoch = 0;
        }
        RuleMutation::LateStatusesAreFailures if runs && status.deprecated_epoch < synced => {
            let running: usize = pods().map(|pods| pods.running_in(synced)).sum();
            if running < reported(synced) {
                count_restart(&before, status);
                status.deprecated_epoch = synced;
            }
        }
        RuleMutation::ReturnsForgotten => plan.actions.retain(|action| !is_replacement(action)),
        RuleMutation::ReplacementsCounted if plan.actions.iter().any(is_replacement) => count_restart(&before, status),
        RuleMutation::MovesCounted if plan.actions.iter().any(is_move) => count_restart(&before, status),
        RuleMutation::ClearedOnceLeft if status.synced_epoch > synced => status.avoided_nodes.clear(),
        RuleMutation::FirstToReportBlamed if runs && status.deprecated_epoch == synced => {
            blames::blame_first_to_report(observed, &before, status);
        }
        RuleMutation::CordonsCounted if begins_to_leave(&before, status) => count_restart(&before, status),
        RuleMutation::CoolDownForgotten if synced > 0 && !runs => {
            status.conditions.retain(|it| it.type_ != conditions::LEFT_CORDONED_NODES);
        }
        RuleMutation::LossesNotStored if runs && status.deprecated_epoch == synced => give_up_at_once(observed, plan),
        RuleMutation::LedgerLosesTime | RuleMutation::LedgerCountsAhead => edit_ledger(broken, &before, status),
        RuleMutation::BackoffForgotten => status.barrier_until = None,
        RuleMutation::LiftedOnce if synced > 0 => status.synced_epoch = synced,
        RuleMutation::LiftedOneReportEarly
            if i64::try_from(reported(synced + 1)).is_ok_and(|reported| reported + 1 == specified) =>
        {
            (status.synced_epoch, status.deprecated_epoch) = (synced + 1, synced);
        }
        RuleMutation::LeavingLetIn
            if synced > 0
                && before.deprecated_epoch == synced
                && status.synced_epoch == synced
                && !status.is_finished()
                && !observed.jobset.spec.is_suspended()
                && i64::try_from(reported(synced + 1)).is_ok_and(|reported| reported >= specified) =>
        {
            (status.synced_epoch, status.free_epoch) = (synced + 1, 0);
        }
        RuleMutation::ActiveForgotten => {
            if let Some(group) = status.replicated_jobs_status.iter_mut().find(|group| group.active > 0) {
                group.active -= 1;
            }
        }
        RuleMutation::CompletedAfterTheDeadline => {
            let failed = status.conditions.iter_mut().find(|it| it.type_ == conditions::FAILED);
            let failed = failed.filter(|it| it.reason == conditions::DEADLINE_EXCEEDED && before.is_finished());
            if let Some(failed) = failed {
                conditions::COMPLETED.clone_into(&mut failed.type_);
                conditions::COMPLETED.clone_into(&mut status.terminal_state);
            }
        }
        RuleMutation::ResumeNotNumbered if before.execution_ended => {
            status.execution_attempts = before.execution_attempts;
        }
        RuleMutation::NotesOfSpecifiedJobs => {
            let jobs = observed.jobset.spec.global_replicas().min(1_000);
            plan.notes.extend((0..jobs).map(|job| Note::normal("Specified", format!("Job {job} is specified"))));
        }
        RuleMutation::RepeatsNotes => plan.notes.push(Note::normal("StillHere", "still here".to_owned())),
        RuleMutation::NeverAtRest if before.jobs_ready == status.jobs_ready => status.jobs_ready.push('?'),
        RuleMutation::FreeEpochOutlivesItsReason if status.synced_epoch > synced => {
            status.free_epoch = before.free_epoch;
        }
        RuleMutation::ShrinkWithoutRestart
            if before.deprecated_epoch < synced
                && status.free_epoch > 0
                && specified < observed.jobs().map(|(_, job)| i64::from(job.pods)).sum() =>
        {
            (status.deprecated_epoch, status.free_epoch) = (before.deprecated_epoch, 0);
        }
        _ => {}
    }
}

/// Whether the status begins a restart for the sake of cordoned nodes.
fn begins_to_leave(before: &JobSetStatus, status: &JobSetStatus) -> bool {
    let has_left = |status: &JobSetStatus| conditions::is_true(&status.conditions, conditions::LEFT_CORDONED_NODES);
    has_left(status) && !has_left(before)
}

fn is_replacement(action: &Action) -> bool {
    matches!(action, Action::DeletePod { reason: PodDeletion::CannotReturn, .. })
}

fn is_move(action: &Action) -> bool {
    matches!(action, Action::DeletePod { reason: PodDeletion::Moved, .. })
}

/// Does again what has been done because of a stall.
fn repeat_stall(broken: RuleMutation, before: &JobSetStatus, status: &mut JobSetStatus) {
    if broken == RuleMutation::StallsCountedTwice {
        count_restart(before, status);
        return;
    }
    let last = before.node_strikes.last().filter(|it| it.reason == Trigger::Stalled.word());
    status.node_strikes.extend(last.cloned());
}

fn count_restart(before: &JobSetStatus, status: &mut JobSetStatus) {
    status.group_restarts = before.group_restarts + 1;
    status.restarts_count_towards_max = before.restarts_count_towards_max + 1;
}
