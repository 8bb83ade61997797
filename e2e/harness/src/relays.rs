//! The relays of an installed product: their Pods, and how many agents are connected to each.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::install::{NAMESPACE, RELAY};
use crate::wait::{self, Check};
use crate::workload::is_ready;
use crate::{http_client, order};

const METRICS_PORT: u16 = 8081;

/// The Pods of relays that are not being deleted.
pub async fn pods(client: &Client) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut found = pods.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={RELAY}"))).await?.items;
    found.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(found)
}

/// The value of a metric of one relay; all are whole numbers.
pub async fn metric(relay: &Pod, name: &str) -> Result<u64> {
    let exposition = order::get(relay, METRICS_PORT, "/metrics").await?;
    let value = exposition.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.with_context(|| format!("{} has no metric {name}", relay.name_any()))?;
    value.trim().parse().with_context(|| format!("{name} of {} is {value}", relay.name_any()))
}

/// The sum of all series of a metric of the relay that has this address for health and metrics.
pub async fn sum_of_series(address: SocketAddr, name: &str) -> Result<u64> {
    let exposition = http_client::get(address, "/metrics").await?;
    let series = exposition.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let values: Vec<u64> =
        series.map(|it| it.rsplit(' ').next().unwrap_or_default().parse()).collect::<Result<_, _>>()?;
    ensure!(!values.is_empty(), "{address} has no metric {name}");
    Ok(values.iter().sum())
}

/// The sum of a metric over all relays that are ready.
pub async fn sum(client: &Client, name: &str) -> Result<u64> {
    let mut sum = 0;
    for relay in pods(client).await?.iter().filter(|relay| is_ready(relay)) {
        sum += metric(relay, name).await?;
    }
    Ok(sum)
}

/// Waits until exactly so many agents are connected to all relays together.
pub async fn have_agents(client: &Client, wanted: usize, limit: Duration) -> Result<()> {
    wait::until_met(limit, format!("{wanted} agents at the relays"), || async {
        let agents = sum(client, "jobset_relay_connected_agents").await?;
        Ok(if agents == wanted as u64 { Check::Met(()) } else { Check::Unmet(format!("{agents} agents")) })
    })
    .await
}
