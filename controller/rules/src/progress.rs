//! How far the workers of each replicatedJob have come, as their agents have told by now.
//!
//! An agent tells of the last step of an epoch with its report of the next one. So what an epoch has brought is known when the next one
//! begins, and not when a restart ends it.

use jobset_api::{EndedEpoch, GroupProgress, JobSetStatus, LaterFields, ReplicatedJobProgress, conditions};
use jobset_store::pods::JobPods;

use crate::backoff;
use crate::reconciliation::{Current, Reconciliation};

/// What an epoch has brought, now that the next one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EpochResult {
    /// Workers have failed, have told how far they came, and none came further than workers before.
    pub is_without_progress: bool,
    pub lost: Option<LostWork>,
}

/// What a restart loses: the steps since the last checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LostWork {
    pub milliseconds: i64,
    pub steps: i64,
}

/// Keeps how far the workers have come, in a status that will be written.
pub(super) fn keep(reconciliation: &mut Reconciliation<'_>) {
    let pause = pods(reconciliation).filter_map(JobPods::longest_pause).max();
    let groups = reconciliation.groups();
    let of_group = |group: usize| {
        let pods = || reconciliation.jobs_of(group).filter_map(|current| current.pods);
        let step = pods().filter_map(JobPods::highest_step).max();
        let checkpoint = pods().filter_map(JobPods::last_checkpoint).max();
        let last_step = ended_epoch(&reconciliation.status).and_then(|ended| step_in(pods(), ended.epoch));
        (step.is_some() || checkpoint.is_some()).then_some((group, [step, checkpoint, last_step]))
    };
    let told: Vec<_> = (0..groups.len()).filter_map(of_group).collect();
    if told.is_empty() && pause.is_none() {
        return;
    }
    let progress = reconciliation.status.progress.get_or_insert_default();
    progress.longest_pause_seconds = progress.longest_pause_seconds.max(pause);
    for (group, [step, checkpoint, last_step]) in told {
        let kept = kept_of(progress, &groups[group].name);
        kept.step = kept.step.max(step);
        kept.checkpoint = kept.checkpoint.max(checkpoint);
        kept.last_step = kept.last_step.max(last_step);
    }
    show_first(progress);
}

/// Remembers that a restart ends the epoch now, unless one has ended it before. A failure of a worker may follow in either case.
pub(super) fn note_end(reconciliation: &mut Reconciliation<'_>, failed: bool) {
    keep(reconciliation);
    let (epoch, now) = (reconciliation.status.synced_epoch, reconciliation.now.0);
    if !reconciliation.in_place() || epoch == 0 {
        return;
    }
    let stored = reconciliation.observed.status();
    // Nothing is known of how long it ran.
    let ended = backoff::micro_time(now);
    let began =
        stored.epoch_transition_time.clone().filter(|_| !stored.epochs().is_closed()).unwrap_or_else(|| ended.clone());
    // What it stalled for was not spent on any step.
    let stalled = conditions::find_true(&stored.conditions, conditions::PROGRESS_STALLED);
    let stalled = stalled.map(|known| known.last_transition_time.0).or(reconciliation.stalled_since);
    let worked = stalled.map_or(ended, |since| backoff::micro_time(since.min(now)));
    let Some(progress) = reconciliation.status.progress.as_mut() else { return };
    match &mut progress.ended_epoch {
        Some(ended) if ended.epoch == epoch => ended.failed |= failed,
        ended => {
            *ended = Some(EndedEpoch { epoch, failed, began, worked, later: LaterFields::new() });
            progress.replicated_jobs.iter_mut().for_each(|kept| kept.last_step = None);
        }
    }
}

/// What the synced epoch has brought. All members have reported the next one, which begins in this write.
pub(super) fn conclude(reconciliation: &mut Reconciliation<'_>) -> EpochResult {
    keep(reconciliation);
    let ended = ended_epoch(&reconciliation.status).cloned();
    let has_told = ended.as_ref().is_some_and(|ended| has_told_of_end(reconciliation, ended));
    let Some(progress) = reconciliation.status.progress.as_mut() else { return EpochResult::default() };
    progress.ended_epoch = None;
    let (mut rose, mut tells, mut lost) = (false, false, None);
    for kept in &mut progress.replicated_jobs {
        let work = ended.as_ref().map(|ended| lost_work(kept, ended));
        lost = lost.max(work);
        tells |= kept.step.is_some();
        rose |= kept.step.is_some() && kept.step_at_restart.is_none_or(|before| kept.step > Some(before));
        kept.step_at_restart = kept.step_at_restart.max(kept.step);
        (kept.checkpoint_at_restart, kept.last_step) = (kept.checkpoint, None);
    }
    let has_failed = ended.is_some_and(|ended| ended.failed) && has_told && tells;
    if rose {
        progress.restarts_without_progress = 0;
    } else if has_failed {
        progress.restarts_without_progress = progress.restarts_without_progress.saturating_add(1);
    }
    show_first(progress);
    EpochResult { is_without_progress: has_failed && !rose, lost }
}

/// The epoch that a restart has ended, until the next one begins. A controller that does not know the field leaves an earlier one.
fn ended_epoch(status: &JobSetStatus) -> Option<&EndedEpoch> {
    status.progress.as_ref()?.ended_epoch.as_ref().filter(|ended| ended.epoch == status.synced_epoch)
}

/// Whether it is known how far the workers of the epoch came: the agent of one has told of a step in it together with the next epoch.
/// Where all have told that they came to none, each Pod has to be as old as the epoch: who knows what the Pods before have done?
fn has_told_of_end(reconciliation: &Reconciliation<'_>, ended: &EndedEpoch) -> bool {
    let reports = |epoch: Option<i32>| epoch == Some(ended.epoch.saturating_add(1));
    let back = || reconciliation.running_pods().flat_map(JobPods::all).filter(|pod| reports(pod.epoch.number()));
    if back().any(|pod| pod.progress_in(ended.epoch).is_some_and(|progress| progress.step.is_some())) {
        return true;
    }
    back().any(|pod| pod.progress_in(ended.epoch).is_some()) && back().all(|pod| pod.created <= ended.began.0)
}

/// What is lost of an epoch. Nothing is known of workers that have told of no step in it, or of no checkpoint. The time is that of the
/// epoch, in the proportion of its steps; an epoch that began with the JobSet counts from step 0.
fn lost_work(kept: &ReplicatedJobProgress, ended: &EndedEpoch) -> LostWork {
    let (Some(step), Some(checkpoint)) = (kept.last_step, kept.checkpoint) else { return LostWork::default() };
    let steps = step.saturating_sub(checkpoint).max(0);
    let done = step.saturating_sub(kept.checkpoint_at_restart.unwrap_or(0));
    let ran = ended.worked.0.duration_since(ended.began.0).as_millis().max(0);
    let share = if done > 0 { ran.saturating_mul(steps.into()) / i128::from(done) } else { 0 };
    LostWork { milliseconds: i64::try_from(share.min(ran)).unwrap_or(i64::MAX), steps }
}

/// The highest step that workers of this epoch have told of.
fn step_in<'a>(pods: impl Iterator<Item = &'a JobPods>, epoch: i32) -> Option<i64> {
    pods.flat_map(JobPods::all).filter_map(|pod| pod.progress_in(epoch)?.step).max()
}

fn pods<'a>(reconciliation: &Reconciliation<'a>) -> impl Iterator<Item = &'a JobPods> {
    reconciliation.current.iter().filter_map(|current: &Current<'a>| current.pods)
}

fn kept_of<'a>(progress: &'a mut GroupProgress, name: &str) -> &'a mut ReplicatedJobProgress {
    let kept = &mut progress.replicated_jobs;
    let place = kept.iter().position(|kept| kept.name == name).unwrap_or_else(|| {
        kept.push(ReplicatedJobProgress { name: name.to_owned(), ..ReplicatedJobProgress::default() });
        kept.len() - 1
    });
    &mut kept[place]
}

/// The steps of the first replicatedJob are beside those of all: the release before knows no others.
fn show_first(progress: &mut GroupProgress) {
    let Some(first) = progress.replicated_jobs.first() else { return };
    (progress.step, progress.checkpoint) = (first.step, first.checkpoint);
    (progress.step_at_restart, progress.checkpoint_at_restart) = (first.step_at_restart, first.checkpoint_at_restart);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use k8s_openapi::jiff::Timestamp;
    use rstest::rstest;

    use super::*;

    /// An epoch that has run for 100 s.
    #[rstest]
    #[case::first_epoch(None, Some(100), Some(60), (40, 40_000))]
    #[case::later_epoch(Some(60), Some(100), Some(60), (40, 100_000))]
    #[case::checkpoint_in_it(Some(60), Some(100), Some(80), (20, 50_000))]
    #[case::checkpoint_at_its_end(Some(60), Some(100), Some(100), (0, 0))]
    #[case::no_checkpoint_ever(None, Some(100), None, (0, 0))]
    #[case::no_step_in_it(None, None, Some(60), (0, 0))]
    #[case::no_step_done(Some(100), Some(100), Some(100), (0, 0))]
    #[case::nothing_done_again_yet(Some(60), Some(60), Some(60), (0, 0))]
    #[case::failed_before_the_step_of_the_epoch_before(Some(60), Some(61), Some(60), (1, 100_000))]
    #[case::checkpoint_before_it(Some(60), Some(90), Some(85), (5, 16_666))]
    #[case::extremes(Some(i64::MIN), Some(i64::MAX), Some(i64::MIN), (i64::MAX, 100_000))]
    fn restart_loses_steps_since_checkpoint(
        #[case] checkpoint_at_restart: Option<i64>,
        #[case] last_step: Option<i64>,
        #[case] checkpoint: Option<i64>,
        #[case] (steps, milliseconds): (i64, i64),
    ) {
        let kept =
            ReplicatedJobProgress { checkpoint, checkpoint_at_restart, last_step, ..ReplicatedJobProgress::default() };
        let at = |second: i64| MicroTime(Timestamp::from_second(second).unwrap());
        let ended = EndedEpoch { epoch: 1, failed: true, began: at(0), worked: at(100), later: LaterFields::new() };
        assert_eq!(lost_work(&kept, &ended), LostWork { milliseconds, steps });
    }
}
