//! Sends Events. They are bulk requests: nothing waits for them, and they delay nothing.

mod queue;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use jobset_api::{JobSet, labels};
use jobset_engine::{EventWrite, Stored};
use jobset_program::lock;
use jobset_program::log_limit;
use jobset_rules::Note;
use jobset_store::Key;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use prometheus::{IntCounterVec, Registry, register_int_counter_vec_with_registry};
use serde_json::json;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::error::code;
use queue::{EventLimit, EventQueue};

/// Name of the controller in its Events.
const REPORTER: &str = "jobset-controller";
/// Longest note that the API server accepts, in bytes.
const LONGEST: usize = 1024;
/// Retries of the creation of an Event after a lost answer. The name of the Event prevents a second one.
const RETRIES: usize = 2;
/// How long the program waits for its last Events when it ends. The Lease is released after that.
const LAST: Duration = Duration::from_secs(5);

/// Sends Events without delaying the loop.
#[derive(Clone)]
pub(super) struct Events {
    client: Client,
    queue: Arc<Mutex<EventQueue<Waiting>>>,
    dropped: IntCounterVec,
    sending: TaskTracker,
}

/// A write that waits to be sent.
#[derive(Debug)]
struct Waiting {
    jobset: Key,
    reason: &'static str,
    write: Write,
}

#[derive(Debug)]
enum Write {
    Create(Box<Event>),
    Repeat { name: String, times: u32 },
}

impl Events {
    pub(super) fn new(client: Client, registry: &Registry) -> prometheus::Result<Self> {
        let dropped = register_int_counter_vec_with_registry!(
            "jobset_events_dropped_total",
            "Events that were not sent because there were too many, by the limit: jobset, namespace or program.",
            &["limit"],
            registry
        )?;
        for limit in EventLimit::ALL {
            dropped.with_label_values(&[limit.name()]);
        }
        Ok(Self { client, queue: Arc::default(), dropped, sending: TaskTracker::new() })
    }

    /// Sends the writes. The log has each Event, whether the API server accepts it or not; of those that are dropped, the first
    /// few of each namespace.
    pub(super) fn send(&self, jobset: &JobSet, writes: Vec<EventWrite>) {
        let key = Key::of(jobset);
        for write in writes {
            let (reason, write) = match write {
                EventWrite::Create { name, note, stored } => {
                    if note.warning {
                        warn!(jobset = %key, reason = note.reason, "{}", note.message);
                    } else {
                        info!(jobset = %key, reason = note.reason, "{}", note.message);
                    }
                    (note.reason, Write::Create(Box::new(event(jobset, name, stored, &note))))
                }
                EventWrite::Repeat { name, times } => ("", Write::Repeat { name, times }),
                EventWrite::Drop { note } => {
                    self.dropped(EventLimit::JobSet, &key, note.reason);
                    continue;
                }
            };
            let waiting = Waiting { jobset: key.clone(), reason, write };
            if let Some((limit, dropped)) = self.queue().push(&key.namespace, waiting) {
                self.dropped(limit, &dropped.jobset, dropped.reason);
            }
        }
        while let Some(next) = self.next() {
            self.sending.spawn(self.clone().send_from(next));
        }
    }

    fn next(&self) -> Option<(String, Waiting)> {
        self.queue().next()
    }

    /// Sends this write, and then whatever waits.
    async fn send_from(self, mut next: (String, Waiting)) {
        loop {
            let (namespace, Waiting { jobset, write, .. }) = next;
            let events = Api::namespaced(self.client.clone(), &namespace);
            let sent = match write {
                Write::Create(event) => create(events, *event).await,
                Write::Repeat { name, times } => repeat(events, name, times).await,
            };
            if let Err(error) = sent {
                debug!(%jobset, error = &error as &dyn std::error::Error, "Event not written");
            }
            let mut queue = self.queue();
            queue.sent(namespace);
            match queue.next() {
                Some(another) => next = another,
                None => return,
            }
        }
    }

    /// Waits until everything is sent, for a while.
    pub(super) async fn sent(&self) {
        self.sending.close();
        if timeout(LAST, self.sending.wait()).await.is_err() {
            let waiting = self.queue().clear();
            warn!(waiting, "the program ends before all Events are sent");
        }
    }

    fn dropped(&self, limit: EventLimit, jobset: &Key, reason: &str) {
        let limit = limit.name();
        self.dropped.with_label_values(&[limit]).inc();
        if let Some(suppressed) = log_limit::permit(&jobset.namespace) {
            warn!(%jobset, reason, limit, suppressed, "an Event is dropped, because there are too many");
        }
    }

    fn queue(&self) -> MutexGuard<'_, EventQueue<Waiting>> {
        lock(&self.queue)
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
