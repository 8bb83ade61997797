//! Writes to a JobSet, as one watch of the benchmark observes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jobset_api::{JobSet, JobSetStatus, dialect};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::observe::follow;

/// How long the JobSet must stay as it is to count as settled: longer than controllers wait to gather changes.
const QUIET: Duration = Duration::from_millis(1500);

/// One version of the JobSet, and when it was observed.
#[derive(Clone, Debug)]
struct JobSetWrite {
    at: Instant,
    version: Option<String>,
    status: JobSetStatus,
}

/// The versions of one JobSet so far.
pub(crate) struct History {
    writes: Arc<watch::Sender<Vec<JobSetWrite>>>,
    _watch: AbortOnDropHandle<()>,
}

impl History {
    /// Follows an existing JobSet. Its present version is the first one.
    pub(crate) fn follow(client: Client, namespace: &str, name: &str) -> Self {
        let writes = Arc::new(watch::Sender::new(Vec::new()));
        let noted = Arc::clone(&writes);
        let config = Config::default().fields(&format!("metadata.name={name}"));
        let watch = follow(Api::<JobSet>::namespaced(client, namespace), config, move |event| {
            if let Event::Apply(jobset) | Event::InitApply(jobset) = event {
                noted.send_modify(|writes| note(writes, &jobset, Instant::now()));
            }
        });
        Self { writes, _watch: watch }
    }

    pub(crate) fn count(&self) -> usize {
        self.writes.borrow().len()
    }

    pub(crate) fn status(&self) -> JobSetStatus {
        self.writes.borrow().last().map_or_else(JobSetStatus::default, |write| write.status.clone())
    }

    /// When the first status of which `holds` is true was observed, without the first `skip` versions.
    pub(crate) fn first(&self, skip: usize, holds: impl Fn(&JobSetStatus) -> bool) -> Option<Instant> {
        self.writes.borrow().iter().skip(skip).find(|write| holds(&write.status)).map(|write| write.at)
    }

    /// Waits until nobody has written to the JobSet for a while.
    pub(crate) async fn settled(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let mut writes = self.writes.subscribe();
        while start.elapsed() < limit {
            writes.mark_unchanged();
            match tokio::time::timeout(QUIET, writes.changed()).await {
                Err(_) => return Ok(()),
                Ok(changed) => changed.context("the watch of the JobSet has ended")?,
            }
        }
        let (seconds, status) = (limit.as_secs_f64(), self.status());
        bail!("the JobSet still changes after {seconds:.0} s ({} versions): {status:?}", self.count())
    }
}

/// Adds a version, unless the watch has listed the last one again. What the Go manager writes is translated.
fn note(writes: &mut Vec<JobSetWrite>, jobset: &JobSet, at: Instant) {
    let version = jobset.resource_version();
    if writes.last().is_none_or(|last| last.version != version) {
        let mut status = jobset.status.clone().unwrap_or_default();
        dialect::decode(&mut status);
        writes.push(JobSetWrite { at, version, status });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn writes_listed_again_count_once_and_missing_status_is_zero() {
        let mut writes = Vec::new();
        for (version, status) in [("7", json!(null)), ("8", json!({"restarts": 1})), ("8", json!({"restarts": 1}))] {
            let metadata = json!({"name": "bench", "resourceVersion": version});
            let jobset = json!({"metadata": metadata, "spec": {"replicatedJobs": []}, "status": status});
            note(&mut writes, &serde_json::from_value(jobset).unwrap(), Instant::now());
        }
        assert_eq!(writes.iter().map(|write| write.status.restarts).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn attempts_of_go_manager_become_epochs() {
        let mut writes = Vec::new();
        let status = json!({"currentInPlaceRestartAttempt": 1, "previousInPlaceRestartAttempt": 0, "restarts": 0});
        let jobset = json!({"metadata": {"resourceVersion": "7"}, "spec": {"replicatedJobs": []}, "status": status});
        note(&mut writes, &serde_json::from_value(jobset).unwrap(), Instant::now());
        assert_eq!((writes[0].status.synced_epoch, writes[0].status.deprecated_epoch), (2, 1));
    }
}
