//! The one watch on the Pod's JobSet.
//!
//! It begins with streaming initial events and an **empty** resourceVersion, which asks for a state as new as now; `"0"`
//! would accept any cached one, possibly of an API server that lags behind the last. The first state counts when the
//! initial events have ended. Afterwards the watch goes on from the last resourceVersion; when that is gone, it begins
//! anew. What fails is tried again, for ever.

use std::time::Duration;

use futures::TryStreamExt;
use jobset_protocol::{GROUP, RESOURCE, VERSION};
use kube::Client;
use kube::api::{WatchEvent, WatchParams};
use kube::core::{Request, Status};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::backoff::jittered;
use crate::decide::{Input, JobSetState};
use crate::error::Failure;
use crate::jobset::JobSetView;
use crate::pace::Pace;

/// Annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// HTTP status that says that a resourceVersion is too old to go on from.
const GONE: u16 = 410;
/// Longest wait for the API server to begin a watch.
const BEGIN: Duration = Duration::from_secs(15);
/// Longest silence of a watch. The API server sends a bookmark at least every 75 s: two have not come, so the watch is
/// dead, and goes on from where it was on another connection.
const SILENCE: Duration = Duration::from_secs(150);
/// Shortest time in seconds after which the API server is asked to end a watch; the longest is twice that. Spread, so
/// that agents which began together do not return together.
const WATCH_SECONDS: u32 = 1800;

/// Where the watch stands, and so where the next request begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// Initial events are asked for; the newest state among them.
    Initial(Option<JobSetState>),
    /// Everything up to this resourceVersion was seen.
    After(String),
}

impl Cursor {
    /// A watch that begins with a consistent state.
    pub fn new() -> Self {
        Self::Initial(None)
    }

    /// Parameters and resourceVersion of the next request for the JobSet of this name.
    pub fn request(&mut self, jobset: &str, timeout_seconds: u32) -> (WatchParams, &str) {
        let (params, version) = match self {
            Self::Initial(listed) => {
                *listed = None;
                (WatchParams::streaming_lists(), "")
            }
            Self::After(version) => (WatchParams::default(), version.as_str()),
        };
        (params.fields(&format!("metadata.name={jobset}")).timeout(timeout_seconds), version)
    }

    /// Takes one event. Gives what the agent has to know.
    ///
    /// # Errors
    /// The status of an error event; the watch is over, and [`Cursor::request`] says how to go on.
    pub fn apply(&mut self, event: WatchEvent<JobSetView>) -> Result<Option<Input>, Box<Status>> {
        match event {
            WatchEvent::Added(jobset) | WatchEvent::Modified(jobset) => {
                let state = JobSetState::from(&jobset);
                Ok(match self {
                    Self::Initial(listed) => {
                        *listed = Some(state);
                        None
                    }
                    Self::After(version) => {
                        *version = jobset.metadata.resource_version;
                        Some(Input::JobSet(state))
                    }
                })
            }
            WatchEvent::Deleted(jobset) => Ok(match self {
                Self::Initial(listed) => {
                    *listed = None;
                    None
                }
                Self::After(version) => {
                    *version = jobset.metadata.resource_version;
                    Some(Input::Deleted)
                }
            }),
            WatchEvent::Bookmark(bookmark) => {
                let ends = bookmark.metadata.annotations.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true");
                Ok(match self {
                    Self::Initial(_) if !ends => None,
                    Self::Initial(listed) => {
                        let listed = listed.take();
                        *self = Self::After(bookmark.metadata.resource_version);
                        listed.map(Input::JobSet)
                    }
                    Self::After(version) => {
                        *version = bookmark.metadata.resource_version;
                        None
                    }
                })
            }
            WatchEvent::Error(status) => {
                self.on_refusal(status.code);
                Err(status)
            }
        }
    }

    /// Takes the HTTP status of a refused request or of an error event.
    pub fn on_refusal(&mut self, code: u16) {
        if code == GONE {
            *self = Self::Initial(None);
        }
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}

/// Watches the JobSet and sends what it sees, until the receiver is gone.
pub async fn run(client: Client, namespace: String, jobset: String, inputs: mpsc::Sender<Input>) {
    let mut cursor = Cursor::new();
    let mut pace = Pace::default();
    while !inputs.is_closed() {
        let failure = watch(&client, &namespace, &jobset, &mut cursor, &inputs, &mut pace).await.err();
        let wait = pace.ended(failure.as_ref().and_then(|failure| failure.retry_after));
        match failure {
            Some(failure) if failure.code != GONE => {
                let (cause, advice) = (failure.text, advice(failure.code));
                tracing::warn!(%namespace, %jobset, cause, advice, "cannot watch the JobSet");
            }
            // Once is in order.
            failure => {
                let cause = failure.map_or_else(|| "the API server ended it".to_owned(), |failure| failure.text);
                if pace.tells() {
                    tracing::warn!(%namespace, %jobset, cause, "the watch on the JobSet does not last; retrying less and less");
                } else {
                    tracing::debug!(%namespace, %jobset, cause, "the watch has ended");
                }
            }
        }
        tokio::time::sleep(jittered(wait)).await;
    }
}

/// One request; ends when the API server ends it or it breaks.
async fn watch(
    client: &Client,
    namespace: &str,
    jobset: &str,
    cursor: &mut Cursor,
    inputs: &mpsc::Sender<Input>,
    pace: &mut Pace,
) -> Result<(), Failure> {
    let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{RESOURCE}");
    let (params, version) = cursor.request(jobset, fastrand::u32(WATCH_SECONDS..2 * WATCH_SECONDS));
    let request = Request::new(path).watch(&params, version).map_err(kube::Error::BuildRequest)?;
    let answer = timeout(BEGIN, client.request_events::<JobSetView>(request)).await;
    let events = answer.map_err(|_| Failure::timeout(BEGIN))?.inspect_err(|error| {
        if let kube::Error::Api(status) = error {
            cursor.on_refusal(status.code);
        }
    })?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = timeout(SILENCE, events.try_next()).await.map_err(|_| Failure::timeout(SILENCE))?? {
        let listing = matches!(cursor, Cursor::Initial(_));
        let input = cursor.apply(event).map_err(|status| Failure::from(&*status))?;
        pace.hears();
        if input.is_none() && listing && matches!(cursor, Cursor::After(_)) {
            tracing::info!(%namespace, %jobset, "the JobSet does not exist, waiting for it");
        }
        if let Some(input) = input
            && inputs.send(input).await.is_err()
        {
            return Ok(());
        }
    }
    Ok(())
}

/// What a person can do about a refused watch.
fn advice(code: u16) -> &'static str {
    match code {
        401 => "check the Pod's ServiceAccount token",
        403 => "let the Pod's ServiceAccount get, list and watch jobsets.jobset.x-k8s.io in this namespace",
        404 => "install the CustomResourceDefinition of JobSet",
        _ => "retrying",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(kind: &str, version: &str, object: Value) -> WatchEvent<JobSetView> {
        let mut object = object;
        object["metadata"]["resourceVersion"] = json!(version);
        object["apiVersion"] = json!("jobset.x-k8s.io/v1alpha2");
        object["kind"] = json!("JobSet");
        serde_json::from_value(json!({"type": kind, "object": object})).unwrap()
    }

    fn jobset(synced: i32) -> Value {
        json!({"metadata": {"uid": "u"}, "spec": {"failurePolicy": {"restartStrategy": "InPlaceRestart"}},
            "status": {"syncedEpoch": synced}})
    }

    fn state(synced: i32) -> Input {
        Input::JobSet(JobSetState { uid: "u".into(), synced, deprecated: 0, bypass: false })
    }

    fn end() -> Value {
        json!({"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}})
    }

    fn gone() -> WatchEvent<JobSetView> {
        serde_json::from_value(json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410,
            "reason": "Expired", "message": "too old resource version: 3 (9)"}}))
        .unwrap()
    }

    fn url(cursor: &mut Cursor) -> String {
        let (params, version) = cursor.request("train", 1800);
        Request::new("/x").watch(&params, version).unwrap().uri().to_string()
    }

    #[test]
    fn first_request_asks_for_a_state_as_new_as_now() {
        assert_eq!(
            url(&mut Cursor::new()),
            "/x?&watch=true&timeoutSeconds=1800&fieldSelector=metadata.name%3Dtrain&allowWatchBookmarks=true\
             &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion="
        );
    }

    #[test]
    fn first_state_is_the_newest_one_at_the_end_of_the_initial_events() {
        let mut cursor = Cursor::new();
        assert_eq!(cursor.apply(event("ADDED", "5", jobset(1))), Ok(None));
        assert_eq!(cursor.apply(event("BOOKMARK", "6", json!({"metadata": {}}))), Ok(None));
        assert_eq!(cursor.apply(event("MODIFIED", "7", jobset(2))), Ok(None));
        assert_eq!(cursor.apply(event("BOOKMARK", "8", end())), Ok(Some(state(2))));
        assert_eq!(cursor.apply(event("MODIFIED", "9", jobset(3))), Ok(Some(state(3))));
    }

    #[test]
    fn next_request_goes_on_from_the_last_resource_version() {
        let mut cursor = Cursor::new();
        cursor.apply(event("ADDED", "5", jobset(1))).unwrap();
        cursor.apply(event("BOOKMARK", "8", end())).unwrap();
        let resumed = "/x?&watch=true&timeoutSeconds=1800&fieldSelector=metadata.name%3Dtrain&allowWatchBookmarks=true\
             &resourceVersion=";
        assert_eq!(url(&mut cursor), format!("{resumed}8"));
        cursor.apply(event("MODIFIED", "9", jobset(2))).unwrap();
        assert_eq!(url(&mut cursor), format!("{resumed}9"));
        cursor.apply(event("BOOKMARK", "12", json!({"metadata": {}}))).unwrap();
        assert_eq!(url(&mut cursor), format!("{resumed}12"));
        assert_eq!(cursor.apply(event("DELETED", "15", jobset(2))), Ok(Some(Input::Deleted)));
        assert_eq!(url(&mut cursor), format!("{resumed}15"));
    }

    #[test]
    fn gone_resource_version_begins_the_watch_anew() {
        let mut cursor = Cursor::After("3".into());
        assert_eq!(cursor.apply(gone()).unwrap_err().code, 410);
        assert_eq!(cursor, Cursor::new());
        let mut cursor = Cursor::After("3".into());
        cursor.on_refusal(503);
        assert_eq!(cursor, Cursor::After("3".into()));
    }

    #[test]
    fn initial_events_that_broke_off_do_not_count() {
        let mut cursor = Cursor::new();
        cursor.apply(event("ADDED", "5", jobset(1))).unwrap();
        url(&mut cursor);
        assert_eq!(cursor.apply(event("BOOKMARK", "8", end())), Ok(None));
    }

    #[test]
    fn jobset_that_comes_later_is_seen() {
        let mut cursor = Cursor::new();
        assert_eq!(cursor.apply(event("BOOKMARK", "8", end())), Ok(None));
        assert_eq!(cursor.apply(event("ADDED", "9", jobset(0))), Ok(Some(state(0))));
    }
}
