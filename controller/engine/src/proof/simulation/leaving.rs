//! Pods outside of the specified size: they live on for a while, restart in place with the others, and must not come back.

use std::collections::{BTreeMap, BTreeSet};

use jobset_api::{JobSet, JobSetStatus};
use jobset_store::{JobView, Observed};

use super::cluster::SimulatedCluster;
use super::machine::{SimulatedMachine, is_going};
use super::scenario::key;
use super::slots::is_current;
use crate::proof::{CheckResult, Property, ensure};

/// For how long Pods live on that a Job loses, in milliseconds.
const KEEPS: [i64; 6] = [0, 0, 500, 2_000, 5_000, 15_000];

impl SimulatedCluster {
    /// A Job is about to lose Pods. They live on until its controller gets to it.
    pub(super) fn keep_leaving(&mut self, job: &str) {
        let until = self.clock + KEEPS[self.extra.usize(..KEEPS.len())];
        if let Some(found) = self.api.jobs.get_mut(job) {
            found.keeps_until = found.keeps_until.max(until);
        }
    }

    pub(super) fn any_is_kept(&self) -> bool {
        self.api.jobs.values().any(|found| found.keeps_until > self.clock)
    }

    /// Whether the Job of the Pod is to lose it, and has not asked it to go yet.
    pub(super) fn leaves(&self, pod: &str) -> bool {
        let Some((pod, job)) = self.api.pods.get(pod).and_then(|pod| Some((pod, self.api.jobs.get(&pod.job)?))) else {
            return false;
        };
        let size = job.job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(1);
        !is_going(pod) && (job.job.metadata.deletion_timestamp.is_some() || pod.index >= size)
    }

    /// The observed Pods that are outside of the specified size: of indexes or Jobs beyond it, and of Jobs that are being
    /// deleted or belong to an earlier attempt.
    ///
    /// Without those that are being deleted and have not reported the epoch. Their containers may run for a whole grace period,
    /// asked to end, and nothing shows whether a kubelet has asked yet; a group that waited for them would stand still meanwhile.
    pub(super) fn leaving(&self, base: &JobSet, decided: &JobSetStatus) -> BTreeSet<String> {
        let Some(seen) = Observed::of(&self.controller.engine.store, key()) else { return BTreeSet::new() };
        let jobs: BTreeMap<&str, &JobView> = seen.jobs().map(|(_, job)| (job.uid.as_str(), job)).collect();
        let stays = |job: &JobView, index: Option<i32>| {
            let group = base.spec.replicated_jobs.iter().find(|group| group.name == job.replicated_job);
            let has = |size: i32, index: Option<i32>| index.is_some_and(|index| (0..size).contains(&index));
            let is_specified =
                group.is_some_and(|group| has(group.replicas(), job.index) && has(group.template.spec.pods(), index));
            is_specified && !job.deleting && is_current(decided, job)
        };
        let pods = seen.pods().on_nodes(|_| true).into_iter();
        let leaving = pods.filter(|(uid, pod)| jobs.get(uid).is_some_and(|job| !stays(job, pod.index)));
        let leaving =
            leaving.filter(|(_, pod)| pod.deleted_at.is_none() || pod.epoch.number() == Some(decided.synced_epoch));
        leaving.map(|(_, pod)| pod.name.clone()).collect()
    }

    /// None of these Pods could start its worker in the epoch that begins.
    pub(super) fn check_leaving(&self, leaving: &BTreeSet<String>, epoch: i32) -> CheckResult {
        let starts = |machine: &&SimulatedMachine| {
            let waits = machine.agent.as_ref().is_some_and(|agent| agent.entered == Some(epoch) && !agent.is_lifted());
            let pod = self.api.pods.get(&machine.pod);
            // A kubelet that is asked to stop a Pod starts no container of it. A supervisor starts its worker itself.
            waits && !machine.lost && pod.is_some_and(|pod| !is_going(pod) || machine.supervised)
        };
        let found = leaving.iter().filter_map(|pod| self.machine_of(pod)).find(starts);
        ensure(found.is_none(), Property::LeavingStayOut, || {
            let pod = found.map(|machine| machine.pod.as_str());
            format!(
                "epoch {epoch} begins, and {pod:?}, which is outside of the specified size, starts its worker in it"
            )
        })
    }
}
