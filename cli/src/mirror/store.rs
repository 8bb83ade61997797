//! Keeps the current objects of each JobSet.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use jobset_api::{JobSet, dialect, labels};
use jobset_objects::{PartialJob, PartialPod};
use k8s_openapi::api::events::v1::Event;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use tokio::time::Instant;

use super::shelf::Shelf;
use super::trim::{trimmed_job, trimmed_jobset, trimmed_pod};
use super::{JobSetKey, ObjectKind, WatchEvent};
use crate::explain::Facts;
use crate::leader::Leader;
use crate::restarts::{self, RestartEvent, RestartReport};
use crate::status::{self, JobSetTree};

/// A watch that has not failed again for this long works. It tells nothing when it is connected again, and retries at the latest
/// after 60 seconds, of which the connection may take 10 more.
const FORGOTTEN: Duration = Duration::from_secs(90);

/// The current objects of JobSets, by the watches.
#[derive(Debug, Default)]
pub struct Mirror {
    jobsets: BTreeMap<JobSetKey, ObservedJobSet>,
    listings: BTreeMap<ObjectKind, Listing>,
    /// The last failure of each watch, and when it was.
    problems: BTreeMap<ObjectKind, (String, Instant)>,
    changed: BTreeSet<JobSetKey>,
}

/// A JobSet and what belongs to it. The JobSet is absent before it is observed, and after it was deleted.
#[derive(Debug, Default)]
pub struct ObservedJobSet {
    jobset: Option<JobSet>,
    jobs: Shelf<PartialJob>,
    pods: Shelf<PartialPod>,
    events: BTreeMap<String, ObservedEvent>,
}

/// An Event about a restart.
#[derive(Clone, Debug)]
struct ObservedEvent {
    /// UID of the JobSet that it is about.
    uid: Option<String>,
    restart: RestartEvent,
}

/// The list that a watch starts with, and starts again with when it has lost its place.
#[derive(Debug, Default)]
struct Listing {
    /// Whether a whole list has been observed.
    complete: bool,
    /// The names of the objects of the list that is being observed.
    listed: BTreeMap<JobSetKey, HashSet<String>>,
}

impl Mirror {
    /// Takes in what a watch has observed.
    pub fn apply(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::JobSet(event) => self.take(ObjectKind::JobSet, event),
            WatchEvent::Job(event) => self.take(ObjectKind::Job, event),
            WatchEvent::Pod(event) => self.take(ObjectKind::Pod, event),
            WatchEvent::Event(event) => self.take(ObjectKind::Event, event),
            WatchEvent::Failed(kind, error, at) => {
                self.problems.insert(kind, (error.to_string(), at));
            }
        }
    }

    /// Whether all JobSets, Jobs and Pods have been listed once.
    pub fn is_complete(&self) -> bool {
        let is_complete = |kind| self.listings.get(&kind).is_some_and(|listing| listing.complete);
        [ObjectKind::JobSet, ObjectKind::Job, ObjectKind::Pod].into_iter().all(is_complete)
    }

    /// What the watches cannot observe now, in sentences.
    pub fn problems(&self, now: Instant) -> impl Iterator<Item = &str> {
        let lasts = move |at: Instant| now.saturating_duration_since(at) < FORGOTTEN;
        self.problems.values().filter(move |(_, at)| lasts(*at)).map(|(text, _)| text.as_str())
    }

    /// The JobSets that have changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<JobSetKey> {
        std::mem::take(&mut self.changed)
    }

    /// A JobSet that exists.
    pub fn jobset(&self, key: &JobSetKey) -> Option<&ObservedJobSet> {
        self.jobsets.get(key).filter(|observed| observed.jobset.is_some())
    }

    /// Gives the objects of a JobSet as facts to a function, which returns them unchanged. Facts own thousands of Pods, which
    /// are not copied for that.
    pub fn with_facts<R>(&mut self, key: &JobSetKey, around: Facts, read: impl FnOnce(&Facts) -> R) -> Option<R> {
        let observed = self.jobsets.get_mut(key)?;
        let jobset = observed.jobset.clone()?;
        let ObservedJobSet { jobs, pods, .. } = observed;
        Some(jobs.lend(|jobs| {
            pods.lend(|pods| {
                let facts = Facts { jobset, jobs, pods, ..around };
                let result = read(&facts);
                ((result, facts.jobs), facts.pods)
            })
        }))
    }

    fn take<K: Mirrored>(&mut self, kind: ObjectKind, event: watcher::Event<K>) {
        self.problems.remove(&kind);
        match event {
            watcher::Event::Init => self.listings.entry(kind).or_default().listed.clear(),
            watcher::Event::InitApply(object) => {
                if let Some(key) = object.jobset_key() {
                    self.listings.entry(kind).or_default().listed.entry(key).or_default().insert(object.name_any());
                }
                self.put(object);
            }
            watcher::Event::Apply(object) => self.put(object),
            watcher::Event::Delete(object) => {
                let Some(key) = object.jobset_key() else { return };
                let Some(observed) = self.jobsets.get_mut(&key) else { return };
                K::remove(observed, &object.name_any());
                self.touch(key);
            }
            watcher::Event::InitDone => {
                let listing = self.listings.entry(kind).or_default();
                listing.complete = true;
                let listed = std::mem::take(&mut listing.listed);
                let mut changed = Vec::new();
                for (key, observed) in &mut self.jobsets {
                    let names = listed.get(key);
                    let is_listed = |name: &str| names.is_some_and(|names| names.contains(name));
                    if K::retain(observed, &is_listed) {
                        changed.push(key.clone());
                    }
                }
                for key in changed {
                    self.touch(key);
                }
            }
        }
    }

    fn put<K: Mirrored>(&mut self, object: K) {
        let Some(key) = object.jobset_key() else { return };
        object.put(self.jobsets.entry(key.clone()).or_default());
        self.touch(key);
    }

    /// Marks a JobSet as changed, and forgets it with its last object.
    fn touch(&mut self, key: JobSetKey) {
        if self.jobsets.get(&key).is_some_and(ObservedJobSet::is_empty) {
            self.jobsets.remove(&key);
        }
        self.changed.insert(key);
    }
}

impl ObservedJobSet {
    /// UID of the JobSet.
    pub fn uid(&self) -> Option<&str> {
        self.jobset.as_ref()?.metadata.uid.as_deref()
    }

    /// The report of `status`; none if the JobSet does not exist.
    pub fn tree(&self, leader: Option<Leader>) -> Option<JobSetTree> {
        let jobset = self.jobset.as_ref()?;
        Some(status::report(jobset, self.jobs.objects(), self.pods.objects(), leader))
    }

    /// The report of `restarts`; none if the JobSet does not exist.
    pub fn restarts(&self) -> Option<RestartReport> {
        let jobset = self.jobset.as_ref()?;
        let own = self.events.values().filter(|event| event.uid.as_deref() == self.uid());
        Some(restarts::report(jobset, own.map(|event| event.restart.clone()).collect()))
    }

    /// The JobSet itself, if it exists.
    pub fn jobset(&self) -> Option<&JobSet> {
        self.jobset.as_ref()
    }

    pub fn pod(&self, name: &str) -> Option<&PartialPod> {
        self.pods.get(name)
    }

    fn is_empty(&self) -> bool {
        self.jobset.is_none() && self.jobs.is_empty() && self.pods.is_empty() && self.events.is_empty()
    }
}

/// A kind of objects that a JobSet has.
trait Mirrored: ResourceExt {
    /// The JobSet that the object belongs to.
    fn jobset_key(&self) -> Option<JobSetKey>;
    fn put(self, to: &mut ObservedJobSet);
    fn remove(from: &mut ObservedJobSet, name: &str);
    /// Removes the objects whose names are not kept, and says whether there were any.
    fn retain(of: &mut ObservedJobSet, is_kept: &dyn Fn(&str) -> bool) -> bool;
}

impl Mirrored for JobSet {
    fn jobset_key(&self) -> Option<JobSetKey> {
        Some(JobSetKey::new(self.namespace()?, self.name_any()))
    }

    fn put(self, to: &mut ObservedJobSet) {
        let mut jobset = trimmed_jobset(self);
        // As for the other commands: epochs as this project counts them, also if the Go JobSet's agents restart it.
        if let Some(status) = &mut jobset.status {
            dialect::decode(status);
        }
        to.jobset = Some(jobset);
    }

    fn remove(from: &mut ObservedJobSet, _: &str) {
        from.jobset = None;
    }

    fn retain(of: &mut ObservedJobSet, is_kept: &dyn Fn(&str) -> bool) -> bool {
        let is_gone = of.jobset.as_ref().is_some_and(|jobset| !is_kept(&jobset.name_any()));
        if is_gone {
            of.jobset = None;
        }
        is_gone
    }
}

impl Mirrored for PartialJob {
    fn jobset_key(&self) -> Option<JobSetKey> {
        owner(self)
    }

    fn put(self, to: &mut ObservedJobSet) {
        to.jobs.put(trimmed_job(self));
    }

    fn remove(from: &mut ObservedJobSet, name: &str) {
        from.jobs.remove(name);
    }

    fn retain(of: &mut ObservedJobSet, is_kept: &dyn Fn(&str) -> bool) -> bool {
        of.jobs.retain(is_kept)
    }
}

impl Mirrored for PartialPod {
    fn jobset_key(&self) -> Option<JobSetKey> {
        owner(self)
    }

    fn put(self, to: &mut ObservedJobSet) {
        to.pods.put(trimmed_pod(self));
    }

    fn remove(from: &mut ObservedJobSet, name: &str) {
        from.pods.remove(name);
    }

    fn retain(of: &mut ObservedJobSet, is_kept: &dyn Fn(&str) -> bool) -> bool {
        of.pods.retain(is_kept)
    }
}

impl Mirrored for Event {
    fn jobset_key(&self) -> Option<JobSetKey> {
        let regarding = self.regarding.as_ref()?;
        Some(JobSetKey::new(regarding.namespace.clone()?, regarding.name.clone()?))
    }

    fn put(self, to: &mut ObservedJobSet) {
        let Some(restart) = RestartEvent::of(&self) else { return };
        let uid = self.regarding.as_ref().and_then(|regarding| regarding.uid.clone());
        to.events.insert(self.name_any(), ObservedEvent { uid, restart });
    }

    fn remove(from: &mut ObservedJobSet, name: &str) {
        from.events.remove(name);
    }

    fn retain(of: &mut ObservedJobSet, is_kept: &dyn Fn(&str) -> bool) -> bool {
        let before = of.events.len();
        of.events.retain(|name, _| is_kept(name));
        of.events.len() != before
    }
}

/// The JobSet of a Job or Pod, by its label.
fn owner<K: Resource>(child: &K) -> Option<JobSetKey> {
    Some(JobSetKey::new(child.namespace()?, child.labels().get(labels::JOBSET_NAME)?.clone()))
}
