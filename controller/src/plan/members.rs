//! The slots of the group, summed up from the counts of its Jobs.
//!
//! A slot is one completion index of one Job of the current attempt. A Job that the failure policy leaves failed (action
//! FailJob) has no slots: the group does not wait for it.

use std::collections::BTreeMap;

use jobset_api::ReplicatedJob;

use super::placement;
use super::reconciliation::{Current, Reconciliation, has_completed, has_failed};
use crate::engine::pods::{FailedWorker, JobPods};

/// Counts of the slots of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Slots that are not done.
    pub open: usize,
    /// Slots that have succeeded, or whose index has failed for good.
    pub done: usize,
    /// Open slots by the epoch that their Pod reports and that its worker is in. Reports outside of `1..=synced + 1` do not
    /// count.
    pub reports: BTreeMap<i32, usize>,
    /// Open slots by the epoch that their Pod reports, if the worker may still be in an earlier epoch. Such a report can
    /// begin a restart, but does not fill the slot.
    pub suspects: BTreeMap<i32, usize>,
    /// Open slots whose worker runs in the synced epoch.
    pub running: usize,
    /// Slots whose worker runs although the report of their Pod is missing or invalid, because something overwrote it. Such
    /// a Pod does not report again before it restarts.
    pub mute: usize,
    /// Whether the controller has observed the failure of a worker of the synced epoch.
    pub has_failed_worker: bool,
}

impl Slots {
    /// The newest reported epoch.
    pub(super) fn newest(&self) -> Option<i32> {
        let newest = |reports: &BTreeMap<i32, usize>| reports.last_key_value().map(|(epoch, _)| *epoch);
        newest(&self.reports).max(newest(&self.suspects))
    }

    /// Whether the workers of all open slots run in the synced epoch.
    pub(super) fn all_run(&self) -> bool {
        self.running + self.mute >= self.open
    }

    /// Whether a Pod waits for this epoch, and every other open slot has passed an earlier barrier or runs its worker without
    /// one.
    pub(super) fn all_wait_or_run(&self, next: i32) -> bool {
        let waits = |reports: &BTreeMap<i32, usize>| reports.contains_key(&next);
        (waits(&self.reports) || waits(&self.suspects)) && self.all_have_reported()
    }

    /// Whether every open slot has a Pod that has reported.
    pub(super) fn all_have_reported(&self) -> bool {
        self.reports.values().chain(self.suspects.values()).sum::<usize>() + self.mute >= self.open
    }
}

/// The slots of all Jobs, those that do not exist yet included. The cost grows with the number of Jobs, not of Pods.
pub(super) fn slots(reconciliation: &Reconciliation<'_>) -> Slots {
    let mut slots = created_slots(reconciliation);
    let mut missing: Vec<i64> = reconciliation.groups().iter().map(|group| i64::from(group.replicas())).collect();
    for current in &reconciliation.current {
        missing[current.group] -= 1;
    }
    // The slots of a Job that does not exist yet are open.
    let pods = |(missing, group): (i64, &ReplicatedJob)| missing.max(0) * i64::from(group.template.spec.pods());
    slots.open = slots.open.saturating_add(count(missing.into_iter().zip(reconciliation.groups()).map(pods).sum()));
    slots
}

/// The slots of the Jobs that exist.
pub(super) fn created_slots(reconciliation: &Reconciliation<'_>) -> Slots {
    let synced = reconciliation.status.synced_epoch;
    let mut slots = Slots::default();
    let (mut expected, mut done) = (0_i64, 0_i64);
    for current in &reconciliation.current {
        let job = current.job;
        let group = &reconciliation.groups()[current.group];
        if has_failed(job) {
            continue;
        }
        // While a Job is resized, the group waits for its present slots and for its future slots.
        let resizes = reconciliation.settings.gates.elastic_job_set && job.finished.is_none();
        let specified = if resizes { group.template.spec.pods() } else { 0 };
        expected += i64::from(job.pods.max(specified));
        done += i64::from(if has_completed(job) { job.pods } else { job.done_count() });
        let Some(pods) = current.pods.filter(|_| job.finished.is_none()) else { continue };
        done += i64::try_from(pods.succeeded()).unwrap_or(i64::MAX);
        let valid = 1..=reconciliation.next_epoch();
        for (epoch, count) in pods.reports().range(valid.clone()) {
            *slots.reports.entry(*epoch).or_default() += count;
        }
        for (epoch, count) in pods.suspects().filter(|(epoch, _)| valid.contains(epoch)) {
            *slots.suspects.entry(epoch).or_default() += count;
        }
        slots.running += pods.running_in(synced);
        slots.mute += pods.mute() + pods.reports().range(..1).map(|(_, count)| count).sum::<usize>();
    }
    slots.has_failed_worker = synced > 0 && failed_workers(reconciliation).next().is_some();
    (slots.open, slots.done) = (count(expected - done), count(done));
    slots
}

fn count(number: i64) -> usize {
    usize::try_from(number.max(0)).unwrap_or(usize::MAX)
}

/// Workers of the synced epoch whose failure the controller has observed, and the index of their replicatedJob.
///
/// Two kinds of failures are left out: a failure that will fail its Job, because the failure policy decides what follows,
/// and the end of a Pod that the controller has deleted itself.
pub(super) fn failed_workers<'a>(
    reconciliation: &Reconciliation<'a>,
) -> impl Iterator<Item = (&'a FailedWorker, usize)> + use<'a> {
    let (synced, groups) = (reconciliation.status.synced_epoch, reconciliation.groups());
    running_jobs(reconciliation).flat_map(move |(pods, group)| {
        let template = &groups[group].template.spec;
        let keeps_job = move |worker: &&FailedWorker| !(worker.pod_ended && worker.failure.fails_job(template));
        let failed = pods.broken_in(synced).filter(|worker| !placement::is_repair(&worker.failure));
        failed.filter(keeps_job).map(move |worker| (worker, group))
    })
}

/// Workers that exited with 0 only because their Pod was deleted, and the index of their replicatedJob.
///
/// Jobs that are failing are left out: such a Job deletes its Pods itself, and the failure policy decides what follows. A
/// suspension may also complete a Job, so in a completed Job only a disruption proves the loss.
pub(super) fn lost_workers<'a>(
    reconciliation: &Reconciliation<'a>,
) -> impl Iterator<Item = (&'a FailedWorker, usize)> + use<'a> {
    let open = |it: &&Current<'_>| !it.job.failing && !has_failed(it.job);
    let jobs: Vec<Current<'a>> = reconciliation.current.iter().filter(open).copied().collect();
    let pods = jobs.into_iter().filter_map(|it| Some((it, it.pods?)));
    pods.flat_map(|(current, pods)| {
        let is_certain = move |lost: &&FailedWorker| !has_completed(current.job) || lost.failure.disruption.is_some();
        pods.lost().filter(is_certain).map(move |lost| (lost, current.group))
    })
}

/// Whether the Job has completed only because an evicted worker exited with 0. With in-place restart, the group restarts
/// then.
pub(super) fn completed_by_eviction(reconciliation: &Reconciliation<'_>, current: &Current<'_>) -> bool {
    let evicted = |lost: &FailedWorker| lost.failure.disruption.is_some();
    let has_lost = || current.pods.is_some_and(|pods| pods.lost().any(evicted));
    reconciliation.in_place() && reconciliation.status.synced_epoch > 0 && has_completed(current.job) && has_lost()
}

/// The Pods of the Jobs that have not finished, with the index of their replicatedJob.
pub(super) fn running_jobs<'a>(
    reconciliation: &Reconciliation<'a>,
) -> impl Iterator<Item = (&'a JobPods, usize)> + use<'a> {
    let running = reconciliation.current.iter().filter(|current| current.job.finished.is_none());
    running.filter_map(|current| Some((current.pods?, current.group))).collect::<Vec<_>>().into_iter()
}
