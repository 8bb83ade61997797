//! A Pod that is replaced has another address, and caches of DNS still have the old one, or that there is none.

use anyhow::{Context, Result};
use jobset_harness::group::{Group, LIMIT};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::SUPERVISED;
use kube::api::DeleteParams;
use rstest::rstest;
use serde_json::json;

use super::{DNS_CACHE, has_restarted, own_cluster};

/// Rounds in which each worker has to reach all others after the restart.
const ROUNDS: usize = 3;

#[rstest]
#[case::sidecar("names-sidecar", "Sidecar")]
#[case::supervisor("names-supervisor", "Supervisor")]
#[tokio::test]
async fn pod_replaced_behind_dns_cache_costs_one_restart(#[case] namespace: &str, #[case] shape: &str) -> Result<()> {
    let (cluster, _alone) = own_cluster().await?;
    let group = Group::apply(cluster, namespace, SUPERVISED, |workload| {
        let mut workload = workload.injected(shape).of_shape(1, 3);
        workload.0["metadata"]["annotations"]["jobset.sigs.k8s.io/settle-names"] = json!(format!("{}s", DNS_CACHE + 5));
        let name = workload.name().to_owned();
        let peers: Vec<String> = (0..3).map(|index| format!("{name}-workers-0-{index}.{name}")).collect();
        workload.with_env("PEERS", &peers.join(","))
    })
    .await?;
    let before = group.runs_in_epoch(1).await?;
    // So that all names are cached.
    reach_each_other(&group, 1).await?;
    let first = before.values().next().context("no worker")?;
    group.pods.delete(&first.pod, &DeleteParams::default()).await?;
    group.runs_in_epoch(2).await?;
    reach_each_other(&group, 2).await?;
    has_restarted(&group, 1, 1).await?;
    group.remove().await
}

/// Waits until each worker has reached all others in this epoch, again and again.
async fn reach_each_other(group: &Group, epoch: i32) -> Result<()> {
    wait::until_met(LIMIT, format!("{ROUNDS} rounds of each worker in epoch {epoch}"), || async {
        let entries = group.journal()?;
        let pods = group.live_pods().await?;
        let rounds = |pod: &k8s_openapi::api::core::v1::Pod| {
            let is_one = |entry: &&jobset_harness::journal::Entry| {
                entry.event == "peers" && entry.epoch == Some(epoch) && Some(&entry.uid) == pod.metadata.uid.as_ref()
            };
            entries.iter().filter(is_one).count()
        };
        let least = pods.iter().map(rounds).min().unwrap_or(0);
        Ok(if least >= ROUNDS { Check::Met(()) } else { Check::Unmet(format!("{least} rounds")) })
    })
    .await
}
