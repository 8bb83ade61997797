//! How Pods end, and what becomes of their groups: evictions, deletions, drains, refusals, reboots, sidecars that do not come back.

mod drains;
mod evictions;
mod indexes;
mod lifted;
mod losses;
mod names;
mod reboot;
mod refusals;
mod returns;

use anyhow::{Context, Result, ensure};
use jobset_api::{conditions, labels};
use jobset_harness::Cluster;
use jobset_harness::group::{Group, LIMIT, Worker};
use jobset_harness::journal::{Entry, now};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::Workload;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use tokio::sync::MutexGuard;

use super::shared::LoneCluster;

/// The Job controller's own count of the failed Pods of an index, in whose order its back-off grows.
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// For how long DNS keeps its answers, in the cluster of these tests.
const DNS_CACHE: u32 = 30;

/// A cluster whose nodes are drained and rebooted, with the product installed. Whoever has it, has it alone.
async fn own_cluster() -> Result<(&'static Cluster, MutexGuard<'static, ()>)> {
    static CLUSTER: LoneCluster = LoneCluster::new();
    CLUSTER.alone(2, Cluster::builder().dns_cache(DNS_CACHE)).await
}

/// A group that may not restart at all, but for maintenance.
fn not_counting_maintenance(mut workload: Workload) -> Workload {
    workload.0["spec"]["failurePolicy"]["rules"] = json!([
        {"name": "fatal", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
        {"name": "maintenance", "action": "RestartJobSetAndIgnoreMaxRestarts"},
    ]);
    workload.with_max_restarts(0)
}

/// Waits until the group is told that this epoch is over; returns the time, late by a pause at most. Asserts that this is not because
/// the successor of a lost Pod reports: no Pod beside these workers has done so.
async fn restarts_before_a_successor_reports(group: &Group, epoch: i32, lost: &Worker) -> Result<f64> {
    let told = wait::until_met(LIMIT, format!("epoch {epoch} of {} to end", group.namespace), || async {
        let status = group.status().await?;
        Ok(if status.deprecated_epoch >= epoch {
            Check::Met(now())
        } else {
            Check::Unmet(format!("deprecatedEpoch {}", status.deprecated_epoch))
        })
    })
    .await?;
    let next = (epoch + 1).to_string();
    for pod in group.pods.list(&ListParams::default()).await?.items {
        let reports = pod.annotations().get(labels::EPOCH) == Some(&next);
        let is_successor = index(&pod) == index_of(&lost.pod) && pod.uid().as_deref() != Some(&lost.uid);
        ensure!(!(reports && is_successor), "the successor {} has reported before the group was told", pod.name_any());
    }
    Ok(told)
}

fn index(pod: &Pod) -> Option<String> {
    index_of(&pod.name_any())
}

/// `workers-0-1` of the Pod `train-workers-0-1-abcde`: what it shares with its successors.
fn index_of(pod: &str) -> Option<String> {
    pod.rsplit_once('-').map(|(place, _)| place.to_owned())
}

/// Asserts that no back-off of the Job controller has grown for the Pods that are there: it delays each successor by it.
async fn have_come_without_back_off(group: &Group) -> Result<()> {
    for pod in group.live_pods().await? {
        let failures = pod.annotations().get(INDEX_FAILURES).map_or("0", String::as_str);
        ensure!(failures == "0", "{}: {INDEX_FAILURES}: {failures}", pod.name_any());
    }
    Ok(())
}

/// Waits until a condition is true, and its message has all of these words.
pub(super) async fn says(group: &Group, condition: &str, words: &[&str]) -> Result<()> {
    wait::until_met(LIMIT, format!("{condition} of {} with {words:?}", group.namespace), || async {
        let status = group.status().await?;
        let found = status.conditions.iter().find(|it| it.type_ == condition && it.status == "True");
        let message = found.map_or_else(String::new, |it| it.message.clone());
        let is_met = found.is_some() && words.iter().all(|word| message.contains(word));
        Ok(if is_met { Check::Met(()) } else { Check::Unmet(format!("{message:?}")) })
    })
    .await
}

/// Waits until an Event of this reason has all of these words.
pub(crate) async fn notes(group: &Group, reason: &str, words: &[&str]) -> Result<()> {
    wait::until_met(LIMIT, format!("an event {reason} of {} with {words:?}", group.namespace), || async {
        let all = group.events(reason).await?;
        let is_met = all.iter().any(|note| words.iter().all(|word| note.contains(word)));
        Ok(if is_met { Check::Met(()) } else { Check::Unmet(format!("{all:?}")) })
    })
    .await
}

/// Asserts how often the group has restarted, and how many of these restarts count.
pub(crate) async fn has_restarted(group: &Group, restarts: i32, counted: i32) -> Result<()> {
    let status = group.status().await?;
    ensure!(!conditions::is_true(&status.conditions, conditions::FAILED), "{:?}", status.conditions);
    ensure!(
        (status.group_restarts, status.restarts_count_towards_max) == (restarts, counted),
        "{} restarts, {} counted, not {restarts} and {counted}: {:?}",
        status.group_restarts,
        status.restarts_count_towards_max,
        status.recent_restarts
    );
    Ok(())
}

/// When a Pod wrote this event first, after `time`.
fn first_after<'a>(entries: &'a [Entry], event: &str, pod: &str, time: f64) -> Result<&'a Entry> {
    let mut entries = entries.iter().filter(|entry| entry.event == event && entry.pod == pod && entry.time > time);
    entries.next().with_context(|| format!("{pod} has not written {event}"))
}
