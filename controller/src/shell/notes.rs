//! Events on JobSets.

use std::collections::{BTreeMap, HashMap, HashSet};

use jobset_api::{JobSet, JobSetStatus, labels};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::plan::Note;
use crate::store::Key;

/// Name under which the events are reported.
const REPORTER: &str = "jobset-controller";
/// Longest text that the API takes, in bytes.
const LONGEST: usize = 1024;

/// Records notes as Events: one that holds pass after pass, once.
pub(super) struct Notes {
    client: Client,
    last: HashMap<Key, HashSet<Note>>,
    sending: TaskTracker,
}

impl Notes {
    pub(super) fn new(client: Client) -> Self {
        Self { client, last: HashMap::new(), sending: TaskTracker::new() }
    }

    /// Reports the notes of a pass that the pass before did not have. `stored` is what is stored of the JobSet's status now.
    pub(super) fn report(&mut self, key: &Key, jobset: &JobSet, stored: Stored, notes: Vec<Note>) {
        let notes: HashSet<Note> = notes.into_iter().collect();
        let before = self.last.remove(key).unwrap_or_default();
        for note in notes.difference(&before) {
            if note.warning {
                warn!(jobset = %key, reason = note.reason, message = note.message, "warning");
            } else {
                info!(jobset = %key, reason = note.reason, message = note.message, "note");
            }
            self.publish(key, jobset, stored, note);
        }
        if !notes.is_empty() {
            self.last.insert(key.clone(), notes);
        }
    }

    /// The JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.last.remove(key);
    }

    fn publish(&self, key: &Key, jobset: &JobSet, stored: Stored, note: &Note) {
        // An Event of its own for each note: a series would keep the text of the first.
        let namespace = jobset.namespace().unwrap_or_default();
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", jobset.name_any())),
                namespace: Some(namespace.clone()),
                annotations: Some(stored.annotations(note)),
                ..ObjectMeta::default()
            },
            type_: Some(if note.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(note.reason.to_owned()),
            note: Some(shortened(&note.message)),
            action: Some("Reconcile".to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            regarding: Some(jobset.object_ref(&())),
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some(REPORTER.to_owned()),
            ..Event::default()
        };
        let (events, key) = (Api::<Event>::namespaced(self.client.clone(), &namespace), key.clone());
        // No pass waits for an Event, and none is worth a second one; the log has it in any case.
        self.sending.spawn(async move {
            if let Err(error) = events.create(&PostParams::default(), &event).await {
                debug!(jobset = %key, error = &error as &dyn std::error::Error, "event not recorded");
            }
        });
    }

    /// Waits until the Events that are under way have been sent.
    pub(super) async fn sent(&self) {
        self.sending.close();
        self.sending.wait().await;
    }
}

/// What programs read of a JobSet in its Events, as it was stored when they were reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    group_restarts: i32,
    counted: i32,
    epoch: i32,
}

impl Stored {
    pub(super) fn of(status: &JobSetStatus) -> Self {
        Self {
            group_restarts: status.group_restarts,
            counted: status.restarts_count_towards_max,
            epoch: status.synced_epoch,
        }
    }

    fn annotations(self, note: &Note) -> BTreeMap<String, String> {
        let numbers = [
            (labels::EVENT_GROUP_RESTARTS, self.group_restarts),
            (labels::EVENT_RESTARTS_COUNT_TOWARDS_MAX, self.counted),
            (labels::EVENT_SYNCED_EPOCH, self.epoch),
        ];
        let failed_at = note.failed_at.map(|at| (labels::EVENT_FAILED_AT.to_owned(), at.to_string()));
        let numbers = numbers.into_iter().map(|(key, number)| (key.to_owned(), number.to_string()));
        numbers.chain(failed_at).collect()
    }
}

/// The text, cut to what the API takes.
fn shortened(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LONGEST - "...".len());
    format!("{}...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let cut = shortened(&"\u{e9}".repeat(LONGEST));
        assert!(cut.len() <= LONGEST && cut.ends_with("..."), "{}", cut.len());
    }
}
