//! Places in which reviews are computed, and whose turn it is for one.

mod queue;

use std::sync::{Arc, Mutex};

use jobset_program::server::party::Party;
use jobset_program::server::pool::lock;
use tokio::sync::oneshot;

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
        let (place, given) = self.enter(party);
        // The other end is dropped only by what this place itself does when it is dropped.
        let _ = given.await;
        place
    }

    /// A place, if this party gets one now.
    pub(crate) fn take_now(self: &Arc<Self>, party: Party) -> Option<Place> {
        let (place, mut given) = self.enter(party);
        given.try_recv().is_ok().then_some(place)
    }

    fn enter(self: &Arc<Self>, party: Party) -> (Place, oneshot::Receiver<()>) {
        let (sender, given) = oneshot::channel();
        let mut queue = lock(&self.0);
        let ticket = queue.enter(party, sender);
        give(&mut queue);
        (Place { places: Arc::clone(self), ticket }, given)
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
        Party::of(Ipv4Addr::LOCALHOST.into()).with_namespace(namespace)
    }

    #[test]
    fn namespace_alone_takes_half_and_next_half_of_rest() {
        let places = Places::new(256);
        let take = |namespace| std::iter::from_fn(|| places.take_now(party(namespace))).collect::<Vec<_>>();
        let [flood, next, last] = ["flood", "next", "last"].map(take);
        assert_eq!([flood.len(), next.len(), last.len()], [128, 64, 32]);
        drop(flood);
        assert_eq!(take("last").len(), (256 - 64 - 32 - 32) / 2);
        drop((next, last));
        assert_eq!(take("flood").len(), 128);
    }

    #[tokio::test]
    async fn place_of_one_that_gives_up_goes_to_next() {
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
