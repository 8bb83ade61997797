//! Peers find each other while they are held at the barrier, and at the same address after it.

use anyhow::{Context, Result};
use jobset_harness::group::{Group, LIMIT, Workers};
use jobset_harness::install::kubectl;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{STORY_1, Workload};
use serde_json::{Value, json};

use super::shared::{apply, assert_in_place, installed};

const NAMESPACE: &str = "held-at-the-barrier";
/// Port of the sidecar that runs before the agent, and so before the barrier.
const RESOLVER_PORT: u16 = 9001;
/// Node label that the last Pod waits for.
const NODE_LABEL: &str = "barrier-test";

/// Adds to every Pod a sidecar that resolves names while the barrier is closed, and to the JobSet one more Pod that no
/// node takes: until it is there, the barrier stays closed.
fn held(workload: Workload) -> Workload {
    let mut workload = workload.of_shape(1, 2);
    workload.each_pod(|pod| {
        let resolver = json!({
            "name": "resolver",
            "image": pod["containers"][0]["image"],
            "restartPolicy": "Always",
            "env": [{"name": "WORKER_PORT", "value": RESOLVER_PORT.to_string()}],
        });
        if let Some(containers) = pod["initContainers"].as_array_mut() {
            containers.insert(0, resolver);
        }
    });
    let mut late: Value = workload.0["spec"]["replicatedJobs"][0].clone();
    late["name"] = json!("late");
    late["template"]["spec"]["parallelism"] = json!(1);
    late["template"]["spec"]["completions"] = json!(1);
    late["template"]["spec"]["template"]["spec"]["nodeSelector"] = json!({NODE_LABEL: NAMESPACE});
    if let Some(groups) = workload.0["spec"]["replicatedJobs"].as_array_mut() {
        groups.push(late);
    }
    workload
}

/// The address that the sidecar of the first worker finds for the second.
async fn resolve_peer(group: &Group, workers: &Workers) -> Result<String> {
    let slot = |job: &str, index: &str| (job.to_owned(), index.to_owned());
    let asking = workers.get(&slot("0", "0")).context("no first worker")?;
    let name = format!("{0}-workers-0-1.{0}", group.name);
    group.get(asking, RESOLVER_PORT, &format!("/resolve?name={name}")).await
}

#[tokio::test]
async fn peers_at_barrier_resolve_each_other_keep_address() -> Result<()> {
    let group = apply(NAMESPACE, STORY_1, held).await?;
    let peer = ("0".to_owned(), "1".to_owned());
    let while_held = wait::until_met(LIMIT, "the first worker to find the second, both held", || async {
        let workers = group.workers().await?;
        let address = workers.get(&peer).map(|worker| worker.ip.clone()).unwrap_or_default();
        let answer = resolve_peer(&group, &workers).await?;
        let found = !address.is_empty() && answer.contains(&format!("\"{address}\""));
        Ok(if found { Check::Met(address) } else { Check::Unmet(format!("{answer}, not {address}")) })
    })
    .await?;
    assert!(group.journal()?.is_empty(), "a worker started before the barrier was lifted");
    assert_eq!(group.status().await?.synced_epoch, 0);

    let cluster = installed().await?;
    let node = &cluster.nodes()[0];
    kubectl(cluster, &["label", "node", node, &format!("{NODE_LABEL}={NAMESPACE}")]).await?;
    let lifted = group.runs_in_epoch(1).await?;
    assert_eq!(lifted.get(&peer).map(|worker| &worker.ip), Some(&while_held));

    group.exit(lifted.values().last().context("no worker")?, 1).await?;
    let restarted = group.runs_in_epoch(2).await?;
    assert_in_place(&lifted, &restarted);
    let answer = resolve_peer(&group, &restarted).await?;
    assert!(answer.contains(&format!("\"{while_held}\"")), "{answer}");
    Ok(())
}
