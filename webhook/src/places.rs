//! Places in which reviews are computed, and whose turn it is for one.

mod queue;

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::party::Party;
use crate::registry::lock;
use queue::{Queue, Ticket};

/// A number of places that parties share ([`Queue`] says how).
#[derive(Debug)]
pub(crate) struct Places(Mutex<Queue<oneshot::Sender<()>>>);

/// A place, or the wait for one. Dropping it ends either, and the next one that waits gets what is free.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    ticket: Ticket,
}

impl Places {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Queue::new(count))))
    }

    /// A place, when it is this party's turn. A caller that gives up no longer waits.
    pub(crate) async fn take(self: &Arc<Self>, party: Party) -> Place {
        let (sender, given) = oneshot::channel();
        let place = {
            let mut queue = lock(&self.0);
            let ticket = queue.enter(party, sender);
            give(&mut queue);
            Place { places: Arc::clone(self), ticket }
        };
        // The other end is dropped only by what this place itself does when it is dropped.
        let _ = given.await;
        place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queue = lock(&self.places.0);
        queue.leave(&self.ticket);
        give(&mut queue);
    }
}

fn give(queue: &mut Queue<oneshot::Sender<()>>) {
    while let Some(waiter) = queue.next() {
        // One that has given up meanwhile gives the place back as soon as it can lock the queue.
        let _ = waiter.send(());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt as _;

    use super::*;

    fn party(namespace: &str) -> Party {
        Party { address: Ipv4Addr::LOCALHOST.into(), namespace: namespace.into() }
    }

    #[tokio::test]
    async fn place_that_was_given_to_one_that_gives_up_goes_to_next() {
        let places = Places::new(1);
        let held = places.take(party("a")).await;
        let [mut first, mut second] = ["b", "c"].map(|namespace| Box::pin(places.take(party(namespace))));
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        drop(held);
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        let second = second.now_or_never().unwrap();
        assert!(places.take(party("d")).now_or_never().is_none());
        drop(second);
        assert!(places.take(party("d")).now_or_never().is_some());
    }
}
