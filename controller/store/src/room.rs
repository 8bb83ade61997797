//! The memory that the JobSets of each namespace take, and those that wait until the others take less.

use std::collections::{BTreeSet, HashMap};

use crate::Key;

/// The memory of all namespaces.
#[derive(Debug, Default)]
pub(crate) struct Room {
    total: usize,
    namespaces: HashMap<String, NamespaceMemory>,
    /// The JobSets that wait. Mostly none does.
    waiting: BTreeSet<Key>,
}

#[derive(Debug, Default)]
struct NamespaceMemory {
    total: usize,
    /// By the name of the JobSet.
    weights: HashMap<String, usize>,
    /// The one that has waited, and is to be read now.
    requested: Option<String>,
}

impl Room {
    /// What the other JobSets of its namespace take, in bytes.
    pub(crate) fn taken_beside(&self, key: &Key) -> usize {
        let Some(memory) = self.namespaces.get(&key.namespace) else { return 0 };
        memory.total - memory.weights.get(&key.name).copied().unwrap_or(0)
    }

    /// What the JobSets of all other namespaces take, in bytes.
    pub(crate) fn taken_by_others(&self, namespace: &str) -> usize {
        self.total - self.namespaces.get(namespace).map_or(0, |memory| memory.total)
    }

    /// The namespaces of which JobSets wait.
    pub(crate) fn waiting(&self) -> Vec<String> {
        let mut namespaces: Vec<String> = self.waiting.iter().map(|key| key.namespace.clone()).collect();
        namespaces.dedup();
        namespaces
    }

    /// The JobSet takes so many bytes. Returns whether another one that waits may have room now.
    pub(crate) fn put(&mut self, key: &Key, weight: usize, waits: bool) -> bool {
        let memory = self.namespaces.entry(key.namespace.clone()).or_default();
        let before = memory.weights.insert(key.name.clone(), weight).unwrap_or(0);
        memory.total = memory.total - before + weight;
        self.total = self.total - before + weight;
        let was_requested = memory.requested.take_if(|name| *name == key.name).is_some();
        if waits {
            self.waiting.insert(key.clone());
        } else {
            self.waiting.remove(key);
        }
        weight < before || (was_requested && !waits)
    }

    /// The JobSet is gone.
    pub(crate) fn remove(&mut self, key: &Key) {
        self.waiting.remove(key);
        let Some(memory) = self.namespaces.get_mut(&key.namespace) else { return };
        let weight = memory.weights.remove(&key.name).unwrap_or(0);
        memory.total -= weight;
        self.total -= weight;
        if memory.weights.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
    }

    /// A JobSet that waits, if its namespace takes at most so many bytes. It waits no longer.
    pub(crate) fn next_waiting(&mut self, namespace: &str, at_most: usize) -> Option<Key> {
        let memory = self.namespaces.get_mut(namespace).filter(|memory| memory.total <= at_most)?;
        let first = Key { namespace: namespace.to_owned(), name: String::new() };
        let next = self.waiting.range(first..).next().filter(|key| key.namespace == namespace)?.clone();
        self.waiting.remove(&next);
        memory.requested = Some(next.name.clone());
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        Key { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn namespace_takes_what_its_jobsets_take() {
        let (mut room, [a, b, other]) = (Room::default(), [key("x", "a"), key("x", "b"), key("y", "a")]);
        assert!(!room.put(&a, 5, false) && !room.put(&b, 7, false) && !room.put(&other, 100, false));
        assert_eq!((room.taken_beside(&a), room.taken_beside(&b), room.taken_beside(&key("x", "c"))), (7, 5, 12));
        assert!(!room.put(&a, 6, false) && room.put(&a, 2, false));
        assert_eq!((room.taken_beside(&b), room.taken_beside(&other)), (2, 0));
        room.remove(&a);
        room.remove(&a);
        assert_eq!(room.taken_beside(&key("x", "c")), 7);
        room.remove(&b);
        assert!(!room.namespaces.contains_key("x"));
    }

    #[test]
    fn waiting_jobsets_come_one_by_one_when_there_is_room() {
        let mut room = Room::default();
        room.put(&key("x", "a"), 10, false);
        for name in ["b", "c", "d"] {
            room.put(&key("x", name), 1, true);
        }
        assert_eq!((room.next_waiting("x", 12), room.next_waiting("y", 12)), (None, None));
        assert_eq!(room.next_waiting("x", 13), Some(key("x", "b")));
        // If it finds room, the next one may, too.
        assert!(room.put(&key("x", "b"), 2, false) && !room.put(&key("x", "b"), 2, false));
        assert_eq!(room.next_waiting("x", 14), Some(key("x", "c")));
        assert!(!room.put(&key("x", "c"), 1, true));
        // One that is gone does not wait.
        room.remove(&key("x", "d"));
        assert_eq!(room.next_waiting("x", 14), Some(key("x", "c")));
        assert_eq!(room.next_waiting("x", 14), None);
    }
}
