//! What is done to the agent stream: relays, network, tokens and certificates.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use jobset_api::agent::{RELAY_FOLDER, RELAY_TOKEN};
use jobset_api::labels::JOBSET_NAME;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::plan::Step;
use super::stopped::Stopped;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::LIMIT;
use jobset_harness::install::{NAMESPACE, RELAY, rolled_out};
use jobset_harness::process::{self, Errno, Process, Signal};
use jobset_harness::relays;
use jobset_harness::wait::{self, Check};

/// Ports of relays: for agents and for the leader.
const PORTS: [u16; 2] = [9443, 9444];
/// Secret with the CA.
const CA: &str = "jobset-webhook-server-cert";
/// Secret with the certificate of the relays.
const LEAF: &str = "jobset-relay-leaf";
/// Annotation that throws a CA out.
const DISTRUST: &str = "jobset.sigs.k8s.io/distrust-ca-before";
/// How long agents may take to connect again. After another CA, two volumes come one after the other: with the controller's Secret, and
/// with the ConfigMap of the agents; a kubelet takes over a minute for each.
const RETURN: Duration = Duration::from_mins(5);
/// How much longer than other parts the stream is disturbed: agents take 10 s of silence for its end.
const LONGER: u32 = 2;

/// Waits until all relays are ready, and all agents connected.
pub(super) async fn is_whole(cluster: &Cluster) -> Result<()> {
    rolled_out(cluster, NAMESPACE, RELAY).await?;
    relays::have_agents(&cluster.client(), pods(cluster).await?.len(), RETURN).await
}

/// All relays that run: names of their Pods, and processes.
pub(super) async fn relays(cluster: &Cluster) -> Result<Vec<(String, Process)>> {
    let names = relays::pods(&cluster.client()).await?.into_iter().map(|pod| pod.name_any());
    names.map(|name| Ok((name.clone(), process::find_one(RELAY, &[("HOSTNAME", &name)])?))).collect()
}

/// Kills relays, and deletes their Pods: the kubelets would wait longer each time before they restart them.
pub(super) async fn kill(cluster: &Cluster, relays: Vec<(String, Process)>) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    for (_, relay) in &relays {
        match relay.signal(Signal::KILL) {
            // It has ended already.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error).context("cannot kill a relay"),
        }
    }
    for (pod, _) in relays {
        pods.delete(&pod, &DeleteParams::default().grace_period(0)).await?;
    }
    Ok(())
}

/// The addresses of the relays and of their Service.
pub(super) async fn addresses(cluster: &Cluster) -> Result<Vec<String>> {
    let client = cluster.client();
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let service = services.get(RELAY).await?.spec.and_then(|spec| spec.cluster_ip);
    let pods = relays::pods(&client).await?.into_iter().filter_map(|pod| pod.status?.pod_ip);
    Ok(service.into_iter().chain(pods).collect())
}

/// Blocks the ports of the relays for a while.
pub(super) async fn block(cluster: &Cluster, addresses: &[String], step: &Step) -> Result<()> {
    let blocked = async {
        cluster.block(addresses, &PORTS).await?;
        tokio::time::sleep(step.outage * LONGER).await;
        anyhow::Ok(())
    };
    let blocked = blocked.await;
    // Also after a failure. If this program ends before, the rules end with the cluster.
    cluster.unblock().await?;
    blocked
}

pub(super) async fn stop(relay: &Process, step: &Step) -> Result<()> {
    let stopped = Stopped::stop(relay)?;
    tokio::time::sleep(step.outage * LONGER).await;
    drop(stopped);
    Ok(())
}

/// Restarts the kubelets, which know of no tokens afterwards and request new ones, and waits until each agent has another one.
pub(super) async fn replace_tokens(cluster: &Cluster) -> Result<()> {
    let pods = pods(cluster).await?;
    let before = tokens(&pods)?;
    for node in cluster.nodes() {
        cluster.stop_kubelet(node).await?;
        cluster.start_kubelet(node).await?;
    }
    wait::until_met(LIMIT, "other tokens of all agents", || async {
        let now = tokens(&pods)?;
        let same = before.iter().zip(now).filter(|(before, now)| *before == now).count();
        Ok(if same == 0 { Check::Met(()) } else { Check::Unmet(format!("{same} have theirs still")) })
    })
    .await
}

/// Has the CA replaced, and waits until the relays' certificate is one of the new CA.
pub(super) async fn replace_ca(cluster: &Cluster) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), NAMESPACE);
    let certificate = async || anyhow::Ok(secrets.get(LEAF).await?.data.and_then(|mut data| data.remove("tls.crt")));
    let before = certificate().await?;
    let patch = json!({"metadata": {"annotations": {DISTRUST: Timestamp::now().to_string()}}});
    secrets.patch(CA, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    wait::until(LIMIT, "a certificate of another CA", || async { Ok((certificate().await? != before).then_some(())) })
        .await
}

async fn pods(cluster: &Cluster) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::all(cluster.client());
    let mut found = pods.list(&ListParams::default().labels(JOBSET_NAME)).await?.items;
    found.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(found)
}

fn tokens(pods: &[Pod]) -> Result<Vec<String>> {
    let token = |pod: &Pod| {
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        let agent = process::find_one("jobset-agent", &[("POD_NAME", &name), ("NAMESPACE", &namespace)])?;
        let path = format!("/proc/{}/root{RELAY_FOLDER}/{RELAY_TOKEN}", agent.pid.as_raw_nonzero());
        fs::read_to_string(path).context("cannot read the token of an agent")
    };
    pods.iter().map(token).collect()
}
