//! What waits for one agent.

use std::collections::VecDeque;

use jobset_stream::frame::encode;
use jobset_stream::message::{Kind, ToAgent};
use tokio_util::bytes::Bytes;

use crate::limits::AGENT_QUEUE;

/// The number of no controller.
const NOBODY: u64 = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub kind: Kind,
    pub message: Bytes,
    controller: u64,
}

/// The certificates of a leader, as agents get them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaderCertificates {
    controller: u64,
    message: Bytes,
}

impl LeaderCertificates {
    pub(super) fn new(controller: u64, message: Bytes) -> Self {
        Self { controller, message }
    }
}

/// Messages that wait for one agent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Outgoing>,
    /// The certificates that the agent knows when it has read everything.
    leader: Option<Bytes>,
}

impl Outbox {
    /// Adds a statement, and the certificates of its leader if the last ones were others. `false` if too much waits.
    ///
    /// The agent needs a sign of life only while it gets nothing else, and only the last statement about its JobSet of a leader.
    pub(super) fn push(&mut self, leader: &LeaderCertificates, kind: Kind, statement: &Bytes) -> bool {
        if kind == Kind::Beat && !self.waiting.is_empty() {
            return true;
        }
        if kind == Kind::Group {
            self.waiting.retain(|it| it.kind != Kind::Group || it.controller != leader.controller);
        }
        let mut add = |kind, message: &Bytes| {
            let message = message.clone();
            self.waiting.push_back(Outgoing { kind, message, controller: leader.controller });
        };
        if self.leader.as_ref() != Some(&leader.message) {
            add(Kind::Leader, &leader.message);
            self.leader = Some(leader.message.clone());
        }
        add(kind, statement);
        self.waiting.len() <= AGENT_QUEUE
    }

    /// Tells an agent that has just said hello who leads, so that it knows that somebody will answer.
    pub(super) fn introduce(&mut self, leader: &LeaderCertificates) {
        let message = leader.message.clone();
        self.waiting.push_back(Outgoing { kind: Kind::Leader, message, controller: leader.controller });
        self.leader = Some(leader.message.clone());
    }

    /// Tells an agent that nobody leads, so that it does not wait for an answer.
    pub(super) fn say_leaderless(&mut self) {
        if self.waiting.iter().any(|it| it.controller == NOBODY) {
            return;
        }
        if let Ok(message) = encode(&ToAgent::NoLeader) {
            self.waiting.push_back(Outgoing { kind: Kind::Leader, message, controller: NOBODY });
        }
    }

    /// Takes the oldest messages.
    pub(super) fn take(&mut self, most: usize) -> Vec<Outgoing> {
        let most = most.min(self.waiting.len());
        let taken = self.waiting.drain(..most).collect();
        if self.waiting.is_empty() {
            // Most agents wait for nothing most of the time.
            self.waiting = VecDeque::new();
        }
        taken
    }
}
