//! The slots of the whole group, summed up from the counts of its Jobs.
//!
//! A slot is one completion index of one Job of the current attempt. A Job that the failure policy leaves failed has none
//! (action FailJob): nobody waits for it.

use std::collections::BTreeMap;

use jobset_api::ReplicatedJob;

use super::pass::{Current, Pass, has_completed, has_failed};
use super::placement;
use crate::store::pods::{FailedWorker, JobPods};

/// The slots of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Slots that are not done.
    pub open: usize,
    /// Slots that have succeeded, or can never come back.
    pub done: usize,
    /// Open slots by the epoch that their Pod reports, and its worker is in. A report outside of `1..=synced + 1` is none.
    pub reports: BTreeMap<i32, usize>,
    /// Slots whose Pod reports this epoch while its worker may be of an earlier one: the report is heard, the slot is not
    /// filled.
    pub suspects: BTreeMap<i32, usize>,
    /// Open slots whose worker runs in the synced epoch.
    pub running: usize,
    /// Slots whose worker runs although their Pod reports no epoch that can be: the report was overwritten. They will not
    /// report again before they restart.
    pub mute: usize,
    /// Whether a worker of the synced epoch was seen to fail.
    pub broken: bool,
}

impl Slots {
    /// The newest epoch that is reported.
    pub(super) fn newest(&self) -> Option<i32> {
        let newest = |reports: &BTreeMap<i32, usize>| reports.last_key_value().map(|(epoch, _)| *epoch);
        newest(&self.reports).max(newest(&self.suspects))
    }

    /// Whether the workers of all open slots run in the epoch that they shall run in.
    pub(super) fn all_run(&self) -> bool {
        self.running + self.mute >= self.open
    }

    /// Whether some wait for this epoch, and every other open slot has passed an earlier barrier, or has a worker that runs
    /// without any.
    pub(super) fn all_wait_or_run(&self, next: i32) -> bool {
        let waits = |reports: &BTreeMap<i32, usize>| reports.contains_key(&next);
        (waits(&self.reports) || waits(&self.suspects)) && self.all_have_reported()
    }

    /// Whether every open slot has a Pod that has reported.
    pub(super) fn all_have_reported(&self) -> bool {
        self.reports.values().chain(self.suspects.values()).sum::<usize>() + self.mute >= self.open
    }
}

/// Sums up. Costs one addition a Job, whatever its size.
pub(super) fn slots(pass: &Pass<'_>) -> Slots {
    let mut slots = created_slots(pass);
    let mut missing: Vec<i64> = pass.groups().iter().map(|group| i64::from(group.replicas())).collect();
    for current in &pass.current {
        missing[current.group] -= 1;
    }
    // The slots of a Job that does not exist yet are open, too.
    let pods = |(missing, group): (i64, &ReplicatedJob)| missing.max(0) * i64::from(group.template.spec.pods());
    slots.open = slots.open.saturating_add(count(missing.into_iter().zip(pass.groups()).map(pods).sum()));
    slots
}

/// The slots of the Jobs that exist.
pub(super) fn created_slots(pass: &Pass<'_>) -> Slots {
    let synced = pass.status.synced_epoch;
    let mut slots = Slots::default();
    let (mut expected, mut done) = (0_i64, 0_i64);
    for current in &pass.current {
        let job = current.job;
        let group = &pass.groups()[current.group];
        if has_failed(job) {
            continue;
        }
        // While its size changes, both the slots that it has and those that it is to have are waited for.
        let resizes = pass.settings.gates.elastic_job_set && job.finished.is_none();
        let wanted = if resizes { group.template.spec.pods() } else { 0 };
        expected += i64::from(job.pods.max(wanted));
        done += i64::from(if has_completed(job) { job.pods } else { job.done_count() });
        let Some(pods) = current.pods.filter(|_| job.finished.is_none()) else { continue };
        done += i64::try_from(pods.succeeded()).unwrap_or(i64::MAX);
        let valid = 1..=pass.next_epoch();
        for (epoch, count) in pods.reports().range(valid.clone()) {
            *slots.reports.entry(*epoch).or_default() += count;
        }
        for (epoch, count) in pods.suspects().filter(|(epoch, _)| valid.contains(epoch)) {
            *slots.suspects.entry(epoch).or_default() += count;
        }
        slots.running += pods.running_in(synced);
        slots.mute += pods.mute() + pods.reports().range(..1).map(|(_, count)| count).sum::<usize>();
    }
    slots.broken = synced > 0 && broken(pass).next().is_some();
    (slots.open, slots.done) = (count(expected - done), count(done));
    slots
}

fn count(number: i64) -> usize {
    usize::try_from(number.max(0)).unwrap_or(usize::MAX)
}

/// Workers of the synced epoch that were seen to fail, but for those whose failure is going to fail their Job, since what
/// that leads to is the failure policy's to decide, and those that the controller has deleted itself.
pub(super) fn broken<'a>(pass: &Pass<'a>) -> impl Iterator<Item = (&'a FailedWorker, usize)> + use<'a> {
    let (synced, groups) = (pass.status.synced_epoch, pass.groups());
    running_jobs(pass).flat_map(move |(pods, group)| {
        let template = &groups[group].template.spec;
        let waits = move |broken: &&FailedWorker| !(broken.pod_ended && broken.failure.fails_job(template));
        let failed = pods.broken_in(synced).filter(|broken| !placement::is_repair(&broken.failure));
        failed.filter(waits).map(move |broken| (broken, group))
    })
}

/// Workers that exited 0 only because their Pod was deleted, and the index of their replicatedJob.
///
/// A Job that is failing deletes its Pods itself: what that leads to is the failure policy's to decide. A Job may complete
/// by being suspended, too; there only a disruption is known to be a loss.
pub(super) fn lost<'a>(pass: &Pass<'a>) -> impl Iterator<Item = (&'a FailedWorker, usize)> + use<'a> {
    let open = |it: &&Current<'_>| !it.job.failing && !has_failed(it.job);
    let jobs: Vec<Current<'a>> = pass.current.iter().filter(open).copied().collect();
    let pods = jobs.into_iter().filter_map(|it| Some((it, it.pods?)));
    pods.flat_map(|(current, pods)| {
        let is_certain = move |lost: &&FailedWorker| !has_completed(current.job) || lost.failure.disruption.is_some();
        pods.lost().filter(is_certain).map(move |lost| (lost, current.group))
    })
}

/// Whether the Job is complete only because a worker exited 0 when it was evicted. In place, the group restarts then.
pub(super) fn is_hollow(pass: &Pass<'_>, current: &Current<'_>) -> bool {
    let evicted = |lost: &FailedWorker| lost.failure.disruption.is_some();
    let has_lost = || current.pods.is_some_and(|pods| pods.lost().any(evicted));
    pass.in_place() && pass.status.synced_epoch > 0 && has_completed(current.job) && has_lost()
}

/// The Pods of the Jobs that have not finished, with the index of their replicatedJob.
pub(super) fn running_jobs<'a>(pass: &Pass<'a>) -> impl Iterator<Item = (&'a JobPods, usize)> + use<'a> {
    let running = pass.current.iter().filter(|current| current.job.finished.is_none());
    running.filter_map(|current| Some((current.pods?, current.group))).collect::<Vec<_>>().into_iter()
}
