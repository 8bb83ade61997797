//! An installation under NetworkPolicies that are enforced, beside policies that deny everything else.

use anyhow::{Context as _, Result, ensure};
use jobset_harness::cluster::Cluster;
use jobset_harness::group::Group;
use jobset_harness::install::{self, NAMESPACE, kubectl};
use jobset_harness::markdown::blocks;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::first::read;
use super::shared::{binaries, run_kubectl_jobset};
use super::stream::{Groups, reports};
use crate::seat::take_seat;

/// Restarts of each group.
const RESTARTS: u64 = 2;

#[tokio::test]
async fn policies_that_block_relays_are_named_groups_restart_by_watch() -> Result<()> {
    take_seat().await?;
    let cluster = Cluster::builder().audit_log().cluster(2).await?;
    let client = cluster.client();
    let _enforced = cluster.enforce_network_policies().await?;
    kubectl(&cluster, &["create", "namespace", NAMESPACE]).await?;
    create(&client, NAMESPACE, &deny_all()).await?;
    // The programs of the product reach the API server, their relays, and nobody else.
    let peers = format!("networkPolicy.apiServers={}", api_servers(&cluster).await?);
    install::install_chart(&cluster, binaries().await?, &["--set-json", &peers]).await?;
    let mut groups = Groups::apply(&cluster, "policies").await?;
    for group in groups.iter() {
        for policy in [deny_all(), orders(), dns(&cluster), allowance()?] {
            create(&client, &group.namespace, &policy).await?;
        }
    }
    groups.run_over_stream(&cluster).await?;
    groups.restart_over_stream(&cluster, RESTARTS).await?;
    for group in groups.iter() {
        knows_agents(group, group.workers).await?;
        let said = explained(&cluster, group).await?;
        ensure!(!said.contains("NetworkPolic"), "{said}");
    }

    // The tenant closes the way to the relays. Nothing is refused: packets are dropped.
    for group in groups.iter() {
        let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), &group.namespace);
        create(&client, &group.namespace, &api_server_alone()).await?;
        policies.delete("jobset-agents", &DeleteParams::default()).await?;
    }
    groups.all_watch(&cluster).await?;
    let before = reports(&cluster).await?;
    groups.restart("behind policies", RESTARTS).await?;
    assert_eq!(reports(&cluster).await?, before, "no report has come through policies that forbid it");
    for group in groups.iter() {
        knows_agents(group, 0).await?;
        let said = explained(&cluster, group).await?;
        ensure!(said.contains("NetworkPolicies of the namespace") && said.contains("jobset-relay"), "{said}");
        ensure!(said.contains(&format!("The agents of {0} of {0} Pods are not on", group.workers)), "{said}");
        let shown = run_kubectl_jobset(&cluster, &["status", &group.name, "-n", &group.namespace]).await?.0;
        ensure!(shown.contains(&format!("0 of {} on the agent stream", group.workers)), "{shown}");
    }
    cluster.stop().await
}

/// Waits until the status says that so many agents are on the stream. Of those that are lost, it says so after a minute.
async fn knows_agents(group: &Group, connected: usize) -> Result<()> {
    let wanted = Some((i32::try_from(connected)?, i32::try_from(group.workers)?));
    wait::until_met(install::LIMIT, format!("{connected} agents on the stream of {}", group.namespace), || async {
        let told = group.status().await?.agent_stream;
        let numbers = told.as_ref().map(|told| (told.connected_pods, told.expected_pods));
        Ok(if numbers == wanted { Check::Met(()) } else { Check::Unmet(format!("the status says {told:?}")) })
    })
    .await
}

async fn explained(cluster: &Cluster, group: &Group) -> Result<String> {
    Ok(run_kubectl_jobset(cluster, &["explain", &group.name, "-n", &group.namespace]).await?.0)
}

async fn create(client: &Client, namespace: &str, policy: &Value) -> Result<()> {
    let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), namespace);
    policies.create(&PostParams::default(), &serde_json::from_value(policy.clone())?).await?;
    Ok(())
}

/// What many platforms put into each namespace.
fn deny_all() -> Value {
    policy("deny-all", &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}))
}

/// Tests tell workers what to do by connections from outside of the cluster.
fn orders() -> Value {
    policy("orders", &json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}))
}

/// The policy that the page on the stream has for tenants.
fn allowance() -> Result<Value> {
    let page = blocks(&read("docs/src/agent-stream.md")?)?;
    let block = page.into_iter().find(|block| block.text.contains("kind: NetworkPolicy"));
    Ok(serde_yaml_ng::from_str(&block.context("the page has no NetworkPolicy")?.text)?)
}

/// Address of the node on which API server and DNS run.
fn server_address(cluster: &Cluster) -> &str {
    let server = cluster.ready().server.trim_start_matches("https://");
    server.split(':').next().unwrap_or_default()
}

/// The peers by which programs reach the API server: its Service, and the endpoint behind that.
async fn api_servers(cluster: &Cluster) -> Result<Value> {
    let services: Api<Service> = Api::namespaced(cluster.client(), "default");
    let service =
        services.get("kubernetes").await?.spec.and_then(|spec| spec.cluster_ip).context("it has no address")?;
    Ok([&service, server_address(cluster)].map(|address| json!({"ipBlock": {"cidr": format!("{address}/32")}})).into())
}

/// DNS of the test's cluster runs on a node, and not in a Pod.
fn dns(cluster: &Cluster) -> Value {
    let address = server_address(cluster);
    let ports = json!([{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]);
    policy(
        "dns",
        &json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [
        {"to": [{"ipBlock": {"cidr": format!("{address}/32")}}], "ports": ports}]}),
    )
}

fn api_server_alone() -> Value {
    policy(
        "api-server",
        &json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [
        {"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]}]}),
    )
}

fn policy(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec})
}
