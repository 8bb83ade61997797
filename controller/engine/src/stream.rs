//! Reports of agents over the stream, which come before the annotations of their Pods.

use std::time::Instant;

use jobset_store::Key;
use jobset_store::pods::StreamReport;

use crate::internal_error::caught;
use crate::{Engine, Urgency};

impl Engine {
    /// Takes a report of an agent in: it is worth an event of its Pod with this epoch in the annotation. The larger epoch counts.
    pub fn apply_report(&mut self, key: &Key, report: StreamReport, now: Instant) {
        match caught(|| self.store.apply_report(key, report)) {
            Ok(true) => self.mark(key, Urgency::Urgent, now),
            Ok(false) => {}
            Err(panic) => self.after_panic(Some(key), panic, now),
        }
    }

    /// The connection of an agent has ended. Its report stays if its Pod was observed.
    pub fn agent_gone(&mut self, key: &Key, pod_uid: &str) {
        self.store.agent_gone(key, pod_uid);
    }
}
