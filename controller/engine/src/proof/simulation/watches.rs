//! The controller's watches: a stream for each kind, in the order in which the API server wrote, and as late as chance
//! has it. Events of two streams have no order.

use std::collections::VecDeque;

use jobset_store::{Kind, WatchEvent};

/// The kinds that the simulated API server has.
pub(super) const KINDS: [Kind; 4] = [Kind::JobSet, Kind::Job, Kind::Pod, Kind::Service];

/// Events that were sent and have not arrived.
#[derive(Debug, Default)]
pub(super) struct Watches([VecDeque<WatchEvent>; KINDS.len()]);

impl Watches {
    pub(super) fn send(&mut self, kind: Kind, event: WatchEvent) {
        self.of(kind).push_back(event);
    }

    pub(super) fn receive(&mut self, kind: Kind) -> Option<WatchEvent> {
        self.of(kind).pop_front()
    }

    pub(super) fn has(&mut self, kind: Kind) -> bool {
        !self.of(kind).is_empty()
    }

    /// The watch is lost, with all that was under way: what follows is a listing.
    pub(super) fn begin_anew(&mut self, kind: Kind, objects: impl IntoIterator<Item = WatchEvent>) {
        let listing = [WatchEvent::ListingBegins(kind)].into_iter().chain(objects);
        *self.of(kind) = listing.chain([WatchEvent::ListingEnded(kind)]).collect();
    }

    fn of(&mut self, kind: Kind) -> &mut VecDeque<WatchEvent> {
        let place = KINDS.iter().position(|it| *it == kind).unwrap_or_default();
        &mut self.0[place]
    }
}
