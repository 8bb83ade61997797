//! Pods: the roll of those that the Job controller creates, and those that belong to no JobSet.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use jobset_api::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::Request;
use kube::core::metadata::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::jobset::{NAME, NAMESPACE};
use jobset_harness::progress::progress;

/// How often a wait says how many Pods there are.
const SAY_PERIOD: Duration = Duration::from_secs(5);
/// Requests for foreign Pods under way at once.
const CONCURRENCY: usize = 64;
/// Foreign Pods between two lines of progress.
const SAY_EVERY: usize = 5000;

/// The Pods of the JobSet, by name, with their restart attempt. Kept by one watch of their metadata.
pub(super) struct Census {
    seen: Arc<watch::Sender<Seen>>,
    _watch: AbortOnDropHandle<()>,
}

/// What the watch has shown. Pure.
#[derive(Clone, Debug, Default)]
struct Seen {
    pods: HashMap<String, i32>,
    /// How many there are of each attempt.
    counts: HashMap<i32, usize>,
    /// When a Pod was last seen to be created, and to be gone.
    created: Option<Instant>,
    gone: Option<Instant>,
}

impl Seen {
    fn put(&mut self, name: String, attempt: i32, now: Instant) {
        if self.pods.insert(name, attempt).is_none() {
            *self.counts.entry(attempt).or_default() += 1;
            self.created = Some(now);
        }
    }

    fn remove(&mut self, name: &str, now: Instant) {
        if let Some(attempt) = self.pods.remove(name) {
            *self.counts.entry(attempt).or_default() -= 1;
            self.gone = Some(now);
        }
    }

    /// Pods of this attempt, and of others.
    fn count(&self, attempt: i32) -> (usize, usize) {
        let of = self.counts.get(&attempt).copied().unwrap_or_default();
        (of, self.pods.len() - of)
    }
}

/// When the Pods of an attempt were complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// The last Pod of the attempt was created.
    pub(super) created: Instant,
    /// The last Pod of another attempt was gone; none if there was none.
    pub(super) gone: Option<Instant>,
}

impl Census {
    /// Begins to watch.
    pub(super) fn start(client: &Client) -> Self {
        let seen = Arc::new(watch::Sender::new(Seen::default()));
        let task = tokio::spawn(follow(client.clone(), Arc::clone(&seen)));
        Self { seen, _watch: AbortOnDropHandle::new(task) }
    }

    /// Waits until there are so many Pods of this attempt, and none of others.
    ///
    /// # Errors
    /// At the limit; the text says how many there are.
    pub(super) async fn complete(&self, attempt: i32, count: usize, limit: Duration) -> Result<Arrival> {
        let mut seen = self.seen.subscribe();
        let describe = || {
            let (of, others) = self.seen.borrow().count(attempt);
            format!("{of} of {count} Pods of attempt {attempt}, {others} of others")
        };
        let complete = async {
            let seen =
                seen.wait_for(|seen| seen.count(attempt) == (count, 0)).await.context("nobody counts the Pods")?;
            Ok(Arrival { created: seen.created.context("no Pod was created")?, gone: seen.gone })
        };
        let say = async {
            loop {
                tokio::time::sleep(SAY_PERIOD).await;
                progress(&describe());
            }
        };
        tokio::select! {
            arrival = complete => arrival,
            never = say => never,
            () = tokio::time::sleep(limit) => bail!("after {:.0} s there are {}", limit.as_secs_f64(), describe()),
        }
    }

    /// The names of the Pods, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.seen.borrow().pods.keys().cloned().collect();
        names.sort();
        names
    }
}

async fn follow(client: Client, seen: Arc<watch::Sender<Seen>>) {
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, NAMESPACE);
    let config = watcher::Config::default().labels(&format!("{}={NAME}", labels::JOBSET_NAME));
    let mut events = std::pin::pin!(watcher(pods, config));
    let attempt = |pod: &PartialObjectMeta<Pod>| pod.labels().get(labels::RESTART_ATTEMPT)?.parse().ok();
    while let Some(event) = events.next().await {
        let now = Instant::now();
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                let attempt = attempt(&pod).unwrap_or_default();
                seen.send_modify(|seen| seen.put(pod.name_any(), attempt, now));
            }
            Ok(Event::Delete(pod)) => seen.send_modify(|seen| seen.remove(&pod.name_any(), now)),
            // After a break all are listed again; which of them are gone is not told, and the wait reaches its limit.
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => tracing::warn!(%error, "the benchmark's own watch of Pods broke"),
        }
    }
}

/// Creates Pods that belong to no JobSet, and that nothing will ever run.
///
/// # Errors
/// If one is refused, or not all are created within the limit.
pub(super) async fn create_foreign(client: &Client, count: usize, limit: Duration) -> Result<()> {
    let created = AtomicUsize::new(0);
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
        let created = created.fetch_add(1, Ordering::Relaxed) + 1;
        if created.is_multiple_of(SAY_EVERY) {
            progress(&format!("{created} of {count} foreign Pods"));
        }
        Ok(())
    };
    let all = stream::iter(0..count).map(Ok).try_for_each_concurrent(CONCURRENCY, create);
    tokio::time::timeout(limit, all).await.with_context(|| {
        let created = created.load(Ordering::Relaxed);
        format!("{created} of {count} foreign Pods are created after {:.0} s", limit.as_secs_f64())
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_counted_by_attempt_and_firsts_and_lasts_are_kept() {
        let (mut seen, start) = (Seen::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        seen.put("a".into(), 0, at(1));
        seen.put("b".into(), 0, at(2));
        seen.remove("a", at(3));
        seen.put("c".into(), 1, at(4));
        // A change of a Pod is no creation, and what is not there cannot go.
        seen.put("c".into(), 1, at(5));
        seen.remove("a", at(6));
        assert_eq!((seen.count(1), seen.count(0)), ((1, 1), (1, 1)));
        assert_eq!((seen.created, seen.gone), (Some(at(4)), Some(at(3))));
    }
}
