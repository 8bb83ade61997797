//! Writes of Events that wait to be sent. Their number is bounded for each namespace and for all together, and no namespace takes
//! the place of another that has fewer. Namespaces take turns; of each, one write is under way.

use std::collections::{HashMap, VecDeque};

/// Writes of one namespace that wait.
const OF_NAMESPACE: usize = 500;
/// Writes of all namespaces that wait: some 10 MB.
const OF_ALL: usize = 5_000;
/// Writes under way, each of another namespace.
const UNDER_WAY: usize = 16;

/// Writes that wait.
#[derive(Debug)]
pub(super) struct EventQueue<T> {
    namespaces: HashMap<String, OfNamespace<T>>,
    /// The namespaces with writes that wait and none under way.
    turns: VecDeque<String>,
    waiting: usize,
    under_way: usize,
}

#[derive(Debug)]
struct OfNamespace<T> {
    waiting: VecDeque<T>,
    is_under_way: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventLimit {
    JobSet,
    /// Too many Events of its namespace wait.
    Namespace,
    /// Too many Events of all namespaces wait.
    Program,
}

impl EventLimit {
    pub(super) const ALL: [Self; 3] = [Self::JobSet, Self::Namespace, Self::Program];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::JobSet => "jobset",
            Self::Namespace => "namespace",
            Self::Program => "program",
        }
    }
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self { namespaces: HashMap::new(), turns: VecDeque::new(), waiting: 0, under_way: 0 }
    }
}

impl<T> EventQueue<T> {
    /// Puts a write last in its namespace. Returns the write that is dropped for it, if one has to be: this one, or the last of
    /// the namespace with most of them.
    pub(super) fn push(&mut self, namespace: &str, write: T) -> Option<(EventLimit, T)> {
        let own = self.namespaces.get(namespace).map_or(0, |it| it.waiting.len());
        if own >= OF_NAMESPACE {
            return Some((EventLimit::Namespace, write));
        }
        let mut dropped = None;
        if self.waiting >= OF_ALL {
            let largest = self.namespaces.values_mut().max_by_key(|it| it.waiting.len());
            match largest.filter(|largest| largest.waiting.len() > own + 1) {
                Some(largest) => dropped = largest.waiting.pop_back(),
                None => return Some((EventLimit::Program, write)),
            }
            self.waiting -= 1;
        }
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.to_owned(), OfNamespace { waiting: VecDeque::new(), is_under_way: false });
        }
        if let Some(of_namespace) = self.namespaces.get_mut(namespace) {
            if of_namespace.waiting.is_empty() && !of_namespace.is_under_way {
                self.turns.push_back(namespace.to_owned());
            }
            of_namespace.waiting.push_back(write);
            self.waiting += 1;
        }
        dropped.map(|write| (EventLimit::Program, write))
    }

    /// The next write to send, with its namespace. Call [`EventQueue::sent`] once it is answered.
    pub(super) fn next(&mut self) -> Option<(String, T)> {
        if self.under_way >= UNDER_WAY {
            return None;
        }
        let namespace = self.turns.pop_front()?;
        let of_namespace = self.namespaces.get_mut(&namespace)?;
        let write = of_namespace.waiting.pop_front()?;
        of_namespace.is_under_way = true;
        (self.waiting, self.under_way) = (self.waiting - 1, self.under_way + 1);
        Some((namespace, write))
    }

    /// The write of this namespace that was under way is answered.
    pub(super) fn sent(&mut self, namespace: String) {
        let Some(of_namespace) = self.namespaces.get_mut(&namespace) else { return };
        of_namespace.is_under_way = false;
        self.under_way -= 1;
        if of_namespace.waiting.is_empty() {
            self.namespaces.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
    }

    /// Drops all writes that wait. Returns their number.
    pub(super) fn clear(&mut self) -> usize {
        self.turns.clear();
        for of_namespace in self.namespaces.values_mut() {
            of_namespace.waiting.clear();
        }
        self.namespaces.retain(|_, it| it.is_under_way);
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(dropped: impl Iterator<Item = Option<(EventLimit, usize)>>) -> Vec<(EventLimit, usize)> {
        dropped.flatten().collect()
    }

    #[test]
    fn namespace_with_too_many_writes_loses_its_last() {
        let mut queue = EventQueue::default();
        let dropped = limits((0..OF_NAMESPACE + 2).map(|number| queue.push("a", number)));
        assert_eq!(dropped, [(EventLimit::Namespace, OF_NAMESPACE), (EventLimit::Namespace, OF_NAMESPACE + 1)]);
        assert_eq!(queue.push("b", 0), None);
    }

    #[test]
    fn namespaces_with_many_writes_make_room_for_one_with_few() {
        let mut queue = EventQueue::default();
        let hostile: Vec<String> = (0..OF_ALL).map(|number| format!("hostile-{}", number % 20)).collect();
        assert_eq!(limits(hostile.iter().enumerate().map(|(number, namespace)| queue.push(namespace, number))), []);
        let each = OF_ALL / hostile.len().min(20);
        let dropped = limits((0..each).map(|number| queue.push("few", number)));
        // The last one of the few would be as many as another namespace has.
        assert!(dropped.len() == each && dropped.iter().all(|(limit, _)| *limit == EventLimit::Program));
        let kept: Vec<usize> = queue.namespaces["few"].waiting.iter().copied().collect();
        assert!(kept.len() >= each * 9 / 10 && kept.iter().copied().eq(0..kept.len()), "{}", kept.len());
        assert_eq!(queue.waiting, OF_ALL);
        assert!(queue.push("hostile-0", 0).is_some());
        assert_eq!(queue.waiting, OF_ALL);
    }

    #[test]
    fn namespaces_take_turns_with_one_write_under_way_each() {
        let mut queue = EventQueue::default();
        for number in 0..3 {
            queue.push("many", number);
        }
        queue.push("one", 7);
        assert_eq!(queue.next(), Some(("many".to_owned(), 0)));
        assert_eq!(queue.next(), Some(("one".to_owned(), 7)));
        queue.push("one", 9);
        assert_eq!(queue.next(), None, "both have one under way");
        queue.sent("many".to_owned());
        assert_eq!(queue.next(), Some(("many".to_owned(), 1)));
        queue.sent("one".to_owned());
        queue.push("one", 8);
        assert_eq!(queue.next(), Some(("one".to_owned(), 9)));
        queue.sent("one".to_owned());
        assert_eq!(queue.clear(), 2);
        queue.sent("many".to_owned());
        assert_eq!((queue.next(), queue.namespaces.len(), queue.under_way), (None, 0, 0));
    }

    #[test]
    fn writes_under_way_are_bounded() {
        let mut queue = EventQueue::default();
        for number in 0..=UNDER_WAY {
            queue.push(&number.to_string(), number);
        }
        let begun = std::iter::from_fn(|| queue.next()).count();
        assert_eq!(begun, UNDER_WAY);
        queue.sent("0".to_owned());
        assert_eq!(queue.next(), Some((UNDER_WAY.to_string(), UNDER_WAY)));
    }
}
