//! Sends Events.

use std::collections::BTreeMap;

use backon::{ConstantBuilder, Retryable as _};
use futures::FutureExt as _;
use jobset_api::{JobSet, labels};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::error::code;
use crate::engine::{EventWrite, Key, Stored};
use crate::plan::Note;

/// Name of the controller in its Events.
const REPORTER: &str = "jobset-controller";
/// Longest note that the API server accepts, in bytes.
const LONGEST: usize = 1024;
/// Retries of the creation of an Event after a lost answer. The name of the Event prevents a second one.
const RETRIES: usize = 2;

/// Sends Events without delaying the loop.
pub(super) struct Events {
    client: Client,
    sending: TaskTracker,
}

impl Events {
    pub(super) fn new(client: Client) -> Self {
        Self { client, sending: TaskTracker::new() }
    }

    /// Sends the writes. The log has each Event, whether the API server accepts it or not.
    pub(super) fn send(&self, jobset: &JobSet, writes: Vec<EventWrite>) {
        for write in writes {
            let key = Key::of(jobset);
            let events = Api::namespaced(self.client.clone(), &key.namespace);
            let sent = match write {
                EventWrite::Create { name, note, stored } => {
                    if note.warning {
                        warn!(jobset = %key, reason = note.reason, "{}", note.message);
                    } else {
                        info!(jobset = %key, reason = note.reason, "{}", note.message);
                    }
                    create(events, event(jobset, name, stored, &note)).boxed()
                }
                EventWrite::Repeat { name, times } => repeat(events, name, times).boxed(),
            };
            self.sending.spawn(async move {
                if let Err(error) = sent.await {
                    debug!(jobset = %key, error = &error as &dyn std::error::Error, "Event not written");
                }
            });
        }
    }

    /// Waits until everything is sent.
    pub(super) async fn sent(&self) {
        self.sending.close();
        self.sending.wait().await;
    }
}

async fn create(events: Api<Event>, event: Event) -> kube::Result<Event> {
    let params = PostParams::default();
    let lost = |error: &kube::Error| code(error).is_none_or(|code| code >= 500);
    let again = ConstantBuilder::default().with_max_times(RETRIES);
    (|| events.create(&params, &event)).retry(again).when(lost).await
}

/// Counts another occurrence in the series of an Event.
async fn repeat(events: Api<Event>, name: String, times: u32) -> kube::Result<Event> {
    let series = json!({"series": {"count": times, "lastObservedTime": MicroTime(Timestamp::now())}});
    events.patch(&name, &PatchParams::default(), &Patch::Merge(series)).await
}

fn event(jobset: &JobSet, name: String, stored: Stored, note: &Note) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: jobset.metadata.namespace.clone(),
            annotations: Some(annotations(stored, note)),
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
    }
}

/// The annotations of an Event: numbers of the stored status, for programs.
fn annotations(stored: Stored, note: &Note) -> BTreeMap<String, String> {
    let numbers = [
        (labels::EVENT_GROUP_RESTARTS, stored.group_restarts),
        (labels::EVENT_RESTARTS_COUNT_TOWARDS_MAX, stored.counted),
        (labels::EVENT_SYNCED_EPOCH, stored.epoch),
    ];
    let failed_at = note.failed_at.map(|at| (labels::EVENT_FAILED_AT.to_owned(), at.to_string()));
    let numbers = numbers.into_iter().map(|(key, number)| (key.to_owned(), number.to_string()));
    numbers.chain(failed_at).collect()
}

/// The message, cut to the length that the API server accepts.
fn shortened(message: &str) -> String {
    if message.len() <= LONGEST {
        return message.to_owned();
    }
    format!("{}...", &message[..message.floor_char_boundary(LONGEST - "...".len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_long_message_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let cut = shortened(&"\u{e9}".repeat(LONGEST));
        assert!(cut.len() <= LONGEST && cut.ends_with("..."), "{}", cut.len());
    }
}
