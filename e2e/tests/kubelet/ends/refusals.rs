//! Pods that never run their worker: refused by their node, or failed before.

use anyhow::{Result, ensure};
use jobset_api::conditions;
use jobset_harness::group::{Group, LIMIT};
use jobset_harness::install::kubectl;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::SUPERVISED;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

use super::super::shared::{apply, installed};
use super::{has_restarted, own_cluster, says};

/// A label that the Pods need, and no node has.
const LABEL: &str = "ends-of-pods/device";

/// A Pod that is bound without the scheduler is refused by its kubelet.
#[tokio::test]
async fn pod_refused_by_its_node_is_replaced_and_not_counted() -> Result<()> {
    let cluster = installed().await?;
    let node = &cluster.nodes()[1];
    let group = apply("refused", SUPERVISED, |workload| {
        let mut workload = workload.of_shape(1, 2).with_max_restarts(0);
        workload.each_pod(|pod| {
            pod["nodeName"] = json!(node);
            pod["nodeSelector"] = json!({LABEL: "up"});
        });
        workload
    })
    .await?;
    says(&group, conditions::BARRIER_BLOCKED, &[node, "NodeAffinity"]).await?;
    wait::until_met(LIMIT, "three refusals of a Pod", || async {
        let pods = group.pods.list(&ListParams::default()).await?.items;
        let first = pods.iter().filter(|pod| pod.name_any().contains("-0-0-")).count();
        Ok(if first >= 3 { Check::Met(()) } else { Check::Unmet(format!("{first} Pods")) })
    })
    .await?;
    has_restarted(&group, 0, 0).await?;
    kubectl(cluster, &["label", "node", node, &format!("{LABEL}=up")]).await?;
    let ran = group.runs_in_epoch(1).await;
    // For the other tests, whatever became of this one.
    kubectl(cluster, &["label", "node", node, &format!("{LABEL}-")]).await?;
    ran?;
    has_restarted(&group, 0, 0).await
}

/// A program of the node has the port of the agent's barrier.
#[tokio::test]
async fn agent_with_taken_port_says_so_pod_is_replaced() -> Result<()> {
    let (cluster, _alone) = own_cluster().await?;
    let program = std::path::Path::new("/bin/busybox");
    cluster.start_program("port-taken", program, &["httpd", "-f", "-p", "8080", "-h", "/"], &[]).await?;
    let blocked = blocked(cluster).await;
    cluster.stop_program("port-taken").await?;
    let group = blocked?;
    group.runs_in_epoch(1).await?;
    has_restarted(&group, 0, 0).await?;
    group.remove().await
}

async fn blocked(cluster: &jobset_harness::Cluster) -> Result<Group> {
    let group = Group::apply(cluster, "port-taken", SUPERVISED, |workload| {
        let mut workload = workload.injected("Sidecar").of_shape(1, 1).with_max_restarts(2);
        workload.each_pod(|pod| pod["hostNetwork"] = json!(true));
        workload
    })
    .await?;
    let first = wait::until(LIMIT, "the first Pod", || async { Ok(group.live_pods().await?.pop()) }).await?;
    says(&group, conditions::BARRIER_BLOCKED, &["8080", &first.name_any()]).await?;
    wait::until_met(LIMIT, "the Pod to be replaced", || async {
        let pods = group.live_pods().await?;
        let is_new = pods.iter().any(|pod| pod.uid() != first.uid());
        Ok(if is_new { Check::Met(()) } else { Check::Unmet(format!("{} Pods", pods.len())) })
    })
    .await?;
    ensure!(group.status().await?.terminal_state.is_empty(), "it has failed although one Pod has been replaced");
    Ok(group)
}
