//! Which JobSets are due. Pure: the clock is an argument.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::store::Key;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// Longest delay after failures of which trying again may be the cure.
pub(super) const LONGEST_IN_BAD_WEATHER: Duration = Duration::from_secs(5);
/// Longest delay after failures that only the user can mend.
pub(super) const LONGEST_WHEN_REFUSED: Duration = Duration::from_mins(1);

/// JobSets that were marked, each once, handed out one pass at a time.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<Key>,
    /// Marked and not handed out yet; in `ready`, unless active or held.
    marked: HashSet<Key>,
    active: HashSet<Key>,
    /// Failed, and left alone until their delay is over however often they are marked.
    held: HashSet<Key>,
    failures: HashMap<Key, u32>,
    /// When each delayed JobSet is due: one time for each.
    due: HashMap<Key, Instant>,
    by_time: BTreeSet<(Instant, Key)>,
}

impl Queue {
    /// Something changed: the JobSet is due. One that is being worked on becomes due again when that pass ends.
    pub(super) fn mark(&mut self, key: Key) {
        if self.marked.insert(key.clone()) && !self.active.contains(&key) && !self.held.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// The next JobSet that is due. It stays out until its pass ends in one of the ways below.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Key> {
        while let Some((_, key)) = self.by_time.first().filter(|(due, _)| *due <= now).cloned() {
            self.by_time.pop_first();
            self.due.remove(&key);
            if self.held.remove(&key) && self.marked.contains(&key) && !self.active.contains(&key) {
                self.ready.push_back(key);
            } else {
                self.mark(key);
            }
        }
        let key = self.ready.pop_front()?;
        self.marked.remove(&key);
        self.active.insert(key.clone());
        Some(key)
    }

    /// When the next delayed JobSet becomes due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_time.first().map(|(due, _)| *due)
    }

    /// How many JobSets are due, and wait for their turn.
    pub(super) fn depth(&self) -> usize {
        self.ready.len()
    }

    /// The pass ended well: the JobSet is due when it is marked, or at that time.
    pub(super) fn succeeded(&mut self, key: &Key, due: Option<Instant>) {
        self.failures.remove(key);
        match due {
            Some(due) => self.schedule(key, due),
            None => self.unschedule(key),
        }
        self.finish(key);
    }

    /// The JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        if self.marked.remove(key) {
            self.ready.retain(|ready| ready != key);
        }
        self.held.remove(key);
        self.failures.remove(key);
        self.unschedule(key);
    }

    /// There was no pass: the JobSet is due when it is marked, or at that time.
    pub(super) fn postpone(&mut self, key: &Key, due: Instant) {
        self.schedule(key, due);
        self.finish(key);
    }

    /// The pass worked on an outdated view: the JobSet is due when the newer one marks it, or after a delay.
    pub(super) fn outdated(&mut self, key: &Key, now: Instant) -> Duration {
        let delay = self.next_delay(key, LONGEST_IN_BAD_WEATHER);
        self.postpone(key, now + delay);
        delay
    }

    /// The pass failed: the JobSet is due after a delay that doubles with each failure up to the longest, and not before.
    pub(super) fn failed(&mut self, key: &Key, now: Instant, longest: Duration) -> Duration {
        let delay = self.next_delay(key, longest);
        self.held.insert(key.clone());
        self.postpone(key, now + delay);
        delay
    }

    fn next_delay(&mut self, key: &Key, longest: Duration) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = FIRST_BACKOFF.saturating_mul(1 << (*failures).min(20)).min(longest);
        *failures += 1;
        delay
    }

    fn schedule(&mut self, key: &Key, due: Instant) {
        self.unschedule(key);
        self.due.insert(key.clone(), due);
        self.by_time.insert((due, key.clone()));
    }

    fn unschedule(&mut self, key: &Key) {
        if let Some(before) = self.due.remove(key) {
            self.by_time.remove(&(before, key.clone()));
        }
    }

    fn finish(&mut self, key: &Key) {
        self.active.remove(key);
        if self.marked.contains(key) && !self.held.contains(key) {
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
        queue.succeeded(&key("a"), None);
        assert_eq!((queue.pop(now), queue.pop(now)), (Some(key("a")), None));
    }

    #[test]
    fn the_delay_doubles_with_each_failure_until_one_pass_succeeds() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.mark(key("a"));
        let mut delays = Vec::new();
        for _ in 0..3 {
            queue.pop(now).unwrap();
            delays.push(queue.failed(&key("a"), now, LONGEST_IN_BAD_WEATHER));
            assert_eq!(queue.pop(now), None, "not before it is due");
            now = queue.next_due().unwrap();
        }
        assert_eq!(delays, [50, 100, 200].map(Duration::from_millis));
        queue.pop(now).unwrap();
        queue.succeeded(&key("a"), None);
        queue.mark(key("a"));
        queue.pop(now).unwrap();
        assert_eq!(queue.failed(&key("a"), now, LONGEST_IN_BAD_WEATHER), Duration::from_millis(50));
    }

    #[test]
    fn marks_do_not_shorten_the_delay_after_a_failure_nor_multiply_the_retries() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.mark(key("a"));
        for _ in 0..10 {
            let due = queue.next_due().unwrap_or(now);
            queue.pop(due).unwrap();
            queue.mark(key("a"));
            queue.failed(&key("a"), due, LONGEST_IN_BAD_WEATHER);
            queue.mark(key("a"));
            assert_eq!(queue.pop(due), None, "left alone until its delay is over");
            assert_eq!(queue.by_time.len(), 1);
        }
        let due = queue.next_due().unwrap();
        assert_eq!((queue.pop(due), queue.pop(due)), (Some(key("a")), None));
    }

    #[test]
    fn a_pass_on_an_outdated_view_is_repeated_as_soon_as_the_newer_one_is_seen() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.mark(key("a"));
        queue.pop(now).unwrap();
        queue.outdated(&key("a"), now);
        assert_eq!(queue.pop(now), None);
        queue.mark(key("a"));
        assert_eq!(queue.pop(now), Some(key("a")));
    }

    #[test]
    fn the_delay_ends_at_the_longest_that_the_failure_is_worth() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.mark(key("a"));
        for longest in [LONGEST_IN_BAD_WEATHER, LONGEST_WHEN_REFUSED] {
            for _ in 0..30 {
                queue.pop(now).unwrap();
                queue.failed(&key("a"), now, longest);
                now = queue.next_due().unwrap();
            }
            queue.pop(now).unwrap();
            assert_eq!(queue.failed(&key("a"), now, longest), longest);
            now = queue.next_due().unwrap();
        }
    }

    #[test]
    fn a_pass_that_asks_for_another_one_gets_it_at_its_time() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let due = now + Duration::from_secs(1);
        queue.mark(key("a"));
        queue.pop(now).unwrap();
        queue.succeeded(&key("a"), Some(due));
        assert_eq!((queue.pop(now), queue.next_due()), (None, Some(due)));
        assert_eq!(queue.pop(due), Some(key("a")));
        queue.succeeded(&key("a"), Some(due));
        queue.mark(key("a"));
        queue.pop(now).unwrap();
        queue.succeeded(&key("a"), None);
        assert_eq!(queue.next_due(), None, "the later pass needs no other one");
    }

    #[test]
    fn nothing_is_left_of_a_jobset_that_is_gone() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.mark(key("a"));
        queue.forget(&key("a"));
        assert_eq!((queue.pop(now), queue.depth()), (None, 0));
        queue.mark(key("a"));
        queue.pop(now).unwrap();
        queue.mark(key("a"));
        queue.forget(&key("a"));
        queue.failed(&key("a"), now, LONGEST_WHEN_REFUSED);
        queue.forget(&key("a"));
        assert_eq!((queue.pop(now + Duration::from_hours(1)), queue.next_due()), (None, None));
        queue.mark(key("a"));
        assert_eq!(queue.pop(now), Some(key("a")), "one of the same name begins anew");
    }
}
