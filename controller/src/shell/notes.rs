//! Events on JobSets.

use std::collections::{BTreeMap, HashMap};

use jobset_api::{JobSet, JobSetStatus, labels};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::plan::Note;
use crate::store::Key;

/// Name under which the events are reported.
const REPORTER: &str = "jobset-controller";
/// Longest text that the API takes, in bytes.
const LONGEST: usize = 1024;

/// Records notes as Events: one that holds pass after pass, once. A refusal that repeats is counted in the series of its
/// Event, as the Go JobSet does, each time that it has doubled.
pub(super) struct Notes {
    client: Client,
    last: HashMap<Key, HashMap<Note, Told>>,
    sending: TaskTracker,
}

/// The Event that a note was recorded as.
struct Told {
    /// Name of the Event.
    event: String,
    /// How often it was told of.
    times: u32,
}

impl Notes {
    pub(super) fn new(client: Client) -> Self {
        Self { client, last: HashMap::new(), sending: TaskTracker::new() }
    }

    /// Reports the notes of a pass that the pass before did not have. `stored` is what is stored of the JobSet's status now.
    /// `refused` are the requests that the API server refuses at present, each with how often it was refused.
    pub(super) fn report(
        &mut self,
        key: &Key,
        jobset: &JobSet,
        stored: Stored,
        notes: Vec<Note>,
        refused: Vec<(Note, u32)>,
    ) {
        let mut before = self.last.remove(key).unwrap_or_default();
        let mut told = HashMap::new();
        for (note, times) in notes.into_iter().map(|note| (note, 1)).chain(refused) {
            if told.contains_key(&note) {
                continue;
            }
            let known = before.remove(&note);
            let event = match known {
                None => self.publish(key, jobset, stored, &note),
                Some(known) if known.times < times => {
                    // What is refused for days costs a few writes, not one a minute.
                    if times.is_power_of_two() {
                        self.repeat(key, &known.event, times);
                    }
                    known.event
                }
                Some(known) => known.event,
            };
            told.entry(note).or_insert(Told { event, times });
        }
        if !told.is_empty() {
            self.last.insert(key.clone(), told);
        }
    }

    /// The JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.last.remove(key);
    }

    /// Creates an Event of its own for the note, since a series keeps the text of its first. The name of the Event.
    fn publish(&self, key: &Key, jobset: &JobSet, stored: Stored, note: &Note) -> String {
        if note.warning {
            warn!(jobset = %key, reason = note.reason, message = note.message, "warning");
        } else {
            info!(jobset = %key, reason = note.reason, message = note.message, "note");
        }
        let namespace = jobset.namespace().unwrap_or_default();
        let name = format!("{}.{:016x}", jobset.name_any(), fastrand::u64(..));
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
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
        name
    }

    /// Counts another occurrence in the series of an Event.
    fn repeat(&self, key: &Key, event: &str, times: u32) {
        let series = json!({"series": {"count": times, "lastObservedTime": MicroTime(Timestamp::now())}});
        let events = Api::<Event>::namespaced(self.client.clone(), &key.namespace);
        let (key, event) = (key.clone(), event.to_owned());
        self.sending.spawn(async move {
            if let Err(error) = events.patch(&event, &PatchParams::default(), &Patch::Merge(series)).await {
                debug!(jobset = %key, error = &error as &dyn std::error::Error, "event not counted");
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
