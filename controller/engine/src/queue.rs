//! The order in which JobSets are reconciled: urgent work before bulk work, and within each list, turns between namespaces.

mod waiting;

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use jobset_store::Key;

use waiting::Waiting;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// Longest back-off after transient errors.
pub(super) const LONGEST_AFTER_TRANSIENT: Duration = Duration::from_secs(5);
/// Longest back-off after a refused status.
pub(super) const LONGEST_AFTER_REFUSAL: Duration = Duration::from_mins(1);

/// How soon a JobSet must be reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Urgency {
    /// After all urgent work: what a plan creates or deletes in numbers, and counts for people.
    Bulk,
    /// A report, a failure, a changed specification, or a decision that is due.
    Urgent,
}

/// A list of JobSets that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    Bulk,
    /// For a place for urgent actions. Nothing has changed since these were planned.
    Actions,
    Urgent,
}

/// When a JobSet is marked without an event, and how.
pub(super) type Due = (Instant, Urgency);

/// How the turn of a JobSet ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum TurnEnd {
    /// The reconciliation succeeded. The JobSet is due when it is marked, or at this time.
    Succeeded(Option<Due>),
    /// Nothing was reconciled. The JobSet is due when it is marked, or at this time, or when it was due before.
    Requeued(Due),
    /// The reconciliation used an outdated state. The JobSet is due when the newer state marks it, or after a back-off.
    Outdated,
    /// The reconciliation failed. The JobSet is due after a back-off that doubles with each failure, up to this, and not before.
    Failed(Duration),
}

/// The place of one JobSet in the queue.
#[derive(Debug, Default)]
struct Turn {
    /// Whether something has changed since the last reconciliation began.
    marked: Option<Urgency>,
    /// Whether the last reconciliation found no place for its urgent actions.
    has_actions: bool,
    /// The list that the JobSet waits in, and its number there.
    waits: Option<(List, u64)>,
    /// The next mark is at least this urgent: an urgent reconciliation waits for something to be observed.
    deferred: Option<Urgency>,
    /// Whether a reconciliation is under way.
    active: bool,
    /// Whether marks wait until the back-off is over.
    held: bool,
    failures: u32,
    due: Option<Due>,
}

#[derive(Debug)]
pub(super) struct Order(pub(super) [List; 3]);

impl Default for Order {
    fn default() -> Self {
        Self([List::Actions, List::Urgent, List::Bulk])
    }
}

/// JobSets that wait for their reconciliation.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) order: Order,
    turns: HashMap<Key, Turn>,
    lists: Lists,
}

/// The lists in which JobSets wait.
#[derive(Debug, Default)]
struct Lists {
    urgent: Waiting,
    actions: Waiting,
    bulk: Waiting,
    by_time: BTreeSet<(Instant, Key)>,
    entered: u64,
}

impl Queue {
    /// Something has changed. A JobSet whose reconciliation is under way is due again when that ends.
    pub(super) fn mark(&mut self, key: &Key, urgency: Urgency, now: Instant) {
        let turn = self.turns.entry(key.clone()).or_default();
        turn.marked = turn.marked.max(Some(urgency)).max(turn.deferred);
        self.lists.enter(key, turn, now);
    }

    /// Begins the turn of the next JobSet of this list in a namespace that may have one.
    pub(super) fn pop(&mut self, list: List, may: impl Fn(&str) -> bool) -> Option<Key> {
        let key = self.lists.list(list).pop(may)?;
        if let Some(turn) = self.turns.get_mut(&key) {
            turn.begin();
        }
        Some(key)
    }

    /// Marks the JobSets whose time has come: a back-off is over, or a decision is due.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.next_due().is_some_and(|due| due <= now)
            && let Some((_, key)) = self.lists.by_time.pop_first()
        {
            let Some(turn) = self.turns.get_mut(&key) else { continue };
            turn.held = false;
            if let Some((_, urgency)) = turn.due.take() {
                self.mark(&key, urgency, now);
            }
        }
    }

    /// The earliest instant at which a delayed JobSet is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lists.by_time.first().map(|(due, _)| *due)
    }

    /// Number of JobSets that wait for their turn.
    pub(super) fn depth(&self) -> usize {
        self.lists.urgent.len() + self.lists.actions.len() + self.lists.bulk.len()
    }

    /// Since when the JobSet waits that has waited longest with urgent work.
    pub(super) fn oldest_urgent(&self) -> Option<Instant> {
        [self.lists.urgent.oldest(), self.lists.actions.oldest()].into_iter().flatten().min()
    }

    /// The reconciliation found no place for its urgent actions. The JobSet waits for one.
    pub(super) fn keep_actions(&mut self, key: &Key, now: Instant) {
        if let Some(turn) = self.turns.get_mut(key) {
            turn.has_actions = true;
            self.lists.enter(key, turn, now);
        }
    }

    /// The turn of the JobSet ends.
    pub(super) fn end(&mut self, key: &Key, end: TurnEnd, now: Instant) {
        let Some(turn) = self.turns.get_mut(key) else { return };
        let due = match end {
            TurnEnd::Succeeded(due) => {
                turn.failures = 0;
                due
            }
            TurnEnd::Requeued(due) => {
                turn.deferred = Some(due.1);
                Some(turn.due.filter(|(before, _)| *before < due.0).unwrap_or(due))
            }
            TurnEnd::Outdated => Some((now + turn.backoff(LONGEST_AFTER_TRANSIENT), Urgency::Urgent)),
            TurnEnd::Failed(longest) => {
                turn.held = true;
                Some((now + turn.backoff(longest), Urgency::Urgent))
            }
        };
        turn.active = false;
        self.lists.schedule(key, turn, due);
        self.lists.enter(key, turn, now);
    }

    /// The JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some(mut turn) = self.turns.remove(key) {
            self.lists.schedule(key, &mut turn, None);
            self.lists.leave(key, &mut turn);
        }
    }
}

impl Lists {
    fn enter(&mut self, key: &Key, turn: &mut Turn, now: Instant) {
        let waits = turn.waits.map(|(list, _)| list);
        let list = turn.list().filter(|list| Some(*list) > waits);
        let Some(list) = list.filter(|_| !turn.active && !turn.held) else { return };
        self.leave(key, turn);
        self.entered += 1;
        turn.waits = Some((list, self.entered));
        let number = self.entered;
        self.list(list).push(number, key, now);
    }

    fn leave(&mut self, key: &Key, turn: &mut Turn) {
        if let Some((list, number)) = turn.waits.take() {
            self.list(list).remove(number, &key.namespace);
        }
    }

    fn schedule(&mut self, key: &Key, turn: &mut Turn, due: Option<Due>) {
        if let Some((before, _)) = std::mem::replace(&mut turn.due, due) {
            self.by_time.remove(&(before, key.clone()));
        }
        self.by_time.extend(due.map(|(due, _)| (due, key.clone())));
    }

    fn list(&mut self, list: List) -> &mut Waiting {
        match list {
            List::Bulk => &mut self.bulk,
            List::Actions => &mut self.actions,
            List::Urgent => &mut self.urgent,
        }
    }
}

impl Turn {
    /// The JobSet was taken from the queue. Its reconciliation begins.
    fn begin(&mut self) {
        (self.waits, self.marked, self.deferred, self.active) = (None, None, None, true);
        self.has_actions = false;
    }

    /// The list that the JobSet belongs to, if it has to wait for anything.
    fn list(&self) -> Option<List> {
        match self.marked {
            Some(Urgency::Urgent) => Some(List::Urgent),
            _ if self.has_actions => Some(List::Actions),
            Some(Urgency::Bulk) => Some(List::Bulk),
            None => None,
        }
    }

    fn backoff(&mut self, longest: Duration) -> Duration {
        let backoff = FIRST_BACKOFF.saturating_mul(1 << self.failures.min(20)).min(longest);
        self.failures += 1;
        backoff
    }
}

#[cfg(test)]
mod tests {
    use super::List::Actions;
    use super::TurnEnd::{Failed, Outdated, Requeued, Succeeded};
    use super::Urgency::{Bulk, Urgent};
    use super::*;

    /// A queue of JobSets as `namespace/name`.
    #[derive(Default)]
    struct TestQueue(Queue);

    fn key(text: &str) -> Key {
        let (namespace, name) = text.split_once('/').unwrap();
        Key { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    impl TestQueue {
        fn mark(&mut self, text: &str, urgency: Urgency, now: Instant) {
            self.0.mark(&key(text), urgency, now);
        }

        fn pop(&mut self, urgency: Urgency, now: Instant) -> Option<String> {
            self.0.expire(now);
            let list = if urgency == Urgent { List::Urgent } else { List::Bulk };
            self.0.pop(list, |_| true).map(|key| key.to_string())
        }

        fn all(&mut self, urgency: Urgency, now: Instant) -> Vec<String> {
            std::iter::from_fn(|| self.pop(urgency, now)).collect()
        }

        fn end(&mut self, text: &str, end: TurnEnd, now: Instant) {
            self.0.end(&key(text), end, now);
        }
    }

    #[test]
    fn queue_namespaces_take_turns_and_then_their_jobsets() {
        let (mut world, now) = (TestQueue::default(), Instant::now());
        for text in ["a/1", "a/2", "a/3", "b/1", "c/1", "b/2"] {
            world.mark(text, Urgent, now);
        }
        assert_eq!(world.all(Urgent, now), ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]);
    }

    #[test]
    fn key_marked_twice_is_taken_once_at_higher_urgency() {
        let (mut world, now) = (TestQueue::default(), Instant::now());
        world.mark("a/1", Bulk, now);
        world.mark("a/2", Bulk, now);
        world.mark("a/1", Urgent, now);
        world.mark("a/1", Bulk, now);
        assert_eq!((world.0.depth(), world.0.oldest_urgent()), (2, Some(now)));
        assert_eq!((world.all(Urgent, now), world.all(Bulk, now)), (vec!["a/1".to_owned()], vec!["a/2".to_owned()]));
        assert_eq!((world.0.depth(), world.0.oldest_urgent()), (0, None));
    }

    #[test]
    fn key_marked_during_its_turn_follows_the_turn() {
        let (mut world, now) = (TestQueue::default(), Instant::now());
        world.mark("a/1", Bulk, now);
        world.pop(Bulk, now);
        world.mark("a/1", Urgent, now);
        assert_eq!(world.pop(Urgent, now), None);
        world.end("a/1", Succeeded(None), now);
        assert_eq!(world.pop(Urgent, now).as_deref(), Some("a/1"));
    }

    #[test]
    fn failures_double_backoff_and_marks_keep_it() {
        let (mut world, mut now) = (TestQueue::default(), Instant::now());
        world.mark("a/1", Urgent, now);
        let mut waits = Vec::new();
        for _ in 0..3 {
            world.pop(Urgent, now).unwrap();
            world.mark("a/1", Urgent, now);
            world.end("a/1", Failed(LONGEST_AFTER_TRANSIENT), now);
            world.mark("a/1", Urgent, now);
            assert_eq!(world.pop(Urgent, now), None, "left alone until the back-off is over");
            let due = world.0.next_due().unwrap();
            waits.push(due.duration_since(now).as_millis());
            now = due;
        }
        assert_eq!(waits, [50, 100, 200]);
        world.pop(Urgent, now).unwrap();
        world.end("a/1", Succeeded(None), now);
        world.mark("a/1", Urgent, now);
        world.pop(Urgent, now).unwrap();
        world.end("a/1", Failed(LONGEST_AFTER_TRANSIENT), now);
        assert_eq!(world.0.next_due(), Some(now + Duration::from_millis(50)));
    }

    #[test]
    fn queue_outdated_state_is_reconciled_with_the_next_mark() {
        let (mut world, now) = (TestQueue::default(), Instant::now());
        world.mark("a/1", Urgent, now);
        world.pop(Urgent, now).unwrap();
        world.end("a/1", Outdated, now);
        assert_eq!(world.pop(Urgent, now), None);
        world.mark("a/1", Urgent, now);
        assert_eq!(world.pop(Urgent, now).as_deref(), Some("a/1"));
    }

    #[test]
    fn requeued_urgent_key_stays_urgent_after_bulk_mark() {
        let (mut world, now) = (TestQueue::default(), Instant::now());
        let later = now + Duration::from_secs(5);
        world.mark("a/1", Urgent, now);
        world.pop(Urgent, now).unwrap();
        world.end("a/1", Requeued((later, Urgent)), now);
        world.mark("a/1", Bulk, now);
        assert_eq!(world.pop(Urgent, now).as_deref(), Some("a/1"));
        world.end("a/1", Succeeded(Some((later, Bulk))), now);
        assert_eq!((world.pop(Urgent, later), world.pop(Bulk, later).as_deref()), (None, Some("a/1")));
    }

    #[test]
    fn key_with_actions_waits_until_marked_urgent() {
        let (mut world, now) = (TestQueue::default(), Instant::now());
        world.mark("a/1", Urgent, now);
        world.pop(Urgent, now).unwrap();
        world.0.keep_actions(&key("a/1"), now);
        world.end("a/1", Succeeded(None), now);
        world.mark("a/1", Bulk, now);
        assert_eq!((world.pop(Urgent, now), world.pop(Bulk, now)), (None, None));
        assert_eq!(world.0.pop(Actions, |_| true), Some(key("a/1")));
    }

    #[test]
    fn queue_forgotten_key_leaves_nothing() {
        let (mut world, now) = (TestQueue::default(), Instant::now());
        for text in ["a/1", "a/2", "b/1"] {
            world.mark(text, Urgent, now);
        }
        world.pop(Urgent, now).unwrap();
        world.end("a/1", Failed(LONGEST_AFTER_TRANSIENT), now);
        for text in ["a/1", "a/2", "b/1"] {
            world.0.forget(&key(text));
        }
        assert_eq!((world.0.depth(), world.0.next_due()), (0, None));
        assert_eq!(world.all(Urgent, now), Vec::<String>::new());
    }
}
