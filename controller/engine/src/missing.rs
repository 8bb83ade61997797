//! The JobSets whose agents may be missing on the stream, and when somebody looks. No event says that an agent stays away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jobset_rules::RECONNECT_TIME;
use jobset_store::Key;

#[derive(Debug, Default)]
pub(super) struct MissingAgents {
    jobsets: BTreeMap<Key, Missing>,
    looks: BTreeSet<(Instant, Key)>,
}

#[derive(Debug)]
struct Missing {
    since: Instant,
    /// When to look next; `None` while a reconciliation is to look.
    next_look: Option<Instant>,
}

impl MissingAgents {
    /// Agents of the JobSet are missing, or may be. After a while, a reconciliation is to look, and then again and again.
    pub(super) fn note(&mut self, key: &Key, now: Instant) {
        let missing = self.jobsets.entry(key.clone()).or_insert(Missing { since: now, next_look: None });
        if missing.next_look.is_none() {
            let look = now + RECONNECT_TIME;
            missing.next_look = Some(look);
            self.looks.insert((look, key.clone()));
        }
    }

    /// None is missing, or the JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some(Missing { next_look: Some(look), .. }) = self.jobsets.remove(key) {
            self.looks.remove(&(look, key.clone()));
        }
    }

    /// For how long agents of the JobSet may have been missing.
    pub(super) fn missing_for(&self, key: &Key, now: Instant) -> Duration {
        self.jobsets.get(key).map(|missing| now.saturating_duration_since(missing.since)).unwrap_or_default()
    }

    /// When [`MissingAgents::take_due`] has a JobSet.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.looks.first().map(|(look, _)| *look)
    }

    /// A JobSet of which a reconciliation is to look now.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Key> {
        self.next_due().filter(|look| *look <= now)?;
        let (_, key) = self.looks.pop_first()?;
        if let Some(missing) = self.jobsets.get_mut(&key) {
            missing.next_look = None;
        }
        Some(key)
    }
}
