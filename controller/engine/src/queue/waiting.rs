//! A list of JobSets that wait for their turn.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use jobset_store::Key;

/// JobSets of one list. Namespaces take turns, and within one its JobSets.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    turns: VecDeque<String>,
    /// By namespace; none is empty.
    keys: HashMap<String, BTreeMap<u64, (Key, Instant)>>,
}

impl Waiting {
    pub(super) fn push(&mut self, number: u64, key: &Key, now: Instant) {
        let keys = self.keys.entry(key.namespace.clone()).or_default();
        if keys.is_empty() {
            self.turns.push_back(key.namespace.clone());
        }
        keys.insert(number, (key.clone(), now));
    }

    pub(super) fn pop(&mut self, may: impl Fn(&str) -> bool) -> Option<Key> {
        let place = self.turns.iter().position(|namespace| may(namespace))?;
        let namespace = self.turns.remove(place)?;
        let keys = self.keys.get_mut(&namespace)?;
        let (_, (key, _)) = keys.pop_first()?;
        if keys.is_empty() {
            self.keys.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        Some(key)
    }

    pub(super) fn remove(&mut self, number: u64, namespace: &str) {
        let Some(keys) = self.keys.get_mut(namespace) else { return };
        keys.remove(&number);
        if keys.is_empty() {
            self.keys.remove(namespace);
            self.turns.retain(|turn| turn != namespace);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.values().map(BTreeMap::len).sum()
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        self.keys.values().filter_map(|keys| keys.values().next()).map(|(_, since)| *since).min()
    }
}
