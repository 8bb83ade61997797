//! What the agents of the Go JobSet read and write, so that its manager has simulated agents, too.
//!
//! The state machine, the seats and the connections are those of the other agents; attempts are translated as
//! [`jobset_api::dialect`] does. The report is a merge patch as well, whose answer is metadata: it costs the API server
//! less than the server-side apply by which the Go JobSet's own agents report.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::TryStreamExt as _;
use jobset_agent::backoff::jittered;
use jobset_agent::decide::{Input, JobSetState};
use jobset_agent::watch::Cursor;
use jobset_api::labels;
use kube::Client;
use kube::api::{Patch, PatchParams, WatchEvent};
use kube::core::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::jobset::{NAME, NAMESPACE};

/// Annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Longest wait for an answer, as of the other agents.
const ANSWER: Duration = Duration::from_secs(15);
/// Seconds after which the API server ends a watch: later than any case.
const WATCH_SECONDS: u32 = 7200;
/// Wait after a watch that has ended.
const PAUSE: Duration = Duration::from_secs(1);

/// The fields of a JobSet that the agents of the Go JobSet read.
#[derive(Clone, Debug, Deserialize)]
struct GoJobSet {
    metadata: GoMetadata,
    #[serde(default)]
    status: GoStatus,
}

#[derive(Clone, Debug, Deserialize)]
struct GoMetadata {
    uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GoStatus {
    current_in_place_restart_attempt: Option<i32>,
    previous_in_place_restart_attempt: Option<i32>,
}

impl From<&GoJobSet> for JobSetState {
    fn from(jobset: &GoJobSet) -> Self {
        let epoch = |attempt: Option<i32>| attempt.map_or(0, |attempt| attempt.saturating_add(1));
        Self {
            uid: jobset.metadata.uid.clone(),
            synced: epoch(jobset.status.current_in_place_restart_attempt),
            deprecated: epoch(jobset.status.previous_in_place_restart_attempt),
            failed: false,
            bypass: false,
        }
    }
}

/// The events of one watch. The state of the initial events counts when they have ended.
#[derive(Debug, Default)]
struct GoEvents {
    listed: Option<JobSetState>,
    has_listed: bool,
}

impl GoEvents {
    /// Takes one event. Gives the state that the agent has to know.
    fn apply(&mut self, event: WatchEvent<GoJobSet>) -> Result<Option<JobSetState>> {
        match event {
            WatchEvent::Added(jobset) | WatchEvent::Modified(jobset) if self.has_listed => Ok(Some((&jobset).into())),
            WatchEvent::Added(jobset) | WatchEvent::Modified(jobset) => {
                self.listed = Some((&jobset).into());
                Ok(None)
            }
            WatchEvent::Bookmark(bookmark) => {
                self.has_listed |= bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END);
                Ok(if self.has_listed { self.listed.take() } else { None })
            }
            WatchEvent::Deleted(_) => bail!("the JobSet was deleted"),
            WatchEvent::Error(status) => bail!("the API server has ended the watch: {status}"),
        }
    }
}

/// Watches the JobSet and sends its states, until the receiver is closed.
pub(super) async fn watch(client: Client, inputs: mpsc::Sender<Input>) {
    while !inputs.is_closed() {
        if let Err(error) = observe(&client, &inputs).await {
            tracing::warn!(error = format!("{error:#}"), "cannot watch the JobSet");
        }
        tokio::time::sleep(jittered(PAUSE)).await;
    }
}

/// Makes one request. Returns when the API server ends the watch, or the receiver is closed.
async fn observe(client: &Client, inputs: &mpsc::Sender<Input>) -> Result<()> {
    let mut cursor = Cursor::default();
    let (params, version) = cursor.request(NAME, WATCH_SECONDS);
    let path = format!("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets");
    let request = Request::new(path).watch(&params, version).context("not a request")?;
    let answer = timeout(ANSWER, client.request_events::<GoJobSet>(request)).await.context("no answer")?;
    let (mut observed, mut events) = (GoEvents::default(), pin!(answer?));
    while let Some(event) = events.try_next().await? {
        if let Some(state) = observed.apply(event)?
            && inputs.send(Input::JobSet(state)).await.is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Writes the epoch into the annotation that the Go manager reads.
pub(super) async fn report(client: &Client, pod: &str, epoch: i32) -> Input {
    match timeout(ANSWER, patch(client, pod, epoch)).await.context("no answer").flatten() {
        Ok(()) => Input::Reported { epoch },
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), epoch, pod, "cannot report the epoch");
            Input::ReportFailed { epoch, retry_after: None }
        }
    }
}

async fn patch(client: &Client, pod: &str, epoch: i32) -> Result<()> {
    let attempt = epoch.saturating_sub(1).to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {(labels::IN_PLACE_RESTART_ATTEMPT): attempt}}}));
    let request = Request::new(format!("/api/v1/namespaces/{NAMESPACE}/pods"))
        .patch_metadata(pod, &PatchParams::default(), &patch)
        .context("not a request")?;
    client.request::<IgnoredAny>(request).await.context("the report is rejected")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    fn event(kind: &str, object: &Value) -> WatchEvent<GoJobSet> {
        serde_json::from_value(json!({"type": kind, "object": object})).unwrap()
    }

    fn jobset(status: &Value) -> Value {
        json!({"metadata": {"uid": "u"}, "status": status})
    }

    #[rstest]
    #[case::before_first_lift(json!({}), 0, 0)]
    #[case::first_lift(json!({"currentInPlaceRestartAttempt": 0}), 1, 0)]
    #[case::restart_begun(json!({"currentInPlaceRestartAttempt": 0, "previousInPlaceRestartAttempt": 0}), 1, 1)]
    #[case::restart_over(json!({"currentInPlaceRestartAttempt": 1, "previousInPlaceRestartAttempt": 0}), 2, 1)]
    fn attempts_are_epochs(#[case] status: Value, #[case] synced: i32, #[case] deprecated: i32) {
        let jobset: GoJobSet = serde_json::from_value(jobset(&status)).unwrap();
        let state = JobSetState::from(&jobset);
        assert_eq!((state.uid.as_str(), state.synced, state.deprecated), ("u", synced, deprecated));
        assert!(!state.failed && !state.bypass);
    }

    #[test]
    fn initial_events_count_at_their_end() {
        let mut events = GoEvents::default();
        let mut apply = |kind: &str, object: &Value| {
            events
                .apply(event(kind, object))
                .map(|state| state.map(|state| state.synced))
                .map_err(|error| error.to_string())
        };
        let of = |attempt: i32| jobset(&json!({"currentInPlaceRestartAttempt": attempt}));
        let bookmark = |annotations: &Value| json!({"apiVersion": "v1", "kind": "JobSet", "metadata": {"resourceVersion": "7", "annotations": annotations}});
        assert_eq!(apply("ADDED", &of(0)), Ok(None));
        assert_eq!(apply("BOOKMARK", &bookmark(&json!({}))), Ok(None));
        assert_eq!(apply("BOOKMARK", &bookmark(&json!({(INITIAL_EVENTS_END): "true"}))), Ok(Some(1)));
        assert_eq!(apply("MODIFIED", &of(1)), Ok(Some(2)));
        assert_eq!(apply("BOOKMARK", &bookmark(&json!({}))), Ok(None));
        assert!(apply("DELETED", &of(1)).is_err());
    }
}
