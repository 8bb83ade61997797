//! The watch on the Pod's JobSet.
//!
//! The first request asks for streaming initial events with an **empty** resourceVersion, which requests a consistent state.
//! With `"0"` the API server could answer from its cache, which may lag behind another API server. The first state counts when
//! the initial events have ended. Later requests continue from the last resourceVersion. When the API server no longer has
//! that version, the watch starts again from initial events. A request that fails is retried without limit.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use jobset_protocol::{GROUP, RESOURCE, VERSION};
use kube::Client;
use kube::api::{WatchEvent, WatchParams};
use kube::core::{Request, Status};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::args::Names;
use crate::backoff::jittered;
use crate::decide::{Input, JobSetState};
use crate::group::GroupFacts;
use crate::jobset::JobSetView;
use crate::request_failure::RequestFailure;
use crate::watch_backoff::WatchBackoff;

/// Annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// HTTP status of a resourceVersion that is too old to continue from.
const GONE: u16 = 410;
/// Time limit for the API server to begin a watch.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest time without an event. The API server sends a bookmark at least every 75 s; a watch that misses two bookmarks is
/// dead and continues on another connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// Shortest duration of a watch in seconds, which the API server enforces; the longest is twice that. A random duration
/// prevents agents that started together from requesting their next watch together.
const WATCH_SECONDS: u32 = 1800;

/// The position of the watch, from which the next request continues. The first request asks for a consistent state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The resourceVersion up to which the watch has observed every event; `None` while it receives initial events.
    after: Option<String>,
    /// The newest state among the initial events.
    listed: Option<JobSetState>,
}

impl Cursor {
    /// Parameters and resourceVersion of the next request for the JobSet of this name.
    pub fn request(&mut self, jobset: &str, timeout_seconds: u32) -> (WatchParams, &str) {
        self.listed = None;
        let params = if self.after.is_none() { WatchParams::streaming_lists() } else { WatchParams::default() };
        let params = params.fields(&format!("metadata.name={jobset}")).timeout(timeout_seconds);
        (params, self.after.as_deref().unwrap_or_default())
    }

    /// Takes one event. Returns the input for the state machine, if the event is one.
    ///
    /// # Errors
    /// The status of an error event. The watch has ended; [`Cursor::request`] gives the next request.
    pub fn apply(&mut self, event: WatchEvent<JobSetView>) -> Result<Option<Input>, Box<Status>> {
        let (version, state) = match event {
            WatchEvent::Added(jobset) | WatchEvent::Modified(jobset) => {
                let state = JobSetState::from(&jobset);
                (jobset.metadata.resource_version, Some(state))
            }
            // The worker continues to run until garbage collection deletes its Pod.
            WatchEvent::Deleted(jobset) => (jobset.metadata.resource_version, None),
            WatchEvent::Bookmark(bookmark) => {
                let ends = bookmark.metadata.annotations.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true");
                if self.after.is_none() && !ends {
                    return Ok(None);
                }
                self.after = Some(bookmark.metadata.resource_version);
                return Ok(self.listed.take().map(Input::JobSet));
            }
            WatchEvent::Error(status) => {
                self.on_error_status(status.code);
                return Err(status);
            }
        };
        if let Some(after) = &mut self.after {
            *after = version;
            return Ok(state.map(Input::JobSet));
        }
        self.listed = state;
        Ok(None)
    }

    /// Takes the HTTP status of a rejected request or of an error event.
    pub fn on_error_status(&mut self, code: u16) {
        if code == GONE {
            *self = Self::default();
        }
    }
}

/// Watches the JobSet and sends the inputs, until the receiver is closed. Notes what it says of the group.
pub async fn run(client: Client, names: Names, inputs: mpsc::Sender<Input>, group: Arc<GroupFacts>) {
    let Names { namespace, jobset, .. } = &names;
    let mut cursor = Cursor::default();
    let mut backoff = WatchBackoff::default();
    while !inputs.is_closed() {
        let failure = watch(&client, &names, &mut cursor, &inputs, &group, &mut backoff).await.err();
        let wait = backoff.on_end(failure.as_ref().and_then(|failure| failure.retry_after));
        match failure {
            Some(failure) if failure.code != GONE => {
                let forbidden =
                    "let the Pod's ServiceAccount get, list and watch jobsets.jobset.x-k8s.io in this namespace";
                let advice = failure.advice(forbidden, "install the CustomResourceDefinition of JobSet");
                let cause = failure.text;
                tracing::warn!(%namespace, %jobset, cause, advice, "cannot watch the JobSet");
            }
            // The API server ends every watch after some time, so a single end is no reason to warn.
            failure => {
                let cause = failure.map_or_else(|| "the API server ended it".to_owned(), |failure| failure.text);
                if backoff.should_warn() {
                    tracing::warn!(%namespace, %jobset, cause, "the watch on the JobSet does not last; retrying with a growing back-off");
                } else {
                    tracing::debug!(%namespace, %jobset, cause, "the watch has ended");
                }
            }
        }
        tokio::time::sleep(jittered(wait)).await;
    }
}

/// Makes one request. Returns when the API server ends the watch; an error is a watch that failed.
async fn watch(
    client: &Client,
    Names { namespace, jobset, .. }: &Names,
    cursor: &mut Cursor,
    inputs: &mpsc::Sender<Input>,
    group: &GroupFacts,
    backoff: &mut WatchBackoff,
) -> Result<(), RequestFailure> {
    let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{RESOURCE}");
    let (params, version) = cursor.request(jobset, fastrand::u32(WATCH_SECONDS..2 * WATCH_SECONDS));
    let request = Request::new(path).watch(&params, version).map_err(kube::Error::BuildRequest)?;
    let answer = timeout(BEGIN_TIMEOUT, client.request_events::<JobSetView>(request)).await;
    let events = answer.map_err(|_| RequestFailure::timeout(BEGIN_TIMEOUT))?.inspect_err(|error| {
        if let kube::Error::Api(status) = error {
            cursor.on_error_status(status.code);
        }
    })?;
    let mut events = std::pin::pin!(events);
    while let Some(event) =
        timeout(IDLE_TIMEOUT, events.try_next()).await.map_err(|_| RequestFailure::timeout(IDLE_TIMEOUT))??
    {
        let was_listing = cursor.after.is_none();
        if let WatchEvent::Added(jobset) | WatchEvent::Modified(jobset) = &event {
            group.note(jobset.pods(), jobset.longest_pause());
        }
        let input = cursor.apply(event).map_err(|status| RequestFailure::from(&*status))?;
        backoff.on_event();
        if input.is_none() && was_listing && cursor.after.is_some() {
            tracing::info!(%namespace, %jobset, "the JobSet does not exist; waiting for it");
        }
        if let Some(input) = input
            && inputs.send(input).await.is_err()
        {
            return Ok(());
        }
    }
    Ok(())
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
        Input::JobSet(JobSetState { uid: "u".into(), synced, deprecated: 0, failed: false, bypass: false })
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
    fn first_request_asks_for_a_consistent_state() {
        assert_eq!(
            url(&mut Cursor::default()),
            "/x?&watch=true&timeoutSeconds=1800&fieldSelector=metadata.name%3Dtrain&allowWatchBookmarks=true\
             &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion="
        );
    }

    #[test]
    fn initial_events_end_yields_the_newest_state() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.apply(event("ADDED", "5", jobset(1))), Ok(None));
        assert_eq!(cursor.apply(event("BOOKMARK", "6", json!({"metadata": {}}))), Ok(None));
        assert_eq!(cursor.apply(event("MODIFIED", "7", jobset(2))), Ok(None));
        assert_eq!(cursor.apply(event("BOOKMARK", "8", end())), Ok(Some(state(2))));
        assert_eq!(cursor.apply(event("MODIFIED", "9", jobset(3))), Ok(Some(state(3))));
    }

    #[test]
    fn next_request_continues_from_the_last_resource_version() {
        let mut cursor = Cursor::default();
        cursor.apply(event("ADDED", "5", jobset(1))).unwrap();
        cursor.apply(event("BOOKMARK", "8", end())).unwrap();
        let resumed = "/x?&watch=true&timeoutSeconds=1800&fieldSelector=metadata.name%3Dtrain&allowWatchBookmarks=true\
             &resourceVersion=";
        assert_eq!(url(&mut cursor), format!("{resumed}8"));
        cursor.apply(event("MODIFIED", "9", jobset(2))).unwrap();
        assert_eq!(url(&mut cursor), format!("{resumed}9"));
        cursor.apply(event("BOOKMARK", "12", json!({"metadata": {}}))).unwrap();
        assert_eq!(url(&mut cursor), format!("{resumed}12"));
        assert_eq!(cursor.apply(event("DELETED", "15", jobset(2))), Ok(None));
        assert_eq!(url(&mut cursor), format!("{resumed}15"));
    }

    #[test]
    fn resource_version_gone_restarts_from_initial_events() {
        let after = Cursor { after: Some("3".into()), listed: None };
        let mut cursor = after.clone();
        assert_eq!(cursor.apply(gone()).unwrap_err().code, 410);
        assert_eq!(cursor, Cursor::default());
        let mut cursor = after.clone();
        cursor.on_error_status(503);
        assert_eq!(cursor, after);
    }

    #[test]
    fn initial_events_interrupted_are_dropped() {
        let mut cursor = Cursor::default();
        cursor.apply(event("ADDED", "5", jobset(1))).unwrap();
        url(&mut cursor);
        assert_eq!(cursor.apply(event("BOOKMARK", "8", end())), Ok(None));
    }

    #[test]
    fn jobset_created_later_is_observed() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.apply(event("BOOKMARK", "8", end())), Ok(None));
        assert_eq!(cursor.apply(event("ADDED", "9", jobset(0))), Ok(Some(state(0))));
    }
}
