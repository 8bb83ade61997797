//! The slots of the group, summed up from the counts of its Jobs.
//!
//! A slot is one completion index of one Job of the current attempt. A Job that the failure policy leaves failed (action
//! FailJob) has no slots: the group does not wait for it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use jobset_api::ReplicatedJob;
use jobset_store::Ranges;
use jobset_store::members::{Members, newcomers};
use jobset_store::pods::{FailedWorker, JobPods, PodFailure, PodView};

use crate::job_end;
use crate::reconciliation::{Current, Reconciliation, has_completed, has_failed};

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
    /// Open slots of newcomers: the synced epoch began without them ([`jobset_store::members`]).
    pub newcomers: usize,
    /// Newcomers whose Pod reports the next epoch. They are in `reports`, too.
    pub arrived: usize,
    /// Members by the epoch that their Pod reports, if the worker may still be in an earlier epoch. Such a report can begin
    /// a restart, but does not fill the slot.
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
    /// Open slots of members.
    pub(super) fn members(&self) -> usize {
        self.open.saturating_sub(self.newcomers)
    }

    /// Open slots whose Pod reports this epoch.
    pub(super) fn at(&self, epoch: i32) -> usize {
        self.reports.get(&epoch).copied().unwrap_or(0)
    }

    /// Members whose Pod reports this epoch, the next one.
    pub(super) fn members_at(&self, next: i32) -> usize {
        self.at(next).saturating_sub(self.arrived)
    }

    /// Slots that the next epoch waits for: members, or all where there are none.
    pub(super) fn missing(&self, next: i32) -> usize {
        match self.members() {
            0 => self.open.saturating_sub(self.at(next)),
            members => members.saturating_sub(self.members_at(next)),
        }
    }

    /// Whether a member has failed: the controller has observed it, or its agent reports the next epoch.
    pub(super) fn has_failed(&self, next: i32) -> bool {
        self.has_failed_worker || self.members_at(next) > 0 || self.suspects.contains_key(&next)
    }

    /// Whether there are newcomers, and all of them have reported the next epoch.
    pub(super) fn all_have_arrived(&self) -> bool {
        self.newcomers > 0 && self.arrived == self.newcomers
    }

    /// Whether the workers of all members run in the synced epoch.
    pub(super) fn all_run(&self) -> bool {
        self.running + self.mute >= self.members()
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
    let present = |index: usize| i32::try_from(reconciliation.jobs_of(index).len()).unwrap_or(i32::MAX);
    let groups = reconciliation.groups().iter().enumerate();
    // The slots of a Job that does not exist yet are open.
    for (index, group) in groups.filter(|(index, group)| present(*index) < group.replicas()) {
        let pods = group.template.spec.pods().max(0);
        let created: BTreeSet<i32> = reconciliation.jobs_of(index).filter_map(|current| current.job.index).collect();
        let missing = i64::from(group.replicas()).saturating_sub(i64::try_from(created.len()).unwrap_or(i64::MAX));
        let open = missing.saturating_mul(pods.into());
        let members = reconciliation.members(index);
        let of_created: i64 = created.iter().map(|job| members.of_job(*job).count_below(pods.into())).sum();
        let of_missing = members.count_within(group.replicas(), pods).saturating_sub(of_created);
        slots.open = slots.open.saturating_add(count(open));
        slots.newcomers = slots.newcomers.saturating_add(count(open.saturating_sub(of_missing)));
    }
    if reconciliation.status.synced_epoch == 0 {
        // The first epoch begins without members.
        slots.newcomers = slots.open;
        slots.arrived = slots.at(1);
    }
    slots
}

/// Which Pods are recorded as members, of those within the specified size.
#[derive(Clone, Copy)]
enum Record {
    All,
    /// The members, and the newcomers that report this epoch.
    MembersAndNewcomersAt(i32),
    Members,
    PodsOfJobs,
}

/// Records the Pods that begin the next epoch as the members: all members, and the newcomers that have reported it.
pub(super) fn record(reconciliation: &mut Reconciliation<'_>, slots: &Slots) {
    let next = reconciliation.next_epoch();
    let all = slots.arrived == slots.newcomers;
    record_those(reconciliation, if all { Record::All } else { Record::MembersAndNewcomersAt(next) });
}

/// Records newcomers that have begun the synced epoch with the members: they reported it too late to be waited for.
pub(super) fn join(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let synced = reconciliation.status.synced_epoch;
    let has_joined = |job: &Current<'_>| job.pods.is_some_and(|pods| !pods.newcomers_at(synced).is_empty());
    let is_over = reconciliation.status.deprecated_epoch == synced;
    if is_over || !reconciliation.current.iter().any(has_joined) {
        return ControlFlow::Continue(());
    }
    let changed = record_those(reconciliation, Record::MembersAndNewcomersAt(synced));
    // A Pod outside of the specified size cannot be recorded, and must not hold up the other rules.
    if changed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Records the members of an epoch whose members are not recorded: it began before the controller recorded members, or the
/// Go JobSet has begun it. The Pods that the Jobs have now are the members.
pub(super) fn adopt(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let recorded = reconciliation.status.replicated_jobs_status.iter().all(|status| status.synced_pods.is_some());
    if reconciliation.status.synced_epoch == 0 || recorded {
        return ControlFlow::Continue(());
    }
    record_those(reconciliation, Record::PodsOfJobs);
    ControlFlow::Break(())
}

/// Takes Pods outside of the specified size off the record. Returns whether there were any: the record has to be stored before
/// they go.
pub(super) fn leave(reconciliation: &mut Reconciliation<'_>) -> bool {
    let groups = reconciliation.groups().iter();
    let exceeds = |(index, group): (usize, &ReplicatedJob)| {
        reconciliation.members(index).exceed(group.replicas(), group.template.spec.pods())
    };
    let leave = reconciliation.in_place() && groups.enumerate().any(exceeds);
    if leave {
        record_those(reconciliation, Record::Members);
    }
    leave
}

/// Forgets the members: the next epoch begins when all Pods have reported it. Returns whether there were any.
pub(super) fn forget(reconciliation: &mut Reconciliation<'_>) -> bool {
    if !reconciliation.in_place() || reconciliation.status.synced_epoch == 0 {
        return false;
    }
    let mut forgotten = false;
    for status in &mut reconciliation.status.replicated_jobs_status {
        forgotten |= status.synced_pods.replace(String::new()).is_none_or(|pods| !pods.is_empty());
    }
    forgotten
}

/// Records members. A Job that does not exist has the members that it had. Returns whether the record changes.
fn record_those(reconciliation: &mut Reconciliation<'_>, record: Record) -> bool {
    let mut changed = false;
    for (index, group) in reconciliation.groups().iter().enumerate() {
        let (replicas, parallelism) = (group.replicas(), group.template.spec.pods());
        let members = || reconciliation.members(index).resized(replicas, parallelism);
        let pods = match record {
            Record::All => Members::All.resized(replicas, parallelism),
            Record::Members => members(),
            Record::MembersAndNewcomersAt(epoch) => {
                members().union(&of_jobs(reconciliation, index, |job| newcomers_at(job, epoch)))
            }
            Record::PodsOfJobs => of_jobs(reconciliation, index, |job| vec![(0, i64::from(job.job.pods) - 1)]),
        };
        let pods = pods.to_string();
        if let Some(status) = reconciliation.status.replicated_jobs_status.get_mut(index) {
            changed |= status.synced_pods.as_deref() != Some(&*pods) || status.synced_parallelism != parallelism;
            (status.synced_pods, status.synced_parallelism) = (Some(pods), parallelism);
        }
    }
    changed
}

/// The numbers of some Pods of the Jobs of a replicatedJob, within its size. `indexes` are ranges of completion indexes.
fn of_jobs(
    reconciliation: &Reconciliation<'_>,
    group: usize,
    indexes: impl Fn(&Current<'_>) -> Vec<(i64, i64)>,
) -> Ranges {
    let parallelism = i64::from(reconciliation.groups()[group].template.spec.pods());
    let jobs: BTreeMap<i32, &Current<'_>> =
        reconciliation.jobs_of(group).filter_map(|current| Some((current.job.index?, current))).collect();
    let of_job = |(job, current): (i32, &Current<'_>)| {
        let begin = i64::from(job) * parallelism;
        let within = move |(first, last): (i64, i64)| (begin + first, begin + last.min(parallelism - 1));
        indexes(current).into_iter().map(within)
    };
    jobs.into_iter().flat_map(of_job).collect()
}

fn newcomers_at(job: &Current<'_>, epoch: i32) -> Vec<(i64, i64)> {
    let indexes = job.pods.map(|pods| pods.newcomers_at(epoch)).into_iter().flatten();
    indexes.map(|index| (i64::from(*index), i64::from(*index))).collect()
}

/// The slots of the Jobs that exist.
pub(super) fn created_slots(reconciliation: &Reconciliation<'_>) -> Slots {
    let synced = reconciliation.status.synced_epoch;
    let mut slots = Slots::default();
    let (mut expected, mut done) = (0_i64, 0_i64);
    let groups = reconciliation.groups().iter().enumerate();
    // The members of the replicatedJobs that have newcomers.
    let growing: Vec<Option<Members>> = groups
        .map(|(index, group)| {
            let members = reconciliation.members(index);
            (!members.cover(group.replicas(), group.template.spec.pods())).then_some(members)
        })
        .collect();
    for current in &reconciliation.current {
        let job = current.job;
        let group = &reconciliation.groups()[current.group];
        if has_failed(job) {
            continue;
        }
        // While a Job is resized, the group waits for its present slots and for its future slots.
        let resizes = reconciliation.settings.gates.elastic_job_set && !current.is_over();
        let specified = if resizes { group.template.spec.pods() } else { 0 };
        let size = job.pods.max(specified);
        expected += i64::from(size);
        done += if current.has_succeeded() { job.pods.into() } else { job.done_count() };
        if !current.is_over() {
            let of_job = growing[current.group].as_ref().map(|members| members.of_job(job.index.unwrap_or(-1)));
            let beyond = i64::from(size).saturating_sub(group.template.spec.pods().into());
            let newcomers = of_job.map_or(beyond, |members| newcomers(&members, size, &job.completed));
            slots.newcomers = slots.newcomers.saturating_add(count(newcomers));
        }
        let Some(pods) = current.pods.filter(|_| !current.is_over()) else { continue };
        slots.arrived += pods.newcomers_at(reconciliation.next_epoch()).len();
        done += i64::try_from(pods.succeeded()).unwrap_or(i64::MAX);
        let valid = 1..=reconciliation.next_epoch().max(1);
        for (epoch, count) in pods.reports().range(valid.clone()) {
            *slots.reports.entry(*epoch).or_default() += count;
        }
        for (epoch, count) in pods.suspect_members().range(valid) {
            *slots.suspects.entry(*epoch).or_default() += count;
        }
        slots.running += pods.running_in(synced);
        slots.mute += pods.mute() + pods.reports().range(..1).map(|(_, count)| count).sum::<usize>();
    }
    slots.has_failed_worker = synced > 0 && !failed_workers(reconciliation).is_empty();
    (slots.open, slots.done) = (count(expected - done), count(done));
    slots
}

fn count(number: i64) -> usize {
    usize::try_from(number.max(0)).unwrap_or(usize::MAX)
}

/// Members whose failure in the synced epoch the controller has observed, and the index of their replicatedJob.
///
/// A failure that will fail its Job is left out, because the failure policy decides what follows. So is a Pod that its Job may have
/// deleted: such a Job is about to end, or to become smaller.
pub(super) fn failed_workers<'a>(reconciliation: &Reconciliation<'a>) -> Vec<(&'a FailedWorker, usize)> {
    let synced = reconciliation.status.synced_epoch;
    let mut failed = Vec::new();
    for current in reconciliation.current.iter().filter(|current| !current.is_over()) {
        let Some(pods) = current.pods else { continue };
        let template = &reconciliation.groups()[current.group].template.spec;
        let fails_job = |failure: &PodFailure| matches!(failure.first_action(template), Some("FailJob" | "FailIndex"));
        let keeps_job = |worker: &&FailedWorker| !(worker.pod_ended && fails_job(&worker.failure));
        let is_outside = |worker: &FailedWorker| worker.index.is_some_and(|index| index >= template.pods());
        let mut workers: Vec<&FailedWorker> = pods.broken_in(synced).filter(keeps_job).collect();
        if workers.iter().any(|worker| worker.deleted) {
            let deletes = job_end::deletes_pods(reconciliation, current);
            workers.retain(|worker| !(worker.deleted && (deletes || is_outside(worker))));
        }
        failed.extend(workers.into_iter().map(|worker| (worker, current.group)));
    }
    failed
}

/// The workers of the epoch that runs whose Pods are being disrupted and which have not ended, each with the index of its
/// replicatedJob.
pub(super) fn disrupted_workers(reconciliation: &Reconciliation<'_>) -> Vec<(FailedWorker, usize)> {
    let synced = reconciliation.status.synced_epoch;
    let current = reconciliation.current.iter().filter(|current| !current.is_over());
    let pods = current.flat_map(|current| current.pods.into_iter().map(|pods| (pods, current.group)));
    let disrupted = pods.flat_map(|(pods, group)| pods.disrupted_in(synced).map(move |pod| (pod, group)));
    disrupted.map(|(pod, group)| (FailedWorker::of(pod, synced), group)).collect()
}

/// Workers that exited with 0 only because their Pod was deleted, whether each is a member of the group, and the index of their
/// replicatedJob.
///
/// Jobs that are failing are left out: such a Job deletes its Pods itself, and the failure policy decides what follows. A Job that
/// is about to complete deletes them, too, and a suspension may complete a Job: there only a disruption proves the loss.
pub(super) fn lost_workers<'a>(
    reconciliation: &Reconciliation<'a>,
) -> impl Iterator<Item = (&'a FailedWorker, bool, usize)> + use<'a> {
    let open = |it: &&Current<'_>| !it.job.failing && !has_failed(it.job);
    let jobs: Vec<Current<'a>> = reconciliation.current.iter().filter(open).copied().collect();
    let pods = jobs.into_iter().filter_map(|it| Some((it, it.pods?)));
    pods.flat_map(|(current, pods)| {
        let is_certain =
            move |(lost, _): &(&FailedWorker, bool)| !current.has_succeeded() || lost.failure.disruption.is_some();
        pods.lost().filter(is_certain).map(move |(lost, is_member)| (lost, is_member, current.group))
    })
}

/// Whether the Job has completed only because an evicted worker exited with 0. With in-place restart, the group restarts
/// then.
pub(super) fn completed_by_eviction(reconciliation: &Reconciliation<'_>, current: &Current<'_>) -> bool {
    let evicted = |(lost, _): (&FailedWorker, bool)| lost.failure.disruption.is_some();
    let has_lost = || current.pods.is_some_and(|pods| pods.lost().any(evicted));
    reconciliation.in_place() && reconciliation.status.synced_epoch > 0 && has_completed(current.job) && has_lost()
}

/// A Pod outside of the specified size that can still start a worker in the next epoch, if there is one: of a Job that is too
/// many, that is being deleted, of an earlier attempt or gone, or of an index beyond the size of its Job.
///
/// Agents only look at the epoch of the JobSet, so the barrier must stay closed until such a Pod has ended or is being deleted.
/// The agent of a Pod on a node that nobody reaches cannot observe the epoch either.
pub(super) fn leaving<'a>(reconciliation: &Reconciliation<'a>) -> Option<&'a PodView> {
    let observed = reconciliation.observed;
    let next = reconciliation.next_epoch();
    let is_elastic = reconciliation.settings.gates.elastic_job_set;
    // Without the feature gate ElasticJobSet, Jobs keep their size, and stay.
    let kept = reconciliation.surplus.iter().filter(|_| !is_elastic);
    let size_of = |current: &Current<'_>| match current.job.finished {
        None if is_elastic => reconciliation.groups()[current.group].template.spec.pods(),
        _ => i32::MAX,
    };
    let sizes = reconciliation.current.iter().chain(kept).map(|it| (it.job.uid.as_str(), size_of(it)));
    let sizes: HashMap<&str, i32> = sizes.collect();
    let own: HashSet<&str> = observed.jobs().map(|(_, job)| job.uid.as_str()).collect();
    let foreign: HashSet<&str> = observed.foreign_jobs().map(|(_, job)| job.uid.as_str()).collect();
    let of_job = move |(job, pods): (&'a str, &'a JobPods)| {
        let is_known = own.contains(job);
        let pods = pods.startable_beyond(sizes.get(job).copied().unwrap_or(0), next);
        // A Pod whose Job is gone may belong to an earlier JobSet of this name, whose epochs are others.
        pods.filter(move |pod| is_known || pod.epoch.number() == Some(next))
    };
    let is_unreachable = |pod: &PodView| observed.node_of(pod).is_some_and(|node| node.unreachable_since.is_some());
    let jobs = observed.pods().jobs().filter(move |(job, _)| !foreign.contains(job));
    jobs.flat_map(of_job).filter(|pod| !is_unreachable(pod)).min_by(|a, b| a.name.cmp(&b.name))
}
