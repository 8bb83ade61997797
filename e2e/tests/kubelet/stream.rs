//! Restarts over the agent stream, on a cluster of its own: it is what a default installation has. Its relays go and come back.

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
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::shared::{assert_in_place, binaries};
use crate::chart::check_network_policies;
use crate::seat::take_seat;

/// Restarts of each group while the stream lives.
const RESTARTS: u64 = 3;

#[tokio::test]
async fn groups_restart_over_stream_and_without_relay_by_watch() -> Result<()> {
    take_seat().await?;
    let cluster = Cluster::builder().audit_log().cluster(2).await?;
    install::install(&cluster, binaries().await?).await?;
    take_name_of_relays(&cluster.client()).await?;
    let mut groups = Groups::apply(&cluster, "stream").await?;
    groups.run_over_stream(&cluster).await?;
    check_network_policies(&cluster, NAMESPACE, &["jobset-controller", RELAY]).await?;
    groups.restart_over_stream(&cluster, RESTARTS).await?;
    groups.watch_nothing(&cluster).await?;

    scale(&cluster, 0).await?;
    groups.restart("without relays", 1).await?;
    scale(&cluster, 2).await?;
    groups.run_over_stream(&cluster).await?;
    groups.restart("with relays that have come back", 1).await?;
    cluster.stop().await
}

/// A tenant owns the namespace `svc`: below the search domain `svc.cluster.local`, a name of it is the short name of the relays' Service.
async fn take_name_of_relays(client: &Client) -> Result<()> {
    let metadata = |name: &str| json!({"name": name, "labels": {"kubernetes.io/service-name": NAMESPACE}});
    let (post, namespace) = (PostParams::default(), "svc");
    let tenant: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    Api::all(client.clone()).create(&post, &tenant).await?;
    let ports = json!([{"name": "agents", "port": 9443, "protocol": "TCP"}]);
    let service: Service = serde_json::from_value(
        json!({"metadata": metadata(NAMESPACE), "spec": {"clusterIP": "None", "ports": ports}}),
    )?;
    Api::namespaced(client.clone(), namespace).create(&post, &service).await?;
    // Nobody is there.
    let endpoints = json!([{"hostname": RELAY, "addresses": ["192.0.2.1"]}]);
    let slice: EndpointSlice = serde_json::from_value(
        json!({"metadata": metadata(RELAY), "addressType": "IPv4", "ports": ports, "endpoints": endpoints}),
    )?;
    Api::namespaced(client.clone(), namespace).create(&post, &slice).await?;
    Ok(())
}

/// Groups whose agents were injected, one for each shape, with the epoch that each runs in.
pub(crate) struct Groups(Vec<(Group, i32)>);

impl Groups {
    /// Creates them in namespaces that begin so.
    pub(crate) async fn apply(cluster: &Cluster, prefix: &str) -> Result<Self> {
        let mut groups = Vec::new();
        for shape in ["Sidecar", "Supervisor"] {
            let namespace = format!("{prefix}-{}", shape.to_lowercase());
            let group = Group::apply(cluster, &namespace, SUPERVISED, |workload| workload.injected(shape)).await?;
            groups.push((group, 1));
        }
        Ok(Self(groups))
    }

    pub(super) fn join(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.0.iter().map(|(group, _)| group)
    }

    fn agents(&self) -> usize {
        self.iter().map(|group| group.workers).sum()
    }

    /// Waits until all workers run, and all agents are connected to relays and watch nothing.
    pub(crate) async fn run_over_stream(&self, cluster: &Cluster) -> Result<()> {
        for (group, epoch) in &self.0 {
            group.runs_in_epoch(*epoch).await?;
        }
        relays::have_agents(&cluster.client(), self.agents(), install::LIMIT).await?;
        self.watch_nothing(cluster).await
    }

    /// Restarts each group so often, and asserts that the stream has carried all reports.
    pub(crate) async fn restart_over_stream(&mut self, cluster: &Cluster, times: u64) -> Result<()> {
        let before = reports(cluster).await?;
        self.restart("over the stream", times).await?;
        let carried = reports(cluster).await? - before;
        let wanted = times * self.agents() as u64;
        ensure!(carried >= wanted, "the stream has carried {carried} reports, not {wanted}");
        Ok(())
    }

    /// Restarts each group so often.
    pub(crate) async fn restart(&mut self, how: &str, times: u64) -> Result<()> {
        for (group, epoch) in &mut self.0 {
            let mut seconds = Vec::new();
            for _ in 0..times {
                seconds.push(restart(group, epoch).await?);
            }
            let seconds = median(seconds);
            progress(&format!("{} {how}: from exit to last start {seconds:.3} s (median of {times})", group.namespace));
        }
        Ok(())
    }

    /// Waits until no agent has a watch open: the audit log has the end of each.
    pub(super) async fn watch_nothing(&self, cluster: &Cluster) -> Result<()> {
        self.have_watches(cluster, 0).await
    }

    /// Waits until each agent has a watch open.
    pub(super) async fn all_watch(&self, cluster: &Cluster) -> Result<()> {
        self.have_watches(cluster, self.agents()).await
    }

    async fn have_watches(&self, cluster: &Cluster, wanted: usize) -> Result<()> {
        wait::until_met(install::LIMIT, format!("{wanted} watches of agents"), || async {
            let open = open_watches(cluster, self)?;
            Ok(if open.len() == wanted { Check::Met(()) } else { Check::Unmet(format!("these are open: {open:?}")) })
        })
        .await
    }
}

/// Reports of agents that the relays have received.
pub(super) async fn reports(cluster: &Cluster) -> Result<u64> {
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

/// Watches of agents that have begun and not ended, by their id.
fn open_watches(cluster: &Cluster, groups: &Groups) -> Result<BTreeMap<String, String>> {
    let log = std::fs::read_to_string(cluster.dir().join("logs/audit.log")).context("cannot read the audit log")?;
    let mut open = BTreeMap::new();
    // The last line may be half written.
    for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.contains("jobset-agent/")) {
        let event: Value = serde_json::from_str(line)?;
        let namespace = event["objectRef"]["namespace"].as_str().unwrap_or_default();
        if event["verb"] != "watch" || !groups.iter().any(|group| group.namespace == namespace) {
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
