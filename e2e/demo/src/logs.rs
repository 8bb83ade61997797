//! What workers write down, read from their logs through the API server.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinSet;

use jobset_harness::journal::Entry;

/// The pause before a log that has ended is read again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

pub struct Logs {
    pods: Api<Pod>,
    entries: Arc<Mutex<Vec<Entry>>>,
    followed: Mutex<Followed>,
}

#[derive(Default)]
struct Followed {
    uids: HashSet<String>,
    tasks: JoinSet<()>,
}

impl Logs {
    /// Nobody's yet.
    pub fn new(client: Client, namespace: &str) -> Self {
        let pods = Api::namespaced(client, namespace);
        Self { pods, entries: Arc::default(), followed: Mutex::default() }
    }

    /// Reads the log of this Pod's worker from now on until the Pod is gone, those of its restarted containers too.
    pub fn follow(&self, pod: &Pod) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.uids.insert(pod.uid().unwrap_or_default()) {
            followed.tasks.spawn(follow(self.pods.clone(), pod.name_any(), self.entries.clone()));
        }
    }

    /// What was read so far, in the order in which it came.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn follow(pods: Api<Pod>, name: String, entries: Arc<Mutex<Vec<Entry>>>) {
    // A container that has not started yet has no log, and one that has ended comes back; what is read again adds nothing.
    while read(&pods, &name, &entries).await.is_ok() || !is_gone(&pods, &name).await {
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// Whether there is no such Pod. That its log is not found says nothing: so answers a kubelet that has not heard of it yet.
async fn is_gone(pods: &Api<Pod>, name: &str) -> bool {
    matches!(pods.get_metadata_opt(name).await, Ok(None))
}

/// Reads one container's log to its end.
async fn read(pods: &Api<Pod>, name: &str, entries: &Mutex<Vec<Entry>>) -> Result<()> {
    let params = LogParams { container: Some("worker".to_owned()), follow: true, ..LogParams::default() };
    let mut lines = pods.log_stream(name, &params).await?.lines();
    while let Some(line) = lines.try_next().await? {
        let Ok(entry) = serde_json::from_str(&line) else { continue };
        let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    Ok(())
}
