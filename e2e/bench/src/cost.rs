//! What one change to a Pod costs the controller, when the change means nothing to it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::json;

use super::connections::Connections;
use super::group::Bench;
use super::history::History;
use super::jobset::NAMESPACE;
use super::report::number;
use jobset_harness::progress::progress;

/// Annotation that nobody reads.
const ANNOTATION: &str = "bench.jobset.example/touched";
/// Changes under way at once.
const CONCURRENCY: usize = 32;
/// The controller is done when it has used no CPU for so long.
const QUIET: Duration = Duration::from_millis(500);

/// Changes Pods one after the other, `events` times in all, and gives the controller's CPU for one change in
/// microseconds. The number of changes is the same for groups of any size, so that their costs can be compared.
///
/// # Errors
/// If a change is refused, or the controller does not come to rest.
pub(super) async fn cost_of_an_event(
    bench: &Bench<'_>,
    history: &History,
    connections: &Connections,
    pods: &[String],
    events: usize,
) -> Result<f64> {
    let start = Instant::now();
    let before = at_rest(bench).await?;
    let touch = async |event: usize| {
        let index = event % pods.len();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: event.to_string()}}}));
        let request = Request::new(format!("/api/v1/namespaces/{NAMESPACE}/pods"))
            .patch_metadata(&pods[index], &PatchParams::default(), &patch)
            .context("not a request")?;
        connections.of(index).request::<IgnoredAny>(request).await.context("changing a Pod")?;
        anyhow::Ok(())
    };
    // Never two changes to one Pod at once: one of them would be repeated by the API server.
    let concurrency = CONCURRENCY.min(pods.len());
    stream::iter(0..events).map(Ok).try_for_each_concurrent(concurrency, touch).await?;
    let used = at_rest(bench).await?.saturating_sub(before);
    history.settled(bench.limit).await?;
    progress(&format!("{events} changes to Pods ({:.1} s)", start.elapsed().as_secs_f64()));
    Ok(used.as_secs_f64() * 1e6 / number(events))
}

/// The controller's CPU time once it is at rest.
async fn at_rest(bench: &Bench<'_>) -> Result<Duration> {
    let start = Instant::now();
    let mut last = bench.meter.read()?.controller();
    while start.elapsed() < bench.limit {
        tokio::time::sleep(QUIET).await;
        let now = bench.meter.read()?.controller();
        if now == last {
            return Ok(now);
        }
        last = now;
    }
    bail!("the controller is still busy after {:.0} s", bench.limit.as_secs_f64())
}
