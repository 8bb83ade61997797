//! What is written to the JobSet: every version of it, seen by one watch of the benchmark's own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use kube::Client;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// How long the JobSet must stay as it is to count as settled: longer than the controllers wait to gather changes.
const QUIET: Duration = Duration::from_millis(1500);
/// Longest time in seconds after which the API server ends a watch; it then goes on from where it was.
const WATCH_SECONDS: u32 = 3600;
/// Pause before a watch that broke begins again.
const RETRY: Duration = Duration::from_millis(100);

/// The part of a JobSet that is read.
#[derive(Clone, Debug, Deserialize)]
struct View {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

/// The counters of a JobSet's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    pub(super) synced_epoch: i32,
    pub(super) deprecated_epoch: i32,
    pub(super) restarts: i32,
}

/// One write, when it was seen.
#[derive(Clone, Copy, Debug)]
struct Write {
    at: Instant,
    status: Status,
}

/// The writes so far.
pub(super) struct History {
    writes: Arc<watch::Sender<Vec<Write>>>,
    _watch: AbortOnDropHandle<()>,
}

impl History {
    /// The JobSet of this name; begins with what is written after this resourceVersion.
    pub(super) fn after(client: Client, namespace: &str, name: &str, version: String) -> Self {
        let writes = Arc::new(watch::Sender::new(Vec::new()));
        let jobset = Watched { client, namespace: namespace.to_owned(), name: name.to_owned() };
        let task = tokio::spawn(jobset.follow(version, Arc::clone(&writes)));
        Self { writes, _watch: AbortOnDropHandle::new(task) }
    }

    /// How many writes there were.
    pub(super) fn count(&self) -> usize {
        self.writes.borrow().len()
    }

    /// The status that was written last.
    pub(super) fn status(&self) -> Status {
        self.writes.borrow().last().map_or_else(Status::default, |write| write.status)
    }

    /// When the first status of which `holds` is true was seen, leaving out the first `skip` writes.
    pub(super) fn first(&self, skip: usize, holds: impl Fn(&Status) -> bool) -> Option<Instant> {
        self.writes.borrow().iter().skip(skip).find(|write| holds(&write.status)).map(|write| write.at)
    }

    /// Waits until nothing was written to the JobSet for a while.
    ///
    /// # Errors
    /// If it is still written to at the limit.
    pub(super) async fn settled(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let mut writes = self.writes.subscribe();
        while start.elapsed() < limit {
            writes.mark_unchanged();
            match tokio::time::timeout(QUIET, writes.changed()).await {
                Err(_) => return Ok(()),
                Ok(changed) => changed.context("the watch on the JobSet has ended")?,
            }
        }
        let (seconds, status) = (limit.as_secs_f64(), self.status());
        bail!("the JobSet is still written to after {seconds:.0} s ({} times in all): {status:?}", self.count())
    }
}

/// The JobSet, and the watch on it.
struct Watched {
    client: Client,
    namespace: String,
    name: String,
}

impl Watched {
    /// Watches for ever; a watch that ends or breaks goes on from the version that it came to.
    async fn follow(self, mut version: String, writes: Arc<watch::Sender<Vec<Write>>>) {
        loop {
            if let Err(error) = self.watch(&mut version, &writes).await {
                tracing::warn!(error = %format!("{error:#}"), "the benchmark's own watch broke");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn watch(&self, version: &mut String, writes: &watch::Sender<Vec<Write>>) -> Result<()> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.name)).timeout(WATCH_SECONDS);
        let path = format!("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets", self.namespace);
        let events = self.client.request_events::<View>(Request::new(path).watch(&params, version)?).await?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(jobset) | WatchEvent::Modified(jobset) => {
                    *version = jobset.metadata.resource_version;
                    writes.send_modify(|writes| writes.push(Write { at: Instant::now(), status: jobset.status }));
                }
                WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
                WatchEvent::Deleted(_) => bail!("the JobSet was deleted"),
                WatchEvent::Error(status) => bail!("{} {}: {}", status.code, status.reason, status.message),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn jobset_without_a_status_is_at_zero() {
        let view = |jobset| serde_json::from_value::<View>(jobset).unwrap();
        let new = view(json!({"metadata": {"name": "bench", "resourceVersion": "7"}, "spec": {}}));
        assert_eq!((new.metadata.resource_version.as_str(), new.status), ("7", Status::default()));
        let status = json!({"syncedEpoch": 3, "deprecatedEpoch": 2, "restarts": 1, "conditions": []});
        let old = view(json!({"metadata": {"resourceVersion": "8"}, "status": status}));
        assert_eq!(old.status, Status { synced_epoch: 3, deprecated_epoch: 2, restarts: 1 });
    }
}
