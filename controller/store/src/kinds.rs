//! The watched kinds, and the names of the observed objects of each.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kube::ResourceExt;

/// Name of a namespaced object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// Key of an object. Objects without a name do not come from an API server; theirs is empty.
    pub fn of(object: &impl ResourceExt) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }

    /// An object of this name in the same namespace.
    pub fn sibling(&self, name: &str) -> Self {
        Self { namespace: self.namespace.clone(), name: name.to_owned() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The resourceVersion as a number. Kubernetes gives one that grows with each write to a kind of object; anything else
/// counts as older than everything.
pub fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    JobSet,
    Job,
    Pod,
    Service,
    /// PersistentVolumeClaim.
    Claim,
    RoleBinding,
    Node,
    Namespace,
    PriorityClass,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::JobSet => "JobSet",
            Self::Job => "Job",
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::Claim => "PersistentVolumeClaim",
            Self::RoleBinding => "RoleBinding",
            Self::Node => "Node",
            Self::Namespace => "Namespace",
            Self::PriorityClass => "PriorityClass",
        }
    }
}

pub(crate) const KINDS: usize = 9;

/// A resourceVersion of each kind; 0 stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions([u64; KINDS]);

impl Versions {
    pub const NONE: Self = Self([0; KINDS]);

    pub fn of(kind: Kind, version: u64) -> Self {
        let mut versions = Self::default();
        versions.0[kind as usize] = version;
        versions
    }

    /// Takes over what is newer in `others`.
    pub fn raise(&mut self, others: Self) {
        for (own, other) in self.0.iter_mut().zip(others.0) {
            *own = (*own).max(other);
        }
    }

    /// Whether no version of `others` is newer. A watch shows the versions of a kind in their order, so everything up to the
    /// newest observed version has been observed.
    pub fn reach(&self, others: Self) -> bool {
        self.0.iter().zip(others.0).all(|(own, other)| *own >= other)
    }
}

/// The observed objects of one kind, each with the JobSet that it belongs to.
#[derive(Debug, Default)]
pub(crate) struct Index {
    objects: HashMap<Key, ObservedObject>,
    /// The objects of the listing that is under way.
    listed: Option<HashSet<Key>>,
    is_complete: bool,
}

#[derive(Debug)]
pub(crate) struct ObservedObject {
    pub(crate) owner: Option<Arc<Key>>,
    version: u64,
}

/// What an event about an object means for its owners.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// The event is older than the known state: a listing may be older than the watch before it.
    Outdated,
    /// The object is new, or belongs to the same owner as before.
    Same,
    /// The object belonged to this other owner, or to none.
    Moved(Option<Arc<Key>>),
}

impl Index {
    /// Notes the present state of an object.
    pub(crate) fn put(&mut self, object: &Key, owner: Option<&Key>, version: u64) -> Put {
        if let Some(listed) = &mut self.listed {
            listed.insert(object.clone());
        }
        match self.objects.get_mut(object) {
            Some(known) if known.version > version => Put::Outdated,
            Some(known) if known.owner.as_deref() == owner => {
                known.version = version;
                Put::Same
            }
            Some(known) => {
                known.version = version;
                Put::Moved(std::mem::replace(&mut known.owner, owner.cloned().map(Arc::new)))
            }
            None => {
                self.objects.insert(object.clone(), ObservedObject { owner: owner.cloned().map(Arc::new), version });
                Put::Same
            }
        }
    }

    pub(crate) fn remove(&mut self, object: &Key) -> Option<ObservedObject> {
        self.objects.remove(object)
    }

    pub(crate) fn owner(&self, object: &Key) -> Option<&Arc<Key>> {
        self.objects.get(object)?.owner.as_ref()
    }

    /// Whether an object of this version, or of an older one, is known.
    pub(crate) fn knows(&self, object: &Key, version: u64) -> bool {
        self.objects.get(object).is_some_and(|entry| entry.version <= version)
    }

    pub(crate) fn begin_listing(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// The listing has ended. Returns the objects that it did not show: they are gone.
    pub(crate) fn end_listing(&mut self) -> Vec<Key> {
        self.is_complete = true;
        let Some(listed) = self.listed.take() else { return Vec::new() };
        self.objects.keys().filter(|object| !listed.contains(*object)).cloned().collect()
    }

    /// Whether a listing has ended. Until then, an unknown object may exist.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: "ml".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn index_older_version_is_outdated() {
        let mut index = Index::default();
        assert_eq!(index.put(&key("a"), None, 2), Put::Same);
        assert_eq!(index.put(&key("a"), None, 1), Put::Outdated);
        assert_eq!(index.put(&key("a"), None, 2), Put::Same);
    }

    #[test]
    fn index_owner_changes_names_the_previous_one() {
        let mut index = Index::default();
        index.put(&key("a"), Some(&key("old")), 1);
        assert_eq!(index.put(&key("a"), Some(&key("new")), 2), Put::Moved(Some(Arc::new(key("old")))));
        assert_eq!(index.put(&key("a"), None, 3), Put::Moved(Some(Arc::new(key("new")))));
        assert!(index.remove(&key("a")).is_some_and(|entry| entry.owner.is_none()));
        assert!(index.remove(&key("a")).is_none());
    }

    #[test]
    fn index_listing_ends_objects_not_listed_are_gone() {
        let mut index = Index::default();
        index.put(&key("a"), None, 1);
        index.begin_listing();
        index.put(&key("b"), None, 2);
        assert!(!index.is_complete());
        assert_eq!(index.end_listing(), [key("a")]);
        assert!(index.is_complete());
        assert_eq!(index.end_listing(), [], "no other listing began");
    }

    #[test]
    fn versions_reach_compares_each_kind() {
        let mut observed = Versions::of(Kind::Job, 7);
        assert!(observed.reach(Versions::of(Kind::Job, 7)) && !observed.reach(Versions::of(Kind::Pod, 1)));
        observed.raise(Versions::of(Kind::Pod, 3));
        observed.raise(Versions::of(Kind::Job, 5));
        assert!(observed.reach(Versions::of(Kind::Job, 7)) && observed.reach(Versions::of(Kind::Pod, 1)));
    }
}
