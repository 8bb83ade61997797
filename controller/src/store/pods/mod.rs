//! The Pods of all JobSets, counted as they come.
//!
//! A Pod event changes the counts of one slot of one Job, whatever the size of the JobSet, and says whether a rule could
//! decide differently because of it: most events (a probe, a condition) mark nothing. No rule ever walks over Pods.

mod failure;
mod job_pods;
mod member;
mod slot;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Key;

pub use failure::{Exit, PodFailure};
pub(super) use job_pods::Extent;
pub use job_pods::JobPods;
#[cfg(test)]
pub(crate) use job_pods::Kept;
pub use slot::FailedWorker;
pub use view::{Domain, Epoch, PodPhase, PodView};

/// The Pods of one JobSet, by the UID of their Job.
#[derive(Debug, Default)]
pub struct GroupPods {
    jobs: HashMap<Arc<str>, JobPods>,
    /// Job and completion index of each Pod.
    places: HashMap<Box<str>, PodPlace>,
    epochs: ObservedEpochs,
    /// Whether an agent of the Go JobSet has reported.
    report_attempts: bool,
}

/// `status.syncedEpoch` and `status.deprecatedEpoch` of a JobSet, as last seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedEpochs {
    /// The epoch whose workers may run.
    pub synced: i32,
    /// Epochs up to this one are over.
    pub deprecated: i32,
}

#[derive(Clone, Debug)]
struct PodPlace {
    job: Arc<str>,
    index: Option<i32>,
    node: Option<Arc<str>>,
}

impl GroupPods {
    /// The Pods of the Job with this UID.
    pub fn of_job(&self, uid: &str) -> Option<&JobPods> {
        self.jobs.get(uid)
    }

    /// Whether Pods are there whose Job is none of these.
    pub fn has_others_than(&self, is_one: impl Fn(&str) -> bool) -> bool {
        self.jobs.iter().any(|(uid, pods)| !pods.is_empty() && !is_one(uid))
    }

    /// The Pod of this name.
    pub fn find(&self, name: &str) -> Option<&PodView> {
        let place = self.places.get(name)?;
        self.jobs.get(&place.job)?.find(name, place.index)
    }

    /// Whether an agent of the Go JobSet has reported for one of these Pods.
    pub fn report_attempts(&self) -> bool {
        self.report_attempts
    }

    /// The UID of the Job of the Pod of this name.
    pub fn job_of(&self, name: &str) -> Option<&str> {
        self.places.get(name).map(|place| &*place.job)
    }

    fn is_forgettable(&self) -> bool {
        self.places.is_empty() && self.jobs.values().all(JobPods::is_forgettable)
    }

    fn remove(&mut self, name: &str) -> Option<PodPlace> {
        let place = self.places.remove(name)?;
        if let Some(pods) = self.jobs.get_mut(&place.job) {
            pods.remove(name, place.index, self.epochs);
        }
        Some(place)
    }
}

/// All Pods by JobSet. Every method that changes something returns the keys of the JobSets to look at.
#[derive(Debug, Default)]
pub struct Pods {
    groups: HashMap<Key, GroupPods>,
    owner_of: HashMap<Key, Arc<Key>>,
    on_node: HashMap<Arc<str>, HashSet<Key>>,
    /// Pods seen since a listing began; the others are dropped when it ends.
    listed: Option<HashSet<Key>>,
}

impl Pods {
    /// The Pods of one Job of one JobSet, and no others.
    #[cfg(test)]
    pub(crate) fn of_one_job(jobset: Key, job: &str, pods: JobPods, epochs: ObservedEpochs) -> Self {
        let group = GroupPods {
            jobs: HashMap::from([(Arc::from(job), pods)]),
            places: HashMap::new(),
            epochs,
            report_attempts: false,
        };
        Self { groups: HashMap::from([(jobset, group)]), ..Self::default() }
    }

    /// A Pod was seen.
    pub fn apply(&mut self, pod: Key, owner: Key, mut view: PodView) -> Vec<Key> {
        if let Some(listed) = &mut self.listed {
            listed.insert(pod.clone());
        }
        let mut marked = Vec::new();
        let moved = self.owner_of.get(&pod).is_some_and(|before| **before != owner);
        if moved {
            marked.extend(self.delete(&pod));
        }
        view.node = view.node.take().map(|node| self.bind(&pod, node));
        let group = self.groups.entry(owner.clone()).or_default();
        group.report_attempts |= view.reports_attempt;
        let uid = view.job_uid.take().unwrap_or_default();
        let job = group.jobs.get_key_value(uid.as_str()).map_or_else(|| Arc::from(uid), |(job, _)| job.clone());
        let place = PodPlace { job: job.clone(), index: view.index, node: view.node.clone() };
        let before = group.places.insert(view.name.as_str().into(), place);
        if let Some(before) = before.as_ref().filter(|before| before.job != job || before.index != view.index)
            && let Some(pods) = group.jobs.get_mut(&before.job)
        {
            pods.remove(&view.name, before.index, group.epochs);
        }
        let bound = before.is_none_or(|before| before.node != view.node);
        let epochs = group.epochs;
        let changed = group.jobs.entry(job).or_default().see(view, epochs);
        self.owner_of.entry(pod).or_insert_with(|| Arc::new(owner.clone()));
        if changed || bound {
            marked.push(owner);
        }
        marked
    }

    /// A Pod is gone.
    pub fn delete(&mut self, pod: &Key) -> Vec<Key> {
        let Some(owner) = self.owner_of.remove(pod) else { return Vec::new() };
        if let Some(group) = self.groups.get_mut(&*owner) {
            let place = group.remove(&pod.name);
            if let Some(node) = place.and_then(|place| place.node)
                && let Some(pods) = self.on_node.get_mut(&node)
            {
                pods.remove(pod);
                if pods.is_empty() {
                    self.on_node.remove(&node);
                }
            }
        }
        self.forget_if_empty(&owner);
        vec![Key::clone(&owner)]
    }

    /// A listing of all Pods begins.
    pub fn begin_listing(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// The listing has ended: what it did not show is gone.
    pub fn end_listing(&mut self) -> Vec<Key> {
        let Some(listed) = self.listed.take() else { return Vec::new() };
        let gone: Vec<Key> = self.owner_of.keys().filter(|pod| !listed.contains(*pod)).cloned().collect();
        gone.iter().flat_map(|pod| self.delete(pod)).collect()
    }

    /// The Pods of a JobSet.
    pub fn of(&self, jobset: &Key) -> Option<&GroupPods> {
        self.groups.get(jobset)
    }

    /// The Pods on a node, each with its JobSet.
    pub fn on_node(&self, node: &str) -> impl Iterator<Item = (&Key, &Key)> {
        let pods = self.on_node.get(node).into_iter().flatten();
        pods.filter_map(|pod| Some((pod, &**self.owner_of.get(pod)?)))
    }

    /// The epochs of a JobSet, whenever it was seen.
    pub(super) fn set_epochs(&mut self, jobset: &Key, epochs: ObservedEpochs) {
        if epochs.synced == 0 {
            self.forget(jobset);
            return;
        }
        let group = self.groups.entry(jobset.clone()).or_default();
        group.epochs = epochs;
        group.jobs.values_mut().for_each(|job| job.turn(epochs));
    }

    /// Which slots of a Job count, whenever it was seen.
    pub(super) fn set_extent(&mut self, jobset: &Key, job: &str, extent: Extent) {
        let group = self.groups.entry(jobset.clone()).or_default();
        match group.jobs.get_mut(job) {
            Some(pods) => pods.set_extent(Some(extent)),
            None => group.jobs.entry(Arc::from(job)).or_default().set_extent(Some(extent)),
        }
    }

    /// A Job is gone, with all that its slots remember.
    pub(super) fn forget_job(&mut self, jobset: &Key, job: &str) {
        if let Some(group) = self.groups.get_mut(jobset)
            && let Some(pods) = group.jobs.get_mut(job)
        {
            pods.set_extent(None);
            if pods.is_empty() {
                group.jobs.remove(job);
            }
        }
        self.forget_if_empty(jobset);
    }

    /// A JobSet is gone.
    pub(super) fn forget(&mut self, jobset: &Key) {
        if let Some(group) = self.groups.get_mut(jobset) {
            group.epochs = ObservedEpochs::default();
        }
        self.forget_if_empty(jobset);
    }

    fn forget_if_empty(&mut self, jobset: &Key) {
        if self
            .groups
            .get(jobset)
            .is_some_and(|group| group.is_forgettable() && group.epochs == ObservedEpochs::default())
        {
            self.groups.remove(jobset);
        }
    }

    /// One allocation for each node, however many Pods are on it.
    fn bind(&mut self, pod: &Key, node: Arc<str>) -> Arc<str> {
        let known = self.on_node.get_key_value(&node).map_or(node, |(known, _)| known.clone());
        self.on_node.entry(known.clone()).or_default().insert(pod.clone());
        known
    }
}
