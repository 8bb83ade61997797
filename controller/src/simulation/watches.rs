//! The controller's watches: a stream for each kind, in the order in which the API server wrote, and as late as chance
//! has it. What two streams show has no order.

use std::collections::VecDeque;

use crate::store::WatchEvent;

/// What is watched. Nodes, namespaces and PriorityClasses there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchedKind {
    JobSets,
    Jobs,
    Pods,
    Services,
}

pub(super) const KINDS: [WatchedKind; 4] =
    [WatchedKind::JobSets, WatchedKind::Jobs, WatchedKind::Pods, WatchedKind::Services];

/// Events that were sent and have not arrived.
#[derive(Debug, Default)]
pub(super) struct Watches([VecDeque<WatchEvent>; KINDS.len()]);

impl Watches {
    pub(super) fn send(&mut self, kind: WatchedKind, seen: WatchEvent) {
        self.0[kind as usize].push_back(seen);
    }

    pub(super) fn receive(&mut self, kind: WatchedKind) -> Option<WatchEvent> {
        self.0[kind as usize].pop_front()
    }

    pub(super) fn has(&self, kind: WatchedKind) -> bool {
        !self.0[kind as usize].is_empty()
    }

    /// The watch is lost, with all that was under way: what follows is a listing.
    pub(super) fn begin_anew(&mut self, kind: WatchedKind, listing: impl IntoIterator<Item = WatchEvent>) {
        self.0[kind as usize] = listing.into_iter().collect();
    }
}
