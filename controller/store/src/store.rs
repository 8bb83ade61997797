//! All that is observed, and which JobSets a change concerns.

use std::collections::BTreeMap;
use std::sync::Arc;

use jobset_api::JobSet;

use crate::kinds::{Index, KINDS, ObservedObject, Put};
use crate::nodes::Nodes;
use crate::pods::{JobSetPods, StreamReport};
use crate::room::Room;
use crate::{Cluster, Entry, Key, Kind, PartialNamespace, PodWarning, Versions, View, WatchEvent};

/// The memory that JobSets may take, in bytes; 0 stands for any.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryLimits {
    /// The specification of one JobSet.
    pub of_jobset: usize,
    /// All JobSets of one namespace.
    pub of_namespace: usize,
}

/// What has changed of a JobSet, which says how soon a plan must follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Counts, or what concerns all JobSets.
    Counts,
    /// One child, without a failure. Of many children, all may be changing.
    Child,
    /// A report, a failure, or the specification.
    Decision,
}

#[derive(Debug, Default)]
pub struct Changes {
    /// JobSets that are gone. Others of their names may have followed.
    pub ended: Vec<Key>,
    /// The JobSets that a plan could decide differently for, and names of JobSets that are not observed.
    pub changed: Vec<(Key, Change)>,
}

#[derive(Debug, Default)]
pub struct Store {
    pub(crate) limits: MemoryLimits,
    pub(crate) entries: BTreeMap<Key, Entry>,
    pub(crate) cluster: Cluster,
    indexes: [Index; KINDS],
    /// The newest observed version of each kind.
    observed: Versions,
    pub(crate) room: Room,
    /// JobSets whose objects are to be listed again.
    pub(crate) relist: Vec<Key>,
}

impl Store {
    pub fn new(limits: MemoryLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A store that has observed a JobSet, one Job and what is remembered of the Pods of that Job.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_pods(jobset: Arc<JobSet>, name: &str, job: crate::JobView, pods: crate::pods::JobPods) -> Self {
        let (mut store, key, uid) = (Self::default(), Key::of(jobset.as_ref()), job.uid.clone());
        let entry = store.entries.entry(key).or_default();
        entry.put_jobset(jobset, None);
        entry.jobs.insert(name.to_owned(), job);
        entry.pods.insert_job(&uid, pods);
        store
    }

    pub fn apply(&mut self, event: WatchEvent) -> Changes {
        let mut changes = Changes::default();
        match event {
            WatchEvent::Put { object, owner, view } => self.put(object, owner, view, &mut changes),
            WatchEvent::Gone(kind, object, version) => {
                self.observed.raise(Versions::of(kind, version));
                self.remove(kind, &object, &mut changes);
            }
            WatchEvent::ListingBegins(kind) => self.index(kind).begin_listing(),
            WatchEvent::ListingEnded(kind) => {
                for object in self.index(kind).end_listing() {
                    self.remove(kind, &object, &mut changes);
                }
            }
        }
        changes
    }

    /// Takes a report of an agent in, which came over the stream: it is worth an event of its Pod with this epoch in the annotation.
    /// The larger epoch counts. Returns whether a plan could decide differently.
    pub fn apply_report(&mut self, key: &Key, report: StreamReport) -> bool {
        let entry = self.entries.get_mut(key).filter(|entry| entry.jobset.is_some());
        entry.is_some_and(|entry| entry.pods.apply_report(report))
    }

    /// The connection of an agent has ended. Its report stays if its Pod was observed.
    pub fn agent_gone(&mut self, key: &Key, pod_uid: &str) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.pods.agent_gone(pod_uid);
        }
    }

    /// Notes what the API server refuses to a JobSet at present, in a stable order. Returns whether the rules must look again.
    pub fn set_refused(&mut self, key: &Key, refused: Vec<String>) -> bool {
        self.entries.get_mut(key).is_some_and(|entry| entry.set_refused(refused))
    }

    /// Notes what a Pod of a JobSet was warned of last. Returns whether that is news.
    pub fn set_warning(&mut self, key: &Key, warning: PodWarning) -> bool {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.jobset.is_some()) else { return false };
        let is_news = entry.warning.as_ref() != Some(&warning);
        entry.warning = Some(warning);
        is_news
    }

    /// Notes which rules at most so many failed Jobs of a JobSet match: to compare messages with patterns can take long. Returns
    /// whether those of all its Jobs are noted.
    pub fn note_own_rules(&mut self, key: &Key, at_most: usize) -> bool {
        self.entries.get_mut(key).is_none_or(|entry| entry.note_own_rules(at_most))
    }

    /// Drops the entry of a JobSet, which may be half changed, but for the JobSet, and for reports over the stream: no watch tells of
    /// those again.
    pub fn drop_entry(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let nodes: Vec<_> = entry.pods.nodes().collect();
        let reports = entry.pods.reports();
        let Entry { jobset, unread, members, .. } = std::mem::take(entry);
        (entry.jobset, entry.unread, entry.members) = (jobset, unread, members);
        entry.pods = JobSetPods::with_reports(reports);
        for node in nodes {
            self.cluster.moved(key, None, Some(node));
        }
    }

    /// Has the objects of a JobSet listed again.
    pub fn relist(&mut self, key: Key) {
        self.relist.push(key);
    }

    /// The JobSets whose objects are to be listed again since the last call.
    pub fn take_relist(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.relist)
    }

    /// Whether all kinds were listed. Until then, what is missing here may exist.
    pub fn is_complete(&self) -> bool {
        self.indexes.iter().all(Index::is_complete)
    }

    pub fn has_observed(&self, versions: Versions) -> bool {
        self.observed.reach(versions)
    }

    /// Whether the event shows a known object in its known state, or in an older one.
    pub fn knows(&self, event: &WatchEvent) -> bool {
        let WatchEvent::Put { object, view, .. } = event else { return false };
        self.indexes[view.kind() as usize].knows(object, view.version())
    }

    /// The JobSet that an event is about, if it is about one.
    pub fn concerned(&self, event: &WatchEvent) -> Option<Key> {
        match event {
            WatchEvent::Put { owner, .. } => owner.clone(),
            WatchEvent::Gone(kind, object, _) => self.indexes[*kind as usize].owner(object).map(|key| Key::clone(key)),
            WatchEvent::ListingBegins(_) | WatchEvent::ListingEnded(_) => None,
        }
    }

    pub fn entry(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The JobSets with entries, also those of which only children are observed.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.entries.keys()
    }

    pub fn jobset(&self, key: &Key) -> Option<&Arc<JobSet>> {
        self.entries.get(key)?.jobset.as_ref()
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn index(&mut self, kind: Kind) -> &mut Index {
        &mut self.indexes[kind as usize]
    }

    fn put(&mut self, object: Key, owner: Option<Key>, view: View, changes: &mut Changes) {
        let (kind, version) = (view.kind(), view.version());
        self.observed.raise(Versions::of(kind, version));
        match self.index(kind).put(&object, owner.as_ref(), version) {
            Put::Outdated => return,
            Put::Moved(Some(previous)) => self.remove_child(kind, &object, &previous, changes),
            Put::Moved(None) | Put::Same => {}
        }
        let Some(owner) = owner else { return self.put_shared(&object.name, view, changes) };
        let (view, unread) = match view {
            View::StoredJobSet(stored) => {
                let (jobset, unread) = self.read(&owner, &stored);
                (View::JobSet(jobset), unread)
            }
            view => (view, None),
        };
        let entry = self.entries.entry(owner.clone()).or_default();
        let change = match view {
            View::Owned(kind, view) => {
                self.cluster.put_owned(kind, object, view);
                Some(Change::Child)
            }
            View::JobSet(jobset) => {
                if entry.is_replaced_by(&jobset) {
                    changes.ended.push(owner.clone());
                    entry.remove_jobset();
                }
                Some(entry.put_jobset(jobset, unread))
            }
            View::Job(job) => Some(entry.put_job(object.name, job)),
            View::Pod(mut pod) => {
                pod.node = pod.node.map(|node| self.cluster.shared_name(node));
                let (change, matters) = if pod.job_uid.is_none() {
                    let change = entry.pods.remove(&object.name);
                    entry.orphans.insert(object.name);
                    (change, true)
                } else {
                    // The Job controller adopts orphans.
                    let was_orphan = entry.orphans.remove(&object.name);
                    let change = entry.pods.apply(pod);
                    let matters = change.matters || was_orphan;
                    (change, matters)
                };
                let (to, from) = change.nodes;
                self.cluster.moved(&owner, to, from);
                matters.then_some(Change::Decision)
            }
            View::StoredJobSet(_) | View::Node(_) | View::PriorityClass(_) | View::Namespace(_) => None,
        };
        changes.changed.extend(change.map(|change| (owner, change)));
    }

    /// An object of no JobSet: one that concerns any, or that has lost the label of its JobSet.
    fn put_shared(&mut self, name: &str, view: View, changes: &mut Changes) {
        match view {
            View::Node(node) => self.change_nodes(name, |nodes| nodes.apply(&node), changes),
            View::PriorityClass(class) => self.cluster.classes.apply(&class),
            View::Namespace(namespace) => self.put_namespace(name, &namespace, changes),
            _ => {}
        }
    }

    fn remove(&mut self, kind: Kind, object: &Key, changes: &mut Changes) {
        let Some(ObservedObject { owner, .. }) = self.index(kind).remove(object) else { return };
        match (kind, owner) {
            (Kind::Node, _) => {
                let delete = |nodes: &mut Nodes| {
                    nodes.delete(&object.name);
                    true
                };
                self.change_nodes(&object.name, delete, changes);
            }
            (Kind::PriorityClass, _) => self.cluster.classes.delete(&object.name),
            (Kind::Namespace, _) => {
                self.cluster.terminating.remove(&object.name);
            }
            (_, None) => {}
            (_, Some(owner)) => self.remove_child(kind, object, &owner, changes),
        }
    }

    /// An object is gone, or belongs to its JobSet no longer.
    fn remove_child(&mut self, kind: Kind, object: &Key, owner: &Arc<Key>, changes: &mut Changes) {
        if matches!(kind, Kind::Service | Kind::Claim | Kind::RoleBinding) {
            self.cluster.remove_owned(kind, object.clone());
            // JobSets may share a Service that only one of them owns.
            if kind == Kind::Service {
                let uses = |jobset: &JobSet| jobset.subdomain() == object.name;
                let entries = self.in_namespace(&object.namespace);
                let sharers = entries.filter(|(_, entry)| entry.jobset.as_deref().is_some_and(uses));
                changes.changed.extend(sharers.map(|(key, _)| (key.clone(), Change::Decision)));
            }
        }
        if kind == Kind::JobSet {
            self.forget_memory(owner);
        }
        let Some(entry) = self.entries.get_mut(&**owner) else { return };
        let mut change = Change::Child;
        match kind {
            Kind::JobSet => {
                changes.ended.push(Key::clone(owner));
                entry.remove_jobset();
            }
            Kind::Job => entry.remove_job(&object.name),
            Kind::Pod => {
                entry.orphans.remove(&object.name);
                let pods = entry.pods.remove(&object.name);
                if pods.failed {
                    change = Change::Decision;
                }
                let (to, from) = pods.nodes;
                self.cluster.moved(owner, to, from);
            }
            _ => {}
        }
        changes.changed.push((Key::clone(owner), change));
        if entry.is_empty() {
            changes.ended.push(Key::clone(owner));
            self.entries.remove(&**owner);
        }
    }

    /// Another namespace of the same name may follow one that is being deleted.
    fn put_namespace(&mut self, name: &str, namespace: &PartialNamespace, changes: &mut Changes) {
        if namespace.metadata.deletion_timestamp.is_none() {
            self.cluster.terminating.remove(name);
        } else if self.cluster.terminating.insert(name.to_owned()) {
            changes.changed.extend(self.in_namespace(name).map(|(key, _)| (key.clone(), Change::Decision)));
        }
    }

    /// Changes a node. Whether all nodes are outdated concerns JobSets without Pods, too.
    fn change_nodes(&mut self, name: &str, change: impl FnOnce(&mut Nodes) -> bool, changes: &mut Changes) {
        let nodes = &mut self.cluster.nodes;
        let before = nodes.all_outdated();
        let matters = change(nodes);
        if nodes.all_outdated() != before {
            changes.changed.extend(self.entries.keys().map(|key| (key.clone(), Change::Counts)));
        } else if matters {
            changes.changed.extend(self.cluster.on_node(name).map(|key| (key.clone(), Change::Decision)));
        }
    }

    fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = (&Key, &Entry)> {
        let first = Key { namespace: namespace.to_owned(), name: String::new() };
        self.entries.range(first..).take_while(move |(key, _)| key.namespace == namespace)
    }
}
