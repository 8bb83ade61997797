//! The engine: every decision about what the controller does next, as one pure value around the [store](jobset_store).
//!
//! Watch events go in. There is no clock and no client here. An event is taken in before its JobSet is marked, so whoever
//! handles the mark finds what caused it.

mod answers;
mod desk;
mod event_log;
mod internal_error;
mod missing;
mod places;
mod progress;
#[cfg(test)]
mod proof;
mod queue;
mod refusals;
mod schedule;
mod slow;
mod snapshot;
mod stream;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeMap;
use std::time::Instant;

use jobset_rules::Settings;
use jobset_store::{Change, Changes, Key, Kind, MemoryLimits, Store, WatchEvent};

#[cfg(test)]
use desk::{Desk, DeskOutput};
pub use desk::{ReadOutcome, RelayId, RelayMessage};
pub use internal_error::catches_panics;
use internal_error::caught;
pub use places::PLACES;
use places::Places;
use progress::Progress;
use queue::Queue;
pub use queue::Urgency;
pub use refusals::Request;
pub use schedule::SLICE;
pub use slow::{Part, RequestId, SLOW, SLOW_REQUESTS};
pub use snapshot::GroupSnapshot;
use stream::Stream;
pub use stream::{StreamCounts, StreamEvent, StreamWork};
pub use work::{Confirmed, Effects, EventWrite, Failure, Now, Outcome, RequestError, Stored, Work};

/// All that the controller knows and remembers.
#[derive(Debug, Default)]
pub struct Engine {
    settings: Settings,
    store: Store,
    /// What is remembered of the own work on each JobSet. One that is observed has an entry in the store, too.
    progress: BTreeMap<Key, Progress>,
    queue: Queue,
    places: Places,
    stream: Stream,
    /// Number of the last work.
    number: u64,
    internal_errors: u64,
}

impl Engine {
    /// An engine that has observed nothing.
    pub fn new(settings: Settings) -> Self {
        let limits =
            MemoryLimits { of_jobset: settings.limits.most_memory(), of_namespace: settings.memory_of_namespace };
        Self { settings, store: Store::new(limits), ..Self::default() }
    }

    /// Takes an event in. Returns the JobSets that are gone.
    pub fn apply(&mut self, event: WatchEvent, now: Instant) -> Vec<Key> {
        let jobset = match &event {
            WatchEvent::Put { object, view, .. } if view.kind() == Kind::JobSet => Some(object.clone()),
            _ => None,
        };
        let gone = self.apply_by(event, now, Store::apply);
        for key in &gone {
            self.stream.forget(key);
        }
        if let Some(jobset) = jobset.and_then(|key| self.store.jobset(&key).cloned()) {
            self.note_stored(&jobset, now);
        }
        gone
    }

    /// The same for the store and the queue. `apply` changes the store; if it panics, that costs the JobSet its entry.
    fn apply_by(
        &mut self,
        event: WatchEvent,
        now: Instant,
        apply: impl FnOnce(&mut Store, WatchEvent) -> Changes,
    ) -> Vec<Key> {
        let concerned = self.store.concerned(&event);
        let changes = match caught(|| apply(&mut self.store, event)) {
            Ok(changes) => changes,
            Err(panic) => {
                self.after_panic(concerned.as_ref(), panic, now);
                return Vec::new();
            }
        };
        changes.ended.iter().for_each(|key| self.forget(key));
        let mut gone = Vec::new();
        for (key, change) in changes.changed {
            if self.store.jobset(&key).is_some() {
                self.mark(&key, self.urgency_of(&key, change), now);
            } else {
                gone.push(key);
            }
        }
        gone
    }

    /// Takes listed objects in that were listed again. The watches tell of all others.
    pub fn rebuild(&mut self, key: &Key, objects: Vec<WatchEvent>, now: Instant) {
        let known: Vec<_> = objects.into_iter().filter(|event| self.store.knows(event)).collect();
        for event in known {
            self.apply(event, now);
        }
        if self.progress.get_mut(key).is_some_and(Progress::end_rebuilding) {
            self.mark(key, Urgency::Urgent, now);
        }
    }

    /// The JobSets whose objects the shell must list again, and pass to [`Engine::rebuild`]: their entries were dropped since the last
    /// call, or they can be read now.
    pub fn take_relist(&mut self) -> Vec<Key> {
        self.store.take_relist()
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Number of panics that were caught.
    pub fn internal_errors(&self) -> u64 {
        self.internal_errors
    }

    fn mark(&mut self, key: &Key, urgency: Urgency, now: Instant) {
        self.progress.entry(key.clone()).or_default();
        self.queue.mark(key, urgency, now);
    }

    /// How soon a change must be planned for. One of many children can wait, as all of them may be changing, and so can those that a
    /// plan in slices creates.
    fn urgency_of(&self, key: &Key, change: Change) -> Urgency {
        let has_many = || self.store.entry(key).is_some_and(|entry| entry.jobs.len() > SLICE);
        let is_sliced = || self.progress.get(key).is_some_and(|progress| progress.rest.is_some());
        match change {
            Change::Decision => Urgency::Urgent,
            Change::Child if !has_many() && !is_sliced() => Urgency::Urgent,
            Change::Child | Change::Counts => Urgency::Bulk,
        }
    }

    /// A JobSet is gone, with all that is remembered of the work on it.
    fn forget(&mut self, key: &Key) {
        self.progress.remove(key);
        self.queue.forget(key);
        self.places.slow.forget(key);
    }

    /// What is remembered of the work on a JobSet that is observed.
    fn progress_of(&mut self, key: &Key) -> Option<&mut Progress> {
        self.progress.get_mut(key).filter(|_| self.store.jobset(key).is_some())
    }
}
