//! When the state of each JobSet is said again. The JobSets are spread evenly, so that thousands do not come at once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jobset_store::Key;
use jobset_stream::BEAT;

/// Parts of the time between two statements about a JobSet. Those of one part are signed together.
const PARTS: u32 = 30;
/// Time between two parts.
pub(super) const PART: Duration = BEAT.checked_div(PARTS).unwrap();

/// The JobSets whose agents know a state.
#[derive(Clone, Debug)]
pub(super) struct Repeats {
    parts: [BTreeSet<Arc<Key>>; PARTS as usize],
    part_of: HashMap<Arc<Key>, usize>,
    /// The part that is next, and when. `None` without a JobSet.
    next: Option<(usize, Instant)>,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| BTreeSet::new()), part_of: HashMap::new(), next: None }
    }
}

impl Repeats {
    /// The state of this JobSet is said again from now on.
    pub(super) fn add(&mut self, key: &Arc<Key>, now: Instant) {
        if self.part_of.contains_key(key) {
            return;
        }
        let (next, _) = *self.next.get_or_insert((0, now + PART));
        // Of parts with as few, the last one: the JobSet was spoken of just now.
        let last_first = (0..self.parts.len()).map(|after| (next + self.parts.len() - 1 - after) % self.parts.len());
        let part = last_first.min_by_key(|part| self.parts[*part].len()).unwrap_or_default();
        self.parts[part].insert(Arc::clone(key));
        self.part_of.insert(Arc::clone(key), part);
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let Some(part) = self.part_of.remove(key) else { return };
        self.parts[part].remove(key);
        if self.part_of.is_empty() {
            self.next = None;
        }
    }

    /// When [`Repeats::take_due`] has a JobSet.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let (next, due) = self.next?;
        let waits =
            (0..self.parts.len()).position(|after| !self.parts[(next + after) % self.parts.len()].is_empty())?;
        Some(due + PART * u32::try_from(waits).unwrap_or(PARTS))
    }

    /// The JobSets that are due, each once however late it is.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Arc<Key>> {
        let mut keys = Vec::new();
        let Some((mut next, mut due)) = self.next else { return keys };
        for _ in 0..self.parts.len() {
            if due > now {
                break;
            }
            keys.extend(self.parts[next].iter().cloned());
            (next, due) = ((next + 1) % self.parts.len(), due + PART);
        }
        // After a stop of the loop, the parts do not catch up.
        self.next = Some((next, if due <= now { now + PART } else { due }));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> Vec<Arc<Key>> {
        (0..count).map(|number| Arc::new(Key { namespace: "ml".to_owned(), name: number.to_string() })).collect()
    }

    /// How many JobSets are due in each part from this one on.
    fn due_in_parts(repeats: &mut Repeats, start: Instant, parts: std::ops::RangeInclusive<u32>) -> Vec<usize> {
        parts.map(|part| repeats.take_due(start + PART * part).len()).collect()
    }

    #[test]
    fn thousand_jobsets_are_spread_evenly_over_the_beat() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        for key in keys(1_000) {
            repeats.add(&key, start);
        }
        for round in 0..3 {
            let due = due_in_parts(&mut repeats, start, round * PARTS + 1..=(round + 1) * PARTS);
            assert_eq!(due.iter().sum::<usize>(), 1_000);
            assert!(due.iter().all(|due| (33..=34).contains(due)), "{due:?}");
        }
    }

    #[test]
    fn single_jobset_is_due_once_a_beat_and_rests_between() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let key = &keys(1)[0];
        repeats.add(key, start);
        repeats.add(key, start + PART);
        for round in 1..5 {
            assert_eq!(repeats.next_due(), Some(start + BEAT * round));
            assert_eq!(repeats.take_due(start + PART * (PARTS * round - 1)), []);
            assert_eq!(repeats.take_due(start + BEAT * round), [Arc::clone(key)]);
        }
        repeats.remove(key);
        assert_eq!(repeats.next_due(), None);
    }

    #[test]
    fn jobsets_that_are_late_are_due_once() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        for key in keys(90) {
            repeats.add(&key, start);
        }
        let late = start + BEAT * 10;
        assert_eq!(repeats.take_due(late).len(), 90);
        assert_eq!(repeats.take_due(late), []);
        assert_eq!(due_in_parts(&mut repeats, late, 1..=PARTS), [3; PARTS as usize]);
    }

    #[test]
    fn parts_of_jobsets_that_left_are_filled_again() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let keys = keys(60);
        keys[..30].iter().for_each(|key| repeats.add(key, start));
        keys[..15].iter().for_each(|key| repeats.remove(key));
        keys[30..45].iter().for_each(|key| repeats.add(key, start));
        assert_eq!(due_in_parts(&mut repeats, start, 1..=PARTS), [1; PARTS as usize]);
    }
}
