//! Keeps the current objects of each JobSet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jobset_api::{JobSet, dialect, labels};
use jobset_objects::{PartialJob, PartialPod};
use k8s_openapi::api::events::v1::Event;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use tokio::time::Instant;

use super::trim::{trimmed_job, trimmed_jobset, trimmed_pod};
use super::{JobSetKey, ObjectKind, WatchEvent};
use crate::explain::Facts;
use crate::restarts::{self, RestartEvent, RestartReport};
use crate::status::{self, JobSetTree};

/// A watch that has not failed again for this long works. It tells nothing when it is connected again, and retries at the latest
/// after 60 seconds, of which the connection may take 10 more.
const FORGOTTEN: Duration = Duration::from_secs(90);

/// The current objects of JobSets, by the watches.
#[derive(Debug, Default)]
pub struct Mirror {
    jobsets: Store<JobSet>,
    jobs: Store<PartialJob>,
    pods: Store<PartialPod>,
    events: Store<Event>,
    /// The last failure of each watch, and when it was.
    problems: BTreeMap<ObjectKind, (String, Instant)>,
    changed: BTreeSet<JobSetKey>,
}

/// A JobSet that exists, with its Jobs and Pods.
#[derive(Clone, Debug)]
pub struct ObservedJobSet {
    pub jobset: Arc<JobSet>,
    jobs: Vec<Arc<PartialJob>>,
    pods: Vec<Arc<PartialPod>>,
}

impl Mirror {
    pub fn apply(&mut self, event: WatchEvent) {
        let Self { changed, .. } = self;
        let kind = match event {
            WatchEvent::JobSet(event) => self.jobsets.apply(event, changed),
            WatchEvent::Job(event) => self.jobs.apply(event, changed),
            WatchEvent::Pod(event) => self.pods.apply(event, changed),
            WatchEvent::Event(event) => self.events.apply(event, changed),
            WatchEvent::Failed(kind, error, at) => {
                self.problems.insert(kind, (error.to_string(), at));
                return;
            }
        };
        self.problems.remove(&kind);
    }

    /// Whether all JobSets, Jobs and Pods have been listed once.
    pub fn is_complete(&self) -> bool {
        self.jobsets.is_complete && self.jobs.is_complete && self.pods.is_complete
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
    pub fn jobset(&self, key: &JobSetKey) -> Option<ObservedJobSet> {
        let jobset = self.jobsets.of(key).next().cloned()?;
        Some(ObservedJobSet {
            jobset,
            jobs: self.jobs.of(key).cloned().collect(),
            pods: self.pods.of(key).cloned().collect(),
        })
    }

    pub fn pod(&self, key: &JobSetKey, name: &str) -> Option<&PartialPod> {
        self.pods.objects.get(key)?.get(name).map(AsRef::as_ref)
    }

    /// The report of `restarts`; none if the JobSet does not exist.
    pub fn restarts(&self, key: &JobSetKey) -> Option<RestartReport> {
        let jobset = self.jobsets.of(key).next()?;
        let uid = |event: &Event| event.regarding.as_ref()?.uid.clone();
        let own = self.events.of(key).filter(|event| uid(event) == jobset.metadata.uid);
        Some(restarts::report(jobset, own.filter_map(|event| RestartEvent::of(event)).collect()))
    }
}

impl ObservedJobSet {
    /// The report of `status`, without the controller that leads.
    pub fn tree(&self) -> JobSetTree {
        status::report(&self.jobset, &self.jobs, &self.pods, None)
    }

    /// Its objects as facts, with the facts around it.
    pub fn facts(self, around: Facts) -> Facts {
        Facts { jobset: self.jobset, jobs: self.jobs, pods: self.pods, ..around }
    }
}

/// Objects of one kind by JobSet and name, as `kube::runtime::reflector` keeps them: a list that has been read to its end replaces
/// what was there before. The reflector's own store has no index, so each look at a JobSet would read the Pods of all.
#[derive(Debug)]
struct Store<K> {
    objects: Objects<K>,
    /// The list that is being read. The watch starts with it, and starts again with it when it has lost its place.
    listed: Objects<K>,
    /// Whether a whole list has been read.
    is_complete: bool,
}

type Objects<K> = BTreeMap<JobSetKey, BTreeMap<String, Arc<K>>>;

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeMap::new(), is_complete: false }
    }
}

impl<K: Mirrored> Store<K> {
    fn of(&self, key: &JobSetKey) -> impl Iterator<Item = &Arc<K>> {
        self.objects.get(key).into_iter().flat_map(BTreeMap::values)
    }

    /// Takes in an event, and adds the JobSets that it is about.
    fn apply(&mut self, event: watcher::Event<K>, changed: &mut BTreeSet<JobSetKey>) -> ObjectKind {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(object) => {
                if let Some((key, name, object)) = self.put(object, changed) {
                    self.listed.entry(key).or_default().insert(name, object);
                }
            }
            watcher::Event::Apply(object) => drop(self.put(object, changed)),
            watcher::Event::Delete(object) => {
                let Some(key) = object.jobset_key() else { return K::KIND };
                if let Some(objects) = self.objects.get_mut(&key) {
                    objects.remove(&object.name_any());
                    if objects.is_empty() {
                        self.objects.remove(&key);
                    }
                    changed.insert(key);
                }
            }
            watcher::Event::InitDone => {
                changed.extend(self.objects.keys().cloned());
                self.objects = std::mem::take(&mut self.listed);
                self.is_complete = true;
            }
        }
        K::KIND
    }

    /// Puts an object in its place, if it belongs to a JobSet, and says which.
    fn put(&mut self, object: K, changed: &mut BTreeSet<JobSetKey>) -> Option<(JobSetKey, String, Arc<K>)> {
        let (key, name) = (object.jobset_key()?, object.name_any());
        let object = Arc::new(object.trimmed());
        self.objects.entry(key.clone()).or_default().insert(name.clone(), Arc::clone(&object));
        changed.insert(key.clone());
        Some((key, name, object))
    }
}

/// A kind of objects that a JobSet has.
trait Mirrored: ResourceExt {
    const KIND: ObjectKind;
    fn jobset_key(&self) -> Option<JobSetKey>;
    /// The object without what reports do not read.
    fn trimmed(self) -> Self;
}

impl Mirrored for JobSet {
    const KIND: ObjectKind = ObjectKind::JobSet;

    fn jobset_key(&self) -> Option<JobSetKey> {
        Some(JobSetKey::new(self.namespace()?, self.name_any()))
    }

    fn trimmed(self) -> Self {
        let mut jobset = trimmed_jobset(self);
        // As for the other commands: epochs as this project counts them, also if the Go JobSet's agents restart it.
        jobset.status.iter_mut().for_each(dialect::decode);
        jobset
    }
}

impl Mirrored for PartialJob {
    const KIND: ObjectKind = ObjectKind::Job;

    fn jobset_key(&self) -> Option<JobSetKey> {
        owner(self)
    }

    fn trimmed(self) -> Self {
        trimmed_job(self)
    }
}

impl Mirrored for PartialPod {
    const KIND: ObjectKind = ObjectKind::Pod;

    fn jobset_key(&self) -> Option<JobSetKey> {
        owner(self)
    }

    fn trimmed(self) -> Self {
        trimmed_pod(self)
    }
}

impl Mirrored for Event {
    const KIND: ObjectKind = ObjectKind::Event;

    /// Events about anything but restarts are not kept.
    fn jobset_key(&self) -> Option<JobSetKey> {
        let regarding = self.regarding.as_ref().filter(|_| RestartEvent::of(self).is_some())?;
        Some(JobSetKey::new(regarding.namespace.clone()?, regarding.name.clone()?))
    }

    fn trimmed(mut self) -> Self {
        self.metadata.managed_fields = None;
        self
    }
}

/// The JobSet of a Job or Pod, by its label.
fn owner<K: Resource>(child: &K) -> Option<JobSetKey> {
    Some(JobSetKey::new(child.namespace()?, child.labels().get(labels::JOBSET_NAME)?.clone()))
}
