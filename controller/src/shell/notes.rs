//! Events on JobSets.

use std::collections::{HashMap, HashSet};

use jobset_api::JobSet;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tracing::{info, warn};

use crate::plan::Note;
use crate::store::Key;

/// Name under which the events are reported.
const REPORTER: &str = "jobset-controller";

/// Records notes as Events: one that holds pass after pass, once.
pub(super) struct Notes {
    recorder: Recorder,
    last: HashMap<Key, HashSet<Note>>,
}

impl Notes {
    pub(super) fn new(client: Client) -> Self {
        Self { recorder: Recorder::new(client, Reporter::from(REPORTER)), last: HashMap::new() }
    }

    /// Reports the notes of a pass that the pass before did not have.
    pub(super) fn report(&mut self, key: &Key, jobset: &JobSet, notes: Vec<Note>) {
        let notes: HashSet<Note> = notes.into_iter().collect();
        let before = self.last.remove(key).unwrap_or_default();
        for note in notes.difference(&before) {
            if note.warning {
                warn!(jobset = %key, reason = note.reason, message = note.message, "warning");
            } else {
                info!(jobset = %key, reason = note.reason, message = note.message, "note");
            }
            self.publish(key, jobset, note);
        }
        if !notes.is_empty() {
            self.last.insert(key.clone(), notes);
        }
    }

    /// The JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.last.remove(key);
    }

    fn publish(&self, key: &Key, jobset: &JobSet, note: &Note) {
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: note.reason.to_owned(),
            note: Some(note.message.clone()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let (recorder, reference, key) = (self.recorder.clone(), jobset.object_ref(&()), key.clone());
        // Nobody waits for an Event, and none is worth a second pass.
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &reference).await {
                warn!(jobset = %key, error = &error as &dyn std::error::Error, "event not recorded");
            }
        });
    }
}
