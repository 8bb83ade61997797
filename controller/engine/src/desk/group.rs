//! One JobSet at the desk.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use jobset_stream::message::Nonce;

use super::{AgentId, MOST_PAUSES, READ_PAUSE, RelayId};
use crate::GroupSnapshot;

/// First and longest back-off after a read that failed.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// The agents of a JobSet.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupDesk {
    /// Number of agents at each relay.
    relays: BTreeMap<RelayId, usize>,
    /// Number of connections of each Pod, by its UID. An agent that has lost one opens another.
    pods: HashMap<Box<str>, u32>,
    /// The newest state that is known to be stored. The agents have been told of it.
    known: Option<GroupSnapshot>,
    /// The hellos for which no read has begun.
    hellos: BTreeMap<AgentId, Nonce>,
    /// The hellos that the read under way answers.
    reading: Option<BTreeMap<AgentId, Nonce>>,
    /// When the next read may begin.
    next_read: Option<Instant>,
    /// Number of reads that have failed since the last that did not.
    failures: u32,
}

impl GroupDesk {
    pub(super) fn join(&mut self, agent: AgentId, pod_uid: Box<str>, nonce: Nonce, now: Instant) {
        *self.relays.entry(agent.0).or_default() += 1;
        *self.pods.entry(pod_uid).or_default() += 1;
        self.hellos.insert(agent, nonce);
        self.next_read.get_or_insert(now);
    }

    /// A connection has ended. Returns whether it was the last of its Pod.
    pub(super) fn leave(&mut self, agent: AgentId, pod_uid: &str) -> bool {
        let (relay, _) = agent;
        if let Some(agents) = self.relays.get_mut(&relay) {
            *agents = agents.saturating_sub(1);
            if *agents == 0 {
                self.relays.remove(&relay);
            }
        }
        self.hellos.remove(&agent);
        if let Some(reading) = &mut self.reading {
            reading.remove(&agent);
        }
        let Some(connections) = self.pods.get_mut(pod_uid) else { return false };
        *connections -= 1;
        let is_last = *connections == 0;
        if is_last {
            self.pods.remove(pod_uid);
        }
        is_last
    }

    /// Whether nothing refers to the JobSet any more.
    pub(super) fn is_forgettable(&self) -> bool {
        self.relays.is_empty() && self.reading.is_none()
    }

    /// Number of connections of each Pod that has one, by its UID.
    pub(super) fn connections(&self) -> &HashMap<Box<str>, u32> {
        &self.pods
    }

    /// The relays that have agents of it.
    pub(super) fn relays(&self) -> impl Iterator<Item = RelayId> {
        self.relays.keys().copied()
    }

    pub(super) fn known(&self) -> Option<&GroupSnapshot> {
        self.known.as_ref()
    }

    /// Takes a state in, unless a newer one is known. Returns the relays to tell: none if the agents have been told of a state that
    /// means the same.
    pub(super) fn learn(&mut self, snapshot: GroupSnapshot) -> Vec<RelayId> {
        if self.known.as_ref().is_some_and(|known| known.version > snapshot.version) {
            return Vec::new();
        }
        let is_said = self.known.as_ref().is_some_and(|known| known.state == snapshot.state);
        self.known = Some(snapshot);
        if is_said { Vec::new() } else { self.relays.keys().copied().collect() }
    }

    /// When the JobSet is to be read, if hellos wait and no read is under way.
    pub(super) fn read_due(&self) -> Option<Instant> {
        self.next_read.filter(|_| !self.hellos.is_empty() && self.reading.is_none())
    }

    /// A read begins. It answers the hellos that wait now, and none that comes later.
    pub(super) fn begin_read(&mut self, now: Instant) {
        let hellos = std::mem::take(&mut self.hellos);
        let pauses = u32::try_from(hellos.len().clamp(1, MOST_PAUSES)).unwrap_or(1);
        self.next_read = Some(now + READ_PAUSE * pauses);
        self.reading = Some(hellos);
    }

    /// The read under way has ended. Returns the hellos that have waited for it.
    pub(super) fn end_read(&mut self) -> BTreeMap<AgentId, Nonce> {
        self.failures = 0;
        self.reading.take().unwrap_or_default()
    }

    /// The read under way has failed. Its hellos wait for the next one.
    pub(super) fn read_failed(&mut self, now: Instant) {
        let backoff = FIRST_BACKOFF.saturating_mul(1 << self.failures.min(16)).min(LONGEST_BACKOFF);
        self.failures = self.failures.saturating_add(1);
        self.next_read = Some(now + backoff);
        self.hellos.append(&mut self.reading.take().unwrap_or_default());
    }

    /// The read under way answers nothing. Its hellos wait for the next one.
    pub(super) fn read_again(&mut self) {
        self.hellos.append(&mut self.reading.take().unwrap_or_default());
    }
}
