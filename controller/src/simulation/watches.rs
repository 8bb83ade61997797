//! The controller's watches: a stream for each kind, in the order in which the API server wrote, and as late as chance
//! has it. What two streams show has no order.

use std::collections::VecDeque;

use crate::store::Seen;

/// What is watched. Nodes, namespaces and PriorityClasses there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    JobSets,
    Jobs,
    Pods,
    Services,
}

pub(super) const KINDS: [Kind; 4] = [Kind::JobSets, Kind::Jobs, Kind::Pods, Kind::Services];

/// Events that were sent and have not arrived.
#[derive(Debug, Default)]
pub(super) struct Watches([VecDeque<Seen>; KINDS.len()]);

impl Watches {
    pub(super) fn send(&mut self, kind: Kind, seen: Seen) {
        self.0[kind as usize].push_back(seen);
    }

    pub(super) fn receive(&mut self, kind: Kind) -> Option<Seen> {
        self.0[kind as usize].pop_front()
    }

    pub(super) fn has(&self, kind: Kind) -> bool {
        !self.0[kind as usize].is_empty()
    }

    /// The watch is lost, with all that was under way: what follows is a listing.
    pub(super) fn begin_anew(&mut self, kind: Kind, listing: impl IntoIterator<Item = Seen>) {
        self.0[kind as usize] = listing.into_iter().collect();
    }
}
