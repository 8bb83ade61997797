//! Reports of agents over the stream, which come before the annotations of their Pods.

use std::time::Instant;

use super::internal_error::caught;
use super::pods::StreamReport;
use super::{Engine, Key, Urgency};

impl Engine {
    /// Takes a report of an agent in: it is worth an event of its Pod with this epoch in the annotation. The larger epoch counts.
    pub fn see_report(&mut self, key: &Key, report: StreamReport, now: Instant) {
        let Some(group) = self.groups.get_mut(key).filter(|group| group.jobset.is_some()) else { return };
        match caught(|| group.pods.see_report(report)) {
            Ok(true) => self.queue.mark(key, &mut group.progress.turn, Urgency::Urgent, now),
            Ok(false) => {}
            Err(panic) => self.drop_entry(key, panic, now),
        }
    }

    /// The connection of an agent has ended. Its report stays if its Pod was observed.
    pub fn agent_gone(&mut self, key: &Key, pod_uid: &str) {
        if let Some(group) = self.groups.get_mut(key) {
            group.pods.agent_gone(pod_uid);
        }
    }
}
