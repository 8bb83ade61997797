//! Objects of one kind, grouped by the JobSet that they belong to.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Key;

/// An object whose versions can be ordered.
pub trait Versioned {
    /// The resourceVersion.
    fn version(&self) -> u64;
}

/// Objects of one kind by owner. Every method returns the keys of the JobSets for which something changed.
#[derive(Debug)]
pub struct Children<V> {
    by_owner: HashMap<Key, BTreeMap<String, V>>,
    owner_of: HashMap<Key, Key>,
    /// Objects seen since a listing began; the others are dropped when it ends.
    listed: Option<HashSet<Key>>,
    /// The newest version seen of any of these objects.
    newest: u64,
}

impl<V> Default for Children<V> {
    fn default() -> Self {
        Self { by_owner: HashMap::new(), owner_of: HashMap::new(), listed: None, newest: 0 }
    }
}

impl<V: Versioned> Children<V> {
    /// The object was seen. An older version than the one held is ignored: a listing may be older than a watch was.
    pub fn apply(&mut self, object: Key, owner: Key, value: V) -> Vec<Key> {
        self.newest = self.newest.max(value.version());
        if let Some(listed) = &mut self.listed {
            listed.insert(object.clone());
        }
        let moved = self.owner_of.get(&object).filter(|previous| **previous != owner).cloned();
        if let Some(previous) = &moved {
            self.remove(previous, &object.name);
        }
        let children = self.by_owner.entry(owner.clone()).or_default();
        if children.get(&object.name).is_some_and(|held| held.version() > value.version()) {
            return Vec::new();
        }
        children.insert(object.name.clone(), value);
        self.owner_of.insert(object, owner.clone());
        moved.into_iter().chain([owner]).collect()
    }

    /// The object is gone, as of this version.
    pub fn delete(&mut self, object: &Key, version: u64) -> Vec<Key> {
        self.newest = self.newest.max(version);
        let Some(owner) = self.owner_of.remove(object) else { return Vec::new() };
        self.remove(&owner, &object.name);
        vec![owner]
    }

    /// A listing of all objects begins.
    pub fn begin_listing(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// The listing has ended: what it did not show is gone.
    pub fn end_listing(&mut self) -> Vec<Key> {
        let Some(listed) = self.listed.take() else { return Vec::new() };
        let gone: Vec<Key> = self.owner_of.keys().filter(|object| !listed.contains(*object)).cloned().collect();
        gone.iter().flat_map(|object| self.delete(object, 0)).collect()
    }

    /// Whether everything up to this version has been seen: a watch shows the versions of a kind in their order.
    pub fn has_seen(&self, version: u64) -> bool {
        self.newest >= version
    }

    /// The object of this name, whoever owns it, and its owner.
    pub fn find(&self, object: &Key) -> Option<(&Key, &V)> {
        let owner = self.owner_of.get(object)?;
        Some((owner, self.by_owner.get(owner)?.get(&object.name)?))
    }

    /// All objects, each with its owner.
    pub fn all(&self) -> impl Iterator<Item = (&Key, &V)> {
        self.by_owner.iter().flat_map(|(owner, children)| children.values().map(move |child| (owner, child)))
    }

    /// The objects of an owner, by name.
    pub fn map_of(&self, owner: &Key) -> Option<&BTreeMap<String, V>> {
        self.by_owner.get(owner)
    }

    /// The objects of an owner, by name.
    pub fn of(&self, owner: &Key) -> impl Iterator<Item = (&str, &V)> {
        self.by_owner.get(owner).into_iter().flatten().map(|(name, value)| (name.as_str(), value))
    }

    fn remove(&mut self, owner: &Key, name: &str) {
        if let Some(children) = self.by_owner.get_mut(owner) {
            children.remove(name);
            if children.is_empty() {
                self.by_owner.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Versioned for u64 {
        fn version(&self) -> u64 {
            *self
        }
    }

    fn key(name: &str) -> Key {
        Key { namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn names(children: &Children<u64>, owner: &str) -> Vec<String> {
        children.of(&key(owner)).map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn an_older_version_than_the_one_held_is_ignored() {
        let mut jobs = Children::default();
        assert_eq!(jobs.apply(key("a"), key("set"), 2), [key("set")]);
        assert_eq!(jobs.apply(key("a"), key("set"), 1), []);
        assert_eq!(jobs.of(&key("set")).collect::<Vec<_>>(), [("a", &2)]);
    }

    #[test]
    fn a_child_that_changes_its_owner_marks_both() {
        let mut jobs = Children::default();
        jobs.apply(key("a"), key("old"), 1);
        assert_eq!(jobs.apply(key("a"), key("new"), 2), [key("old"), key("new")]);
        assert_eq!((names(&jobs, "old"), names(&jobs, "new")), (vec![], vec!["a".to_owned()]));
    }

    #[test]
    fn a_deletion_shows_that_everything_before_it_was_seen() {
        let mut jobs = Children::default();
        jobs.apply(key("a"), key("set"), 2);
        assert!(jobs.has_seen(2) && !jobs.has_seen(3));
        jobs.delete(&key("a"), 4);
        assert!(jobs.has_seen(3));
    }

    #[test]
    fn what_a_listing_does_not_show_is_dropped_when_it_ends() {
        let mut jobs = Children::default();
        jobs.apply(key("a"), key("set"), 1);
        jobs.apply(key("b"), key("set"), 2);
        jobs.begin_listing();
        jobs.apply(key("b"), key("set"), 2);
        assert_eq!(names(&jobs, "set"), ["a", "b"], "a running listing hides nothing");
        assert_eq!(jobs.end_listing(), [key("set")]);
        assert_eq!(names(&jobs, "set"), ["b"]);
        assert_eq!(jobs.delete(&key("b"), 3), [key("set")]);
        assert_eq!(jobs.delete(&key("b"), 3), []);
    }
}
