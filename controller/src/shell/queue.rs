//! Which JobSets are due. Pure: the clock is an argument.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::store::Key;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_mins(1);

/// JobSets that were marked, each once, handed out one pass at a time.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<Key>,
    waiting: HashSet<Key>,
    active: HashSet<Key>,
    failures: HashMap<Key, u32>,
    later: BTreeMap<(Instant, u64), Key>,
    sequence: u64,
}

impl Queue {
    /// Something changed: the JobSet is due. One that is being worked on becomes due again when that pass ends.
    pub(super) fn mark(&mut self, key: Key) {
        if self.waiting.insert(key.clone()) && !self.active.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// The next JobSet that is due. It stays out until [`Queue::succeeded`] or [`Queue::failed`].
    pub(super) fn pop(&mut self, now: Instant) -> Option<Key> {
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            self.mark(key);
        }
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        self.active.insert(key.clone());
        Some(key)
    }

    /// When the next delayed JobSet becomes due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((due, _), _)| *due)
    }

    /// The pass ended well.
    pub(super) fn succeeded(&mut self, key: &Key) {
        self.failures.remove(key);
        self.finish(key);
    }

    /// There was no pass: the JobSet is due when it is marked, or at that time.
    pub(super) fn postpone(&mut self, key: &Key, due: Instant) {
        if !self.later.values().any(|later| later == key) {
            self.sequence += 1;
            self.later.insert((due, self.sequence), key.clone());
        }
        self.finish(key);
    }

    /// The pass failed: the JobSet is due again after a delay that doubles with each failure.
    pub(super) fn failed(&mut self, key: &Key, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = FIRST_BACKOFF.saturating_mul(1 << (*failures).min(20)).min(LONGEST_BACKOFF);
        *failures += 1;
        self.sequence += 1;
        self.later.insert((now + delay, self.sequence), key.clone());
        self.finish(key);
        delay
    }

    fn finish(&mut self, key: &Key) {
        self.active.remove(key);
        if self.waiting.contains(key) {
            self.ready.push_back(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: "default".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_key_is_handed_out_once_however_often_it_was_marked() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.mark(key("a"));
        queue.mark(key("a"));
        assert_eq!((queue.pop(now), queue.pop(now)), (Some(key("a")), None));
    }

    #[test]
    fn a_key_marked_during_its_pass_is_due_again_afterwards_and_not_before() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.mark(key("a"));
        queue.pop(now);
        queue.mark(key("a"));
        assert_eq!(queue.pop(now), None);
        queue.succeeded(&key("a"));
        assert_eq!((queue.pop(now), queue.pop(now)), (Some(key("a")), None));
    }

    #[test]
    fn the_delay_doubles_with_each_failure_until_one_pass_succeeds() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.mark(key("a"));
        let mut delays = Vec::new();
        for _ in 0..3 {
            queue.pop(now).unwrap();
            delays.push(queue.failed(&key("a"), now));
            assert_eq!(queue.pop(now), None, "not before it is due");
            now = queue.next_due().unwrap();
        }
        assert_eq!(delays, [50, 100, 200].map(Duration::from_millis));
        queue.pop(now).unwrap();
        queue.succeeded(&key("a"));
        queue.mark(key("a"));
        queue.pop(now).unwrap();
        assert_eq!(queue.failed(&key("a"), now), Duration::from_millis(50));
    }
}
