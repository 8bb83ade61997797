//! The engine: everything that the controller knows, and every decision about what it does next, as one pure value.
//!
//! Watch events go in. There is no clock and no client here. An event is taken in before its JobSet is marked, so whoever
//! handles the mark finds what caused it.

mod answers;
mod cluster;
pub(crate) mod dialect;
mod event;
mod event_log;
#[cfg(debug_assertions)]
mod failpoint;
#[cfg(test)]
mod fault_tests;
mod group;
mod internal_error;
mod job;
mod kinds;
pub mod members;
mod nodes;
mod places;
#[cfg(test)]
mod places_tests;
pub mod pods;
mod priority;
mod progress;
mod queue;
mod ranges;
mod refusals;
mod room;
mod schedule;
#[cfg(test)]
mod schedule_tests;
mod slow;
#[cfg(test)]
mod slow_cluster;
mod stored;
#[cfg(test)]
mod stored_tests;
mod stream;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tests;
mod verdict;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use jobset_api::JobSet;
use kube::ResourceExt;

pub use cluster::Cluster;
pub use event::{OwnedView, PartialNamespace, View, WatchEvent};
pub use group::Group;
pub use internal_error::catches_panics;
use internal_error::caught;
pub(crate) use job::controller;
pub use job::{ControllerRef, Finished, JobView};
use kinds::{Index, KINDS, ObservedObject, Put};
pub use kinds::{Kind, Versions};
pub(crate) use nodes::NodeView;
pub use places::PLACES;
use places::Places;
pub use priority::PriorityClasses;
use queue::Queue;
pub use queue::Urgency;
pub use ranges::Ranges;
pub use refusals::Request;
use room::Room;
pub use schedule::SLICE;
#[cfg(test)]
pub(crate) use schedule::{EngineMutation, PlanHook};
pub use slow::{Part, RequestId, SLOW, SLOW_REQUESTS};
pub use stored::{JobSetHead, StoredJobSet};
pub use verdict::Findings;
pub use work::{Confirmed, Effects, EventWrite, Failure, Now, Outcome, RequestError, Stored, Work};

use crate::plan::Settings;

/// Name of a namespaced object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl Key {
    /// Key of an object. Objects without a name do not come from an API server; theirs is empty.
    pub fn of(object: &impl ResourceExt) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }

    /// An object of this name in the same namespace.
    pub(crate) fn sibling(&self, name: &str) -> Self {
        Self { namespace: self.namespace.clone(), name: name.to_owned() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// All that the controller knows and remembers.
#[derive(Debug, Default)]
pub struct Engine {
    settings: Settings,
    groups: BTreeMap<Key, Group>,
    cluster: Cluster,
    indexes: [Index; KINDS],
    /// The newest observed version of each kind.
    observed: Versions,
    queue: Queue,
    /// The memory of JobSets.
    room: Room,
    places: Places,
    /// Number of the last work.
    number: u64,
    /// JobSets whose entries are to be rebuilt.
    dropped: Vec<Key>,
    internal_errors: u64,
    #[cfg(test)]
    hook: Option<schedule::PlanHook>,
    /// What is done wrong, for the proofs to notice.
    #[cfg(test)]
    pub(crate) broken: Option<EngineMutation>,
}

/// A JobSet to reconcile, and how soon.
pub type Mark = (Key, Urgency);

impl Engine {
    /// An engine that has observed nothing.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes an event in. Returns the JobSets that are gone.
    pub fn see(&mut self, event: WatchEvent, now: Instant) -> Vec<Key> {
        let mut gone = Vec::new();
        let concerned = self.concerned(&event);
        let marks = match caught(|| self.observe(event)) {
            Ok(marks) => marks,
            Err(panic) => self.after_panic(concerned.as_ref(), panic, now),
        };
        for (key, urgency) in marks {
            match self.groups.get_mut(&key).filter(|group| group.jobset.is_some()) {
                Some(group) => self.queue.mark(&key, &mut group.progress.turn, urgency, now),
                None => gone.push(key),
            }
        }
        gone
    }

    /// An event has caused a panic. One of no single JobSet may concern all of them.
    fn after_panic(&mut self, concerned: Option<&Key>, panic: String, now: Instant) -> Vec<Mark> {
        if let Some(key) = concerned {
            self.drop_entry(key, panic, now);
            return Vec::new();
        }
        self.internal_errors += 1;
        self.groups.keys().map(|key| (key.clone(), Urgency::Bulk)).collect()
    }

    /// Takes an event in. Returns the JobSets that it concerns, without marking them as [`Engine::see`] does.
    pub fn observe(&mut self, event: WatchEvent) -> Vec<Mark> {
        match event {
            WatchEvent::Put { object, owner, view } => self.put(object, owner, view),
            WatchEvent::Gone(kind, object, version) => {
                self.observed.raise(Versions::of(kind, version));
                self.remove(kind, &object)
            }
            WatchEvent::ListingBegins(kind) => {
                self.index(kind).begin_listing();
                Vec::new()
            }
            WatchEvent::ListingEnded(kind) => {
                let gone = self.index(kind).end_listing();
                gone.iter().flat_map(|object| self.remove(kind, object)).collect()
            }
        }
    }

    /// An engine that has observed a JobSet, one Job and what is remembered of the Pods of that Job.
    #[cfg(test)]
    pub(crate) fn with_pods(jobset: Arc<JobSet>, name: &str, job: JobView, pods: pods::JobPods) -> Self {
        let (mut engine, key, uid) = (Self::default(), Key::of(jobset.as_ref()), job.uid.clone());
        let group = engine.groups.entry(key).or_default();
        group.put_jobset(jobset, None);
        group.jobs.insert(name.to_owned(), job);
        group.pods.insert_job(&uid, pods);
        engine
    }

    /// Notes what the API server refuses to a JobSet.
    #[cfg(test)]
    pub(crate) fn set_refused(&mut self, key: &Key, refused: Vec<String>) -> bool {
        self.groups.get_mut(key).is_some_and(|group| group.set_refused(refused))
    }

    /// Whether all kinds were listed. Until then, what is missing here may exist.
    pub fn is_complete(&self) -> bool {
        self.indexes.iter().all(Index::is_complete)
    }

    /// A JobSet with its children.
    pub(crate) fn group(&self, key: &Key) -> Option<&Group> {
        self.groups.get(key)
    }

    /// What the JobSets share.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The JobSet of this name.
    pub fn jobset(&self, key: &Key) -> Option<&Arc<JobSet>> {
        self.groups.get(key)?.jobset.as_ref()
    }

    /// Number of panics that were caught.
    pub fn internal_errors(&self) -> u64 {
        self.internal_errors
    }

    /// The JobSet that an event is about, if it is about one.
    fn concerned(&self, event: &WatchEvent) -> Option<Key> {
        match event {
            WatchEvent::Put { owner, .. } => owner.clone(),
            WatchEvent::Gone(kind, object, _) => self.indexes[*kind as usize].owner(object).map(|key| Key::clone(key)),
            WatchEvent::ListingBegins(_) | WatchEvent::ListingEnded(_) => None,
        }
    }

    fn index(&mut self, kind: Kind) -> &mut Index {
        &mut self.indexes[kind as usize]
    }

    fn put(&mut self, object: Key, owner: Option<Key>, view: View) -> Vec<Mark> {
        let (kind, version) = (view.kind(), view.version());
        self.observed.raise(Versions::of(kind, version));
        let mut marks = match self.index(kind).put(&object, owner.as_ref(), version) {
            Put::Outdated => return Vec::new(),
            Put::Moved(Some(previous)) => self.remove_child(kind, &object, &previous),
            Put::Moved(None) | Put::Same => Vec::new(),
        };
        let Some(owner) = owner else {
            match view {
                View::Node(node) => marks.extend(self.change_nodes(&object.name, |nodes| nodes.apply(&node))),
                View::PriorityClass(class) => self.cluster.classes.apply(&class),
                View::Namespace(namespace) => marks.extend(self.put_namespace(&object.name, &namespace)),
                // The object has lost the label of its JobSet.
                _ => {}
            }
            return marks;
        };
        let (view, unread) = match view {
            View::StoredJobSet(stored) => {
                let (jobset, unread) = self.read(&owner, &stored);
                (View::JobSet(jobset), unread)
            }
            view => (view, None),
        };
        let group = self.groups.entry(owner.clone()).or_default();
        let urgency = match view {
            View::Owned(kind, view) => {
                self.cluster.put_owned(kind, object, view);
                Some(group.urgency_of_one())
            }
            View::JobSet(jobset) => {
                if group.is_replaced_by(&jobset) {
                    self.queue.forget(&owner, &mut group.progress.turn);
                    self.places.slow.forget(&owner);
                    group.remove_jobset();
                }
                Some(group.put_jobset(jobset, unread))
            }
            View::Job(job) => Some(group.put_job(object.name, job)),
            View::Pod(pod) => {
                let (change, matters) = if pod.job_uid.is_none() {
                    let change = group.pods.remove(&object.name);
                    group.orphans.insert(object.name);
                    (change, true)
                } else {
                    // The Job controller adopts orphans.
                    let was_orphan = group.orphans.remove(&object.name);
                    let change = group.pods.see(pod);
                    let matters = change.matters || was_orphan;
                    (change, matters)
                };
                self.cluster.moved(&owner, change.entered, change.left);
                matters.then_some(Urgency::Urgent)
            }
            View::StoredJobSet(_) | View::Node(_) | View::PriorityClass(_) | View::Namespace(_) => None,
        };
        marks.extend(urgency.map(|urgency| (owner, urgency)));
        marks
    }

    fn remove(&mut self, kind: Kind, object: &Key) -> Vec<Mark> {
        let Some(ObservedObject { owner, .. }) = self.index(kind).remove(object) else { return Vec::new() };
        match (kind, owner) {
            (Kind::Node, _) => self.change_nodes(&object.name, |nodes| {
                nodes.delete(&object.name);
                true
            }),
            (Kind::PriorityClass, _) => {
                self.cluster.classes.delete(&object.name);
                Vec::new()
            }
            (Kind::Namespace, _) => {
                self.cluster.terminating.remove(&object.name);
                Vec::new()
            }
            (_, None) => Vec::new(),
            (_, Some(owner)) => self.remove_child(kind, object, &owner),
        }
    }

    /// An object is gone, or belongs to its JobSet no longer.
    fn remove_child(&mut self, kind: Kind, object: &Key, owner: &Arc<Key>) -> Vec<Mark> {
        let mut marks = Vec::new();
        if matches!(kind, Kind::Service | Kind::Claim | Kind::RoleBinding) {
            self.cluster.remove_owned(kind, object.clone());
            // JobSets may share a Service that only one of them owns.
            if kind == Kind::Service {
                let uses = |jobset: &JobSet| jobset.subdomain() == object.name;
                let groups = self.in_namespace(&object.namespace);
                let sharers = groups.filter(|(_, group)| group.jobset.as_deref().is_some_and(uses));
                marks.extend(sharers.map(|(key, _)| (key.clone(), Urgency::Urgent)));
            }
        }
        if kind == Kind::JobSet {
            self.forget_memory(owner);
        }
        let Some(group) = self.groups.get_mut(&**owner) else { return marks };
        let mut urgency = group.urgency_of_one();
        match kind {
            Kind::JobSet => {
                self.queue.forget(owner, &mut group.progress.turn);
                self.places.slow.forget(owner);
                group.remove_jobset();
            }
            Kind::Job => group.remove_job(&object.name),
            Kind::Pod => {
                group.orphans.remove(&object.name);
                let change = group.pods.remove(&object.name);
                if change.failed {
                    urgency = Urgency::Urgent;
                }
                self.cluster.moved(owner, change.entered, change.left);
            }
            _ => {}
        }
        marks.push((Key::clone(owner), urgency));
        if group.is_empty() {
            self.queue.forget(owner, &mut group.progress.turn);
            self.groups.remove(&**owner);
        }
        marks
    }

    /// Another namespace of the same name may follow one that is being deleted.
    fn put_namespace(&mut self, name: &str, namespace: &PartialNamespace) -> Vec<Mark> {
        if namespace.metadata.deletion_timestamp.is_none() {
            self.cluster.terminating.remove(name);
            return Vec::new();
        }
        let is_new = self.cluster.terminating.insert(name.to_owned());
        self.in_namespace(name).filter(|_| is_new).map(|(key, _)| (key.clone(), Urgency::Urgent)).collect()
    }

    /// Changes a node. Whether all nodes are outdated concerns JobSets without Pods, too.
    fn change_nodes(&mut self, name: &str, change: impl FnOnce(&mut nodes::Nodes) -> bool) -> Vec<Mark> {
        let nodes = &mut self.cluster.nodes;
        let before = nodes.all_outdated();
        let matters = change(nodes);
        if nodes.all_outdated() != before {
            return self.groups.keys().map(|key| (key.clone(), Urgency::Bulk)).collect();
        }
        self.cluster.on_node(name).filter(|_| matters).map(|key| (key.clone(), Urgency::Urgent)).collect()
    }

    fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = (&Key, &Group)> {
        let first = Key { namespace: namespace.to_owned(), name: String::new() };
        self.groups.range(first..).take_while(move |(key, _)| key.namespace == namespace)
    }
}

/// The resourceVersion as a number. Kubernetes gives one that grows with each write to a kind of object; anything else
/// counts as older than everything.
pub(crate) fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}
