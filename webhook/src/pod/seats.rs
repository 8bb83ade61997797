//! How many followers wait for their leaders at the same time, and of which namespaces: Pods of one namespace, which may name
//! Jobs that do not exist, do not take the places of all others.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A number of seats. A namespace gets one more as long as it has fewer than are free: one alone gets half of them, and the
/// next one finds half of the rest.
#[derive(Debug)]
pub(super) struct Seats(Mutex<Taken>);

#[derive(Debug)]
struct Taken {
    free: usize,
    of: HashMap<String, usize>,
}

/// One that is taken, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    seats: &'a Seats,
    namespace: &'a str,
}

impl Seats {
    pub(super) fn new(count: usize) -> Self {
        Self(Mutex::new(Taken { free: count, of: HashMap::new() }))
    }

    /// A seat, if this namespace gets one more.
    pub(super) fn take<'a>(&'a self, namespace: &'a str) -> Option<Seat<'a>> {
        let mut taken = self.lock();
        let has = taken.of.get(namespace).copied().unwrap_or_default();
        if has >= taken.free {
            return None;
        }
        taken.free -= 1;
        taken.of.insert(namespace.to_owned(), has + 1);
        Some(Seat { seats: self, namespace })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        taken.free += 1;
        match taken.of.get_mut(self.namespace) {
            Some(has) if *has > 1 => *has -= 1,
            _ => drop(taken.of.remove(self.namespace)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_gets_half_of_seats_and_leaves_some() {
        let seats = Seats::new(256);
        let take = |namespace| std::iter::from_fn(|| seats.take(namespace)).collect::<Vec<_>>();
        let [flood, next, last] = ["flood", "next", "last"].map(take);
        assert_eq!([flood.len(), next.len(), last.len()], [128, 64, 32]);
        drop(flood);
        assert_eq!(take("last").len(), (256 - 64 - 32 - 32) / 2);
        drop((next, last));
        assert_eq!(take("flood").len(), 128);
        assert!(seats.lock().of.is_empty() && seats.lock().free == 256, "{seats:?}");
    }
}
