//! Pods: those that the Job controller creates, counted by a watch, and those that belong to no JobSet.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jobset_api::labels;
use jobset_harness::progress::progress;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::Request;
use kube::core::metadata::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::jobset::{NAME, NAMESPACE};
use crate::observe::{follow, reached};

/// Concurrent requests for foreign Pods.
const CONCURRENCY: usize = 64;

/// The Pods of the JobSet, as one watch of their metadata shows them.
pub(super) struct Census {
    pods: Arc<watch::Sender<CensusPods>>,
    _watch: AbortOnDropHandle<()>,
}

/// Pods by name, with their restart attempt. Pure.
#[derive(Clone, Debug, Default)]
struct CensusPods {
    pods: HashMap<String, i32>,
    /// When the last Pod was created, and when the last one was deleted.
    created: Option<Instant>,
    deleted: Option<Instant>,
}

impl CensusPods {
    fn put(&mut self, name: String, attempt: i32, now: Instant) {
        if self.pods.insert(name, attempt).is_none() {
            self.created = Some(now);
        }
    }

    fn remove(&mut self, name: &str, now: Instant) {
        if self.pods.remove(name).is_some() {
            self.deleted = Some(now);
        }
    }

    /// Whether there are `count` Pods of this attempt, and none of others.
    fn is_complete(&self, attempt: i32, count: usize) -> bool {
        self.pods.len() == count && self.pods.values().all(|of| *of == attempt)
    }
}

impl fmt::Display for CensusPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.pods.values().max().copied().unwrap_or_default();
        let count = self.pods.values().filter(|of| **of == last).count();
        write!(f, "{} Pods, {count} of attempt {last}", self.pods.len())
    }
}

impl Census {
    pub(super) fn start(client: &Client) -> Self {
        let pods = Arc::new(watch::Sender::new(CensusPods::default()));
        let noted = Arc::clone(&pods);
        let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), NAMESPACE);
        let config = Config::default().labels(&format!("{}={NAME}", labels::JOBSET_NAME));
        let attempt = |pod: &PartialObjectMeta<Pod>| pod.labels().get(labels::RESTART_ATTEMPT)?.parse().ok();
        let watch = follow(api, config, move |event| match event {
            Event::Apply(pod) | Event::InitApply(pod) => {
                let attempt = attempt(&pod).unwrap_or_default();
                noted.send_modify(|pods| pods.put(pod.name_any(), attempt, Instant::now()));
            }
            Event::Delete(pod) => noted.send_modify(|pods| pods.remove(&pod.name_any(), Instant::now())),
            // A list after an error does not contain Pods deleted meanwhile; then the wait reaches its limit.
            Event::Init | Event::InitDone => {}
        });
        Self { pods, _watch: watch }
    }

    /// Waits until there are `count` Pods of this attempt, and none of others. Gives when the last Pod was created, and
    /// when the last one was deleted, if any was.
    pub(super) async fn complete(
        &self,
        attempt: i32,
        count: usize,
        limit: Duration,
    ) -> Result<(Instant, Option<Instant>)> {
        let what = format!("no {count} Pods of attempt {attempt} alone");
        let complete = |pods: &CensusPods| {
            pods.is_complete(attempt, count).then_some(())?;
            Some((pods.created?, pods.deleted))
        };
        reached(&self.pods, limit, &what, complete).await
    }

    /// The names of the Pods, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.pods.borrow().pods.keys().cloned().collect();
        names.sort();
        names
    }
}

/// Creates Pods that belong to no JobSet, and that nothing will ever run.
pub(super) async fn create_foreign(client: &Client, count: usize, limit: Duration) -> Result<()> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let create = async |index: usize| {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": format!("foreign-{index}"), "labels": {"app": "foreign"}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/foreign:1"}]},
        });
        let request = Request::new(&path).create(&PostParams::default(), serde_json::to_vec(&pod)?)?;
        client.request::<IgnoredAny>(request).await.with_context(|| format!("foreign Pod {index}"))?;
        anyhow::Ok(())
    };
    let all = stream::iter(0..count).map(Ok).try_for_each_concurrent(CONCURRENCY, create);
    progress(&format!("creating {count} foreign Pods"));
    tokio::time::timeout(limit, all).await.context("the foreign Pods are not created in time")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_counted_by_attempt_and_last_times_are_kept() {
        let (mut pods, start) = (CensusPods::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        pods.put("a".into(), 0, at(1));
        pods.put("b".into(), 0, at(2));
        assert!(pods.is_complete(0, 2) && !pods.is_complete(1, 2));
        pods.remove("a", at(3));
        pods.put("c".into(), 1, at(4));
        // A change of a Pod is no creation, and an absent Pod cannot be deleted.
        pods.put("c".into(), 1, at(5));
        pods.remove("a", at(6));
        assert_eq!(pods.pods, [("b".to_owned(), 0), ("c".to_owned(), 1)].into());
        assert!(!pods.is_complete(1, 1) && !pods.is_complete(1, 2));
        assert_eq!((pods.created, pods.deleted), (Some(at(4)), Some(at(3))));
    }
}
