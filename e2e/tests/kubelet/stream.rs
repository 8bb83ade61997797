//! Restarts over the agent stream, on a cluster of its own: the chart has it switched on, and its relays go and come back.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use jobset_harness::Cluster;
use jobset_harness::group::{Group, Workers};
use jobset_harness::install::{self, NAMESPACE, RELAY, kubectl};
use jobset_harness::journal;
use jobset_harness::median::median;
use jobset_harness::progress::progress;
use jobset_harness::relays;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::SUPERVISED;
use serde_json::Value;

use super::shared::{assert_in_place, binaries};
use crate::chart::check_network_policies;

/// Restarts of each group while the stream lives.
const RESTARTS: u64 = 3;

#[tokio::test]
async fn groups_restart_over_stream_and_without_relay_by_watch() -> Result<()> {
    let cluster = Cluster::builder().audit_log().cluster(2).await?;
    install::install_with_stream(&cluster, binaries().await?).await?;
    let mut groups = Vec::new();
    for shape in ["Sidecar", "Supervisor"] {
        let namespace = format!("stream-{}", shape.to_lowercase());
        let group = Group::apply(&cluster, &namespace, SUPERVISED, |workload| workload.injected(shape)).await?;
        groups.push((group, 1));
    }
    let agents = groups.iter().map(|(group, _)| group.workers).sum();
    for (group, _) in &groups {
        group.runs_in_epoch(1).await?;
    }
    relays::have_agents(&cluster.client(), agents, install::LIMIT).await?;
    no_watch_is_open(&cluster, &groups).await?;
    check_network_policies(&cluster, NAMESPACE, &["jobset-controller", RELAY]).await?;

    let mut seconds = BTreeMap::<String, Vec<f64>>::new();
    let before = reports(&cluster).await?;
    for _ in 0..RESTARTS {
        for (group, epoch) in &mut groups {
            let took = restart(group, epoch).await?;
            seconds.entry(group.namespace.clone()).or_default().push(took);
        }
    }
    let carried = reports(&cluster).await? - before;
    let wanted = RESTARTS * agents as u64;
    ensure!(carried >= wanted, "the stream has carried {carried} reports, not {wanted}");
    for (namespace, seconds) in seconds {
        progress(&format!("{namespace}: from exit to last start {:.3} s (median of {RESTARTS})", median(seconds)));
    }
    no_watch_is_open(&cluster, &groups).await?;

    scale(&cluster, 0).await?;
    for (group, epoch) in &mut groups {
        let seconds = restart(group, epoch).await?;
        progress(&format!("{} without relays: {seconds:.3} s", group.namespace));
    }
    scale(&cluster, 2).await?;
    relays::have_agents(&cluster.client(), agents, install::LIMIT).await?;
    no_watch_is_open(&cluster, &groups).await?;
    for (group, epoch) in &mut groups {
        restart(group, epoch).await?;
    }
    cluster.stop().await
}

/// Reports of agents that the relays have received.
async fn reports(cluster: &Cluster) -> Result<u64> {
    let name = r#"jobset_relay_messages_total{direction="from_agent",kind="report"}"#;
    relays::sum(&cluster.client(), name).await
}

async fn scale(cluster: &Cluster, replicas: usize) -> Result<()> {
    let deployment = format!("deployment/{RELAY}");
    kubectl(cluster, &["scale", &deployment, &format!("--replicas={replicas}"), "-n", NAMESPACE]).await?;
    install::rolled_out(cluster, NAMESPACE, RELAY).await?;
    wait::until_met(install::LIMIT, format!("{replicas} relays"), || async {
        let there = relays::pods(&cluster.client()).await?.len();
        Ok(if there == replicas { Check::Met(()) } else { Check::Unmet(format!("{there} relays")) })
    })
    .await
}

/// Lets a worker fail. All restart in place, their annotations follow, and the budget is exact. Returns the seconds from the exit
/// to the last start, by the workers' clock.
async fn restart(group: &Group, epoch: &mut i32) -> Result<f64> {
    let before: Workers = group.workers().await?;
    let victim = before.values().next().context("no worker")?;
    group.exit(victim, 1).await?;
    *epoch += 1;
    let after = group.runs_in_epoch(*epoch).await?;
    assert_in_place(&before, &after);
    let status = group.status().await?;
    let counted = (status.restarts_count_towards_max, status.group_restarts, status.restarts);
    assert_eq!(counted, (*epoch - 1, *epoch - 1, 0), "{}", group.namespace);
    let entries = group.journal()?;
    let exited = journal::last_exit(&entries, &victim.pod).context("the worker has not written that it ends")?.time;
    let last = entries.iter().rfind(|entry| entry.event == "start").context("no worker has started")?;
    Ok(last.time - exited)
}

/// Waits until no agent of the groups has a watch open: the audit log has the end of each.
async fn no_watch_is_open(cluster: &Cluster, groups: &[(Group, i32)]) -> Result<()> {
    wait::until_met(install::LIMIT, "the watches of all agents to end", || async {
        let open = open_watches(cluster, groups)?;
        Ok(if open.is_empty() { Check::Met(()) } else { Check::Unmet(format!("these are open: {open:?}")) })
    })
    .await
}

/// Watches of agents that have begun and not ended, by their id.
fn open_watches(cluster: &Cluster, groups: &[(Group, i32)]) -> Result<BTreeMap<String, String>> {
    let log = std::fs::read_to_string(cluster.dir().join("logs/audit.log")).context("cannot read the audit log")?;
    let mut open = BTreeMap::new();
    // The last line may be half written.
    for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.contains("jobset-agent/")) {
        let event: Value = serde_json::from_str(line)?;
        let namespace = event["objectRef"]["namespace"].as_str().unwrap_or_default();
        if event["verb"] != "watch" || !groups.iter().any(|(group, _)| group.namespace == namespace) {
            continue;
        }
        let id = event["auditID"].as_str().unwrap_or_default().to_owned();
        match event["stage"].as_str() {
            Some("ResponseStarted") => {
                open.insert(id, namespace.to_owned());
            }
            Some("ResponseComplete" | "Panic") => {
                open.remove(&id);
            }
            stage => bail!("an audit event of stage {stage:?}"),
        }
    }
    Ok(open)
}
