//! The agent stream: what relays say goes to the desk and the store, and what the desk says waits for the shell.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use jobset_api::JobSet;
use jobset_store::pods::StreamReport;
use jobset_store::{Key, StreamAgents};
use jobset_stream::message::AgentEvent;

use crate::desk::{Desk, DeskOutput, ReadOutcome, RelayId, RelayMessage};
use crate::internal_error::caught;
use crate::missing::MissingAgents;
use crate::snapshot::uses_relay;
use crate::{Engine, GroupSnapshot, Now, Urgency};

/// What happens on the stream.
#[derive(Clone, Debug)]
pub enum StreamEvent {
    /// The connection to a relay is ready.
    Connected(RelayId),
    /// The agents of a relay have done this.
    Agents(RelayId, Vec<AgentEvent>),
    /// The connection to a relay has ended.
    Gone(RelayId),
    /// One of [`StreamWork::reads`] has ended.
    Read(Arc<Key>, ReadOutcome),
}

/// What the shell does for the stream.
#[derive(Debug, Default)]
pub struct StreamWork {
    /// What to sign and send, in this order.
    pub messages: Vec<(RelayId, RelayMessage)>,
    /// The JobSets to read from the API server itself, not from a cache. [`StreamEvent::Read`] is the answer.
    pub reads: Vec<Arc<Key>>,
    /// The namespaces of Pods that mount the CA of the relays, if they may have changed.
    pub namespaces: Option<BTreeSet<String>>,
}

/// The numbers of the stream, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Connected relays.
    pub relays: usize,
    /// Connected agents.
    pub agents: usize,
    /// Reports so far.
    pub reports: u64,
    /// Answers to agents so far.
    pub answers: u64,
    /// States of JobSets that were sent to relays so far.
    pub broadcasts: u64,
    /// Reads of JobSets so far.
    pub reads: u64,
}

/// The engine's end of the stream. Without the stream, no relay ever connects.
#[derive(Debug, Default)]
pub(super) struct Stream {
    desk: Desk,
    work: StreamWork,
    /// The JobSets whose Pods can speak with a relay.
    users: BTreeSet<Key>,
    /// Whether they have changed since the shell was told of their namespaces.
    users_changed: bool,
    /// Those of them whose agents may be missing.
    missing: MissingAgents,
    counts: StreamCounts,
}

impl Stream {
    /// A JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.users_changed |= self.users.remove(key);
        self.missing.forget(key);
    }

    /// When there is something to say or to look at although nothing has happened.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.desk.next_due().into_iter().chain(self.missing.next_due()).min()
    }

    /// What is known of the agents of a JobSet.
    pub(super) fn agents(&self, key: &Key, now: Instant) -> StreamAgents<'_> {
        StreamAgents { connections: self.desk.connections(key), missing_for: self.missing.missing_for(key, now) }
    }

    /// A reconciliation has looked whether agents are missing.
    pub(super) fn note_missing(&mut self, key: &Key, misses_agents: bool, now: Instant) {
        if misses_agents {
            self.missing.note(key, now);
        } else {
            self.missing.forget(key);
        }
    }
}

impl Engine {
    /// Answers agents of this namespace alone, if there is one.
    #[must_use]
    pub fn in_namespace(mut self, namespace: Option<String>) -> Self {
        self.stream.desk = Desk::new(namespace);
        self
    }

    /// What the leader states over the stream has times of this clock.
    pub fn set_stream_clock(&mut self, clock: Now) {
        self.stream.desk.set_clock(clock);
    }

    /// Takes an event of the stream in.
    pub fn hear(&mut self, event: StreamEvent, now: Now) {
        let desk = &mut self.stream.desk;
        let outputs = match event {
            StreamEvent::Connected(relay) => desk.relay_connected(relay, now),
            StreamEvent::Agents(relay, events) => desk.agent_events(relay, events, now.instant),
            StreamEvent::Gone(relay) => desk.relay_gone(relay),
            StreamEvent::Read(key, outcome) => desk.read(&key, outcome, now.instant),
        };
        self.heed(outputs, now.instant);
    }

    /// What the shell has to do for the stream since the last call.
    pub fn take_stream_work(&mut self, now: Instant) -> StreamWork {
        let outputs = self.stream.desk.next(now);
        self.heed(outputs, now);
        let Stream { work, users, users_changed, .. } = &mut self.stream;
        if std::mem::take(users_changed) {
            work.namespaces = Some(users.iter().map(|key| key.namespace.clone()).collect());
        }
        std::mem::take(work)
    }

    /// Forgets all connections: this replica does not lead.
    pub fn forget_relays(&mut self) {
        self.stream.desk.clear();
        self.stream.work = StreamWork::default();
        self.stream.missing = MissingAgents::default();
    }

    /// The numbers of the stream.
    pub fn stream_counts(&self) -> StreamCounts {
        let Stream { desk, counts, .. } = &self.stream;
        StreamCounts { relays: desk.relays(), agents: desk.agents(), ..*counts }
    }

    /// A JobSet was observed, or its status was written with success.
    pub(super) fn note_stored(&mut self, jobset: &JobSet, now: Instant) {
        // It has no agents, or its specification was not read: they keep what they were told.
        if jobset.spec.replicated_jobs.is_empty() {
            return;
        }
        let (key, Stream { desk, users, users_changed, .. }) = (Key::of(jobset), &mut self.stream);
        *users_changed |= if uses_relay(jobset) { users.insert(key.clone()) } else { users.remove(&key) };
        let outputs = desk.stored(&key, GroupSnapshot::of(jobset), now);
        self.heed(outputs, now);
    }

    /// Has reconciliations look at the JobSets whose agents have been missing for a while.
    pub(super) fn look_for_agents(&mut self, now: Instant) {
        while let Some(key) = self.stream.missing.take_due(now) {
            self.mark(&key, Urgency::Bulk, now);
        }
    }

    /// Takes a report of an agent in: it is worth an event of its Pod with this epoch in the annotation. The larger epoch counts.
    pub(crate) fn apply_report(&mut self, key: &Key, report: StreamReport, now: Instant) {
        match caught(|| self.store.apply_report(key, report)) {
            Ok(true) => self.mark(key, Urgency::Urgent, now),
            Ok(false) => {}
            Err(panic) => self.after_panic(Some(key), panic, now),
        }
    }

    /// Carries out what the desk says, or leaves it to the shell.
    fn heed(&mut self, outputs: Vec<DeskOutput>, now: Instant) {
        for output in outputs {
            let Stream { work, counts, .. } = &mut self.stream;
            match output {
                DeskOutput::Report { key, report } => {
                    counts.reports += 1;
                    self.apply_report(&key, report, now);
                }
                DeskOutput::AgentGone { key, pod_uid } => {
                    self.store.agent_gone(&key, &pod_uid);
                    if self.stream.users.contains(&*key) {
                        self.stream.missing.note(&key, now);
                    }
                }
                DeskOutput::Read(key) => {
                    counts.reads += 1;
                    work.reads.push(key);
                }
                DeskOutput::Send(relay, message) => {
                    match &message {
                        RelayMessage::Answers { agents, .. } => {
                            counts.answers += u64::try_from(agents.len()).unwrap_or(0);
                        }
                        RelayMessage::Group { is_repeated: false, .. } => counts.broadcasts += 1,
                        RelayMessage::Group { .. } | RelayMessage::Beat(_) => {}
                    }
                    work.messages.push((relay, message));
                }
            }
        }
    }
}
