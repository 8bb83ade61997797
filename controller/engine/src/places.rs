//! Which works may be under way at once.
//!
//! A work holds a place until each of its requests is answered or slow ([`SLOW`](super::SLOW)), so nothing that hangs holds a place
//! for longer. Works with actions have places of their own, so that status writes, which restarts in place consist of, do not wait
//! for the creations and deletions of other JobSets.

use std::collections::HashMap;

use crate::Urgency;
use crate::slow::SlowRequests;

/// Works with actions that are under way at once.
pub const PLACES: usize = 16;
/// The same for bulk work, so that urgent work always finds a place.
const BULK_PLACES: usize = 8;
/// The same for one namespace, so that requests that hang, behind a webhook for example, leave places for other namespaces.
const NAMESPACE_PLACES: usize = 12;
/// The same for one namespace that has slow requests: most of its works would only add to them.
const SLOW_NAMESPACE_PLACES: usize = 2;
/// The same for works with requests that were slow and failed when they were sent last. They hang again, as far as anybody knows.
const PROBE_PLACES: usize = 4;
/// Works without actions that are under way at once.
const STATUS_PLACES: usize = 16;
const NAMESPACE_STATUS_PLACES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkClass {
    /// No actions.
    Status,
    Actions,
    /// Requests that were slow and failed when they were sent last.
    Probe,
}

#[derive(Debug)]
struct Place {
    class: WorkClass,
    urgency: Urgency,
    namespace: String,
}

/// The places of the works under way, and the slow requests, which have left theirs.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By number of the work.
    works: HashMap<u64, Place>,
    pub(super) slow: SlowRequests,
}

impl Places {
    /// A work begins that was admitted. One without actions may have a place of one with actions.
    pub(super) fn take(&mut self, work: u64, class: WorkClass, urgency: Urgency, namespace: &str) {
        let is_beyond = class == WorkClass::Status && !self.free().admit_status(namespace);
        let class = if is_beyond { WorkClass::Actions } else { class };
        self.works.insert(work, Place { class, urgency, namespace: namespace.to_owned() });
    }

    pub(super) fn give_back(&mut self, work: u64) {
        self.works.remove(&work);
    }

    pub(super) fn free(&self) -> FreePlaces<'_> {
        let mut free = FreePlaces {
            slow: &self.slow,
            actions: PLACES,
            bulk: BULK_PLACES,
            status: STATUS_PLACES,
            taken: HashMap::new(),
        };
        for place in self.works.values() {
            let (actions, status) = free.taken.entry(&place.namespace).or_default();
            if place.urgency == Urgency::Bulk {
                free.bulk = free.bulk.saturating_sub(1);
            }
            match place.class {
                WorkClass::Actions => (free.actions, *actions) = (free.actions.saturating_sub(1), *actions + 1),
                WorkClass::Status => (free.status, *status) = (free.status.saturating_sub(1), *status + 1),
                WorkClass::Probe => {}
            }
        }
        free
    }

    /// Whether a work with requests may begin that were slow and failed when they were sent last. A namespace without slow requests
    /// has a place of its own for that: it does not wait for those of others, which hang.
    pub(super) fn admit_probe(&self, namespace: &str) -> bool {
        let probes = self.works.values().filter(|place| place.class == WorkClass::Probe);
        let of_namespace = probes.clone().filter(|place| place.namespace == namespace).count();
        if self.slow.of_namespace(namespace) == 0 && of_namespace == 0 {
            return true;
        }
        probes.count() < PROBE_PLACES && self.slow.leave_room_for_probe()
    }
}

#[derive(Debug)]
pub(super) struct FreePlaces<'a> {
    slow: &'a SlowRequests,
    actions: usize,
    bulk: usize,
    status: usize,
    /// Works with and without actions, by namespace.
    taken: HashMap<&'a str, (usize, usize)>,
}

impl FreePlaces<'_> {
    /// Whether a work may begin that may turn out to have no actions.
    pub(super) fn admit(&self, namespace: &str) -> bool {
        self.admit_status(namespace) || self.admit_actions(namespace, Urgency::Urgent)
    }

    fn admit_status(&self, namespace: &str) -> bool {
        self.status > 0 && self.taken(namespace).1 < NAMESPACE_STATUS_PLACES
    }

    /// Whether a work with actions may begin.
    pub(super) fn admit_actions(&self, namespace: &str, urgency: Urgency) -> bool {
        let is_bulk = urgency == Urgency::Bulk;
        if self.actions == 0 || is_bulk && self.bulk == 0 {
            return false;
        }
        let most = match self.slow.of_namespace(namespace) {
            0 => NAMESPACE_PLACES,
            _ if is_bulk && self.slow.hold_up_bulk(namespace) => 0,
            _ => SLOW_NAMESPACE_PLACES,
        };
        self.taken(namespace).0 < most
    }

    fn taken(&self, namespace: &str) -> (usize, usize) {
        self.taken.get(namespace).copied().unwrap_or_default()
    }
}
