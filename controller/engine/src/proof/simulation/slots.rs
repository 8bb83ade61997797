//! The Jobs and Pods that the specification asks for, and which of them the group has had.

use std::collections::BTreeSet;

use jobset_api::{FailurePolicyAction, JobSet, JobSetStatus, ReplicatedJob, names};
use jobset_store::JobView;
use jobset_store::members::Members;

use super::api::JobObject;
use super::cluster::SimulatedCluster;
use super::extremes::{MOST_JOBS, MOST_PODS, places};
use super::jobs::finished;
use super::machine::SimulatedMachine;
use super::scenario::JOBSET;
use super::truth::{JobFailure, SlotId};

/// Name of a Job and completion index.
pub(super) type Place = (String, i32);

/// A Pod of the specified size in a Job of the current attempt.
pub(super) struct SpecifiedSlot<'a> {
    job: &'a JobObject,
    pub place: Place,
    pub id: SlotId,
}

impl SpecifiedSlot<'_> {
    /// Whether its Job counts its index as completed.
    pub(super) fn is_completed(&self) -> bool {
        self.job.completed.contains(&self.id.1)
    }
}

impl SimulatedCluster {
    /// The name and the Job of each place of the current attempt, if it exists.
    pub(super) fn wanted_jobs<'a>(
        &'a self,
        status: &'a JobSetStatus,
    ) -> impl Iterator<Item = (String, Option<&'a JobObject>)> {
        self.api.jobset.spec.replicated_jobs.iter().flat_map(|group| self.wanted_jobs_of(group, status))
    }

    fn wanted_jobs_of<'a>(
        &'a self,
        group: &'a ReplicatedJob,
        status: &'a JobSetStatus,
    ) -> impl Iterator<Item = (String, Option<&'a JobObject>)> {
        places(group.replicas(), MOST_JOBS).map(move |index| {
            let name = names::job(JOBSET, &group.name, index);
            let found = self.api.jobs.get(&name).filter(|found| found.job.metadata.deletion_timestamp.is_none());
            (name, found.filter(|found| is_current(status, &JobView::of(&found.job))))
        })
    }

    /// The names of the Jobs with Pods that do not exist.
    pub(super) fn missing_jobs(&self, status: &JobSetStatus) -> BTreeSet<String> {
        let groups = self.api.jobset.spec.replicated_jobs.iter().filter(|group| group.template.spec.pods() > 0);
        let wanted = groups.flat_map(|group| self.wanted_jobs_of(group, status));
        wanted.filter(|(_, job)| job.is_none()).map(|(name, _)| name).collect()
    }

    fn slots<'a>(&'a self, status: &'a JobSetStatus) -> impl Iterator<Item = SpecifiedSlot<'a>> {
        let groups = &self.api.jobset.spec.replicated_jobs;
        self.wanted_jobs(status).filter_map(|(name, job)| Some((name, job?))).flat_map(move |(name, job)| {
            let view = JobView::of(&job.job);
            let group = groups.iter().find(|group| group.name == view.replicated_job);
            let pods = group.map_or(0, |group| group.template.spec.pods());
            places(pods, MOST_PODS).map(move |index| SpecifiedSlot {
                job,
                place: (name.clone(), index),
                id: (view.uid.clone(), index),
            })
        })
    }

    /// The specified slots whose Jobs have not ended.
    pub(super) fn open_slots<'a>(&'a self, status: &'a JobSetStatus) -> impl Iterator<Item = SpecifiedSlot<'a>> {
        self.slots(status).filter(|slot| finished(&slot.job.job).is_none())
    }

    /// Whether the slot has reported the epoch or is done.
    pub(super) fn has_arrived(&self, slot: &SpecifiedSlot<'_>, epoch: i32) -> bool {
        let ended_well = |it: &SimulatedMachine| it.is_of(&slot.id) && it.ended == Some(true);
        let is_done = slot.is_completed() || self.machines.values().any(ended_well);
        is_done || self.truth.has_reported(&slot.id, epoch)
    }

    /// The specified slots that have reported this epoch or are done: the epoch begins with them.
    pub(super) fn present(&self, status: &JobSetStatus) -> BTreeSet<Place> {
        let slots = self.slots(status);
        let present = slots.filter(|it| finished(&it.job.job).is_some() || self.has_arrived(it, status.synced_epoch));
        present.map(|slot| slot.place).collect()
    }

    /// The specified slots that take part in this epoch, or are done. The Pod that has reported it may be gone since.
    pub(super) fn participants(&self, status: &JobSetStatus) -> BTreeSet<Place> {
        let epoch = Some(status.synced_epoch);
        let takes_part = |slot: &SpecifiedSlot<'_>| {
            self.machines.values().any(|it| it.is_of(&slot.id) && (it.epoch == epoch || it.has_done_its_work()))
        };
        // A Job that has finished without Pods, or with fewer, does not take part with those that are specified since.
        let has_place = |slot: &SpecifiedSlot<'_>| {
            slot.job.job.spec.as_ref().and_then(|spec| spec.completions).is_none_or(|pods| slot.place.1 < pods)
        };
        // Nor does one that is left failed: it has no slots, unless it failed after the epoch had begun.
        let has_ended = |slot: &SpecifiedSlot<'_>| finished(&slot.job.job) == Some(true) && has_place(slot);
        let is_done = |slot: &SpecifiedSlot<'_>| has_ended(slot) || slot.is_completed();
        self.slots(status).filter(|slot| is_done(slot) || takes_part(slot)).map(|slot| slot.place).collect()
    }

    /// Whether a Pod in this place finds a node although the cluster is full: the group has had one there.
    pub(super) fn has_place(&self, job: &str, index: i32) -> bool {
        self.truth.present.contains(&(job.to_owned(), index)) || self.is_recorded(job, index)
    }

    /// Whether this Pod is a member of the present epoch.
    pub(super) fn is_recorded(&self, job: &str, index: i32) -> bool {
        self.recorded(&self.api.status()).contains(&(job.to_owned(), index))
    }

    /// The Pods that the status records as those that the epoch began with.
    pub(super) fn recorded(&self, status: &JobSetStatus) -> BTreeSet<Place> {
        let mut recorded = BTreeSet::new();
        for group in &self.api.jobset.spec.replicated_jobs {
            let members = Members::of(status.replicated_job(&group.name));
            for job in places(group.replicas(), MOST_JOBS) {
                let (name, members) = (names::job(JOBSET, &group.name, job), members.of_job(job));
                let indexes = places(group.template.spec.pods(), MOST_PODS).filter(|index| members.contains(*index));
                recorded.extend(indexes.map(|index| (name.clone(), index)));
            }
        }
        recorded
    }

    /// Whether Pods have joined the specification, and all of them have reported the epoch after this one.
    pub(super) fn newcomers_have_arrived(&self, status: &JobSetStatus, is_awaited: impl Fn(&SlotId) -> bool) -> bool {
        let (next, members) = (status.synced_epoch + 1, self.recorded(status));
        let open = self.open_slots(status).filter(|slot| !members.contains(&slot.place));
        let mut newcomers = open.filter(|slot| is_awaited(&slot.id)).peekable();
        newcomers.peek().is_some() && newcomers.all(|slot| self.truth.has_reported(&slot.id, next))
    }

    /// Jobs of the current attempt that have failed, each with the action of the failure policy.
    pub(super) fn failed_jobs<'a>(
        &'a self,
        status: &'a JobSetStatus,
    ) -> impl Iterator<Item = (&'a JobFailure, Option<FailurePolicyAction>)> {
        let failed = self.truth.failed_jobs.iter().filter(|job| is_current(status, &job.view));
        failed.map(|job| (job, self.scenario.action(&job.view.replicated_job, &job.reason)))
    }

    pub(super) fn any_is_done(&self) -> bool {
        self.api.jobs.values().any(|job| !job.completed.is_empty() || finished(&job.job).is_some())
            || self.machines.values().any(SimulatedMachine::has_done_its_work)
    }
}

/// Whether the specification has this Pod of this Job.
pub(super) fn is_specified(jobset: &JobSet, job: &str, pod: i32) -> bool {
    jobset.spec.replicated_jobs.iter().any(|group| {
        let mut jobs = places(group.replicas(), MOST_JOBS).map(|index| names::job(JOBSET, &group.name, index));
        places(group.template.spec.pods(), MOST_PODS).any(|index| index == pod) && jobs.any(|name| name == job)
    })
}

/// Repeats the rule on purpose: the rule that is proved does not prove itself.
pub(super) fn is_current(status: &JobSetStatus, job: &JobView) -> bool {
    let attempt = status.job_attempt(&job.replicated_job, job.index.unwrap_or(-1));
    job.attempt.is_some_and(|of_set| of_set >= status.restarts) && job.job_attempt >= attempt
}
