//! Nodes that are bad, cordoned or lost: what that costs a group, and where it runs then. The seconds are printed.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use jobset_api::labels;
use jobset_harness::Cluster;
use jobset_harness::group::{Group, LIMIT, Workers};
use jobset_harness::install::kubectl;
use jobset_harness::journal::now;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{SUPERVISED, Workload};
use rstest::rstest;
use serde_json::json;
use tokio::sync::MutexGuard;

use super::ends::{has_restarted, notes};
use super::shared::LoneCluster;

/// After this time without word of a kubelet, its node is unreachable, in the cluster of these tests.
const MONITOR_GRACE: u32 = 20;
/// How long a node is unreachable until its Pods are given up.
const LOST_AFTER: u32 = 20;
const PODS: usize = 3;

/// A cluster of three nodes that are cordoned and killed, with the product installed. Whoever has it, has it alone.
async fn three_nodes() -> Result<(&'static Cluster, MutexGuard<'static, ()>)> {
    static CLUSTER: LoneCluster = LoneCluster::new();
    let grace = format!("--node-monitor-grace-period={MONITOR_GRACE}s");
    CLUSTER.alone(3, Cluster::builder().controller_manager_arg(grace)).await
}

/// Three workers, and an annotation of their JobSet.
fn annotated(workload: Workload, shape: &str, annotation: &str, value: &str) -> Workload {
    let mut workload = workload.injected(shape).of_shape(1, PODS);
    workload.0["metadata"]["annotations"][annotation] = json!(value);
    workload
}

/// Keeps the Pods of the workload apart, one on each node: always, or where there is room.
fn apart(mut workload: Workload, always: bool) -> Workload {
    let same = json!({"matchLabels": {labels::JOBSET_NAME: workload.name()}});
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": same});
    let rule = if always {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
    } else {
        json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]})
    };
    workload.each_pod(|pod| pod["affinity"] = json!({"podAntiAffinity": rule}));
    workload
}

fn nodes_of(workers: &Workers) -> BTreeSet<&str> {
    workers.values().map(|worker| worker.node.as_str()).collect()
}

/// Ends a worker on the bad node, if there is one, in each epoch. Returns the last epoch, and its workers: those of two failures, or
/// those that have left the node.
async fn fails_on(group: &Group, bad: &str, mut workers: Workers) -> Result<(i32, Workers)> {
    let mut epoch = 1;
    while let Some(worker) = workers.values().find(|worker| worker.node == bad).filter(|_| epoch <= 2) {
        group.exit(worker, 1).await?;
        epoch += 1;
        workers = group.runs_in_epoch(epoch).await?;
    }
    Ok((epoch, workers))
}

#[rstest]
#[case::sidecar("bad-node-sidecar", "Sidecar")]
#[case::supervisor("bad-node-supervisor", "Supervisor")]
#[tokio::test]
async fn bad_node_costs_two_restarts_then_others_run(#[case] namespace: &str, #[case] shape: &str) -> Result<()> {
    let (cluster, _alone) = three_nodes().await?;
    let group = Group::apply(cluster, namespace, SUPERVISED, |workload| {
        annotated(workload, shape, labels::MOVE_AFTER_FAILURES, "2")
    })
    .await?;
    let before = group.runs_in_epoch(1).await?;
    let bad = before.values().next().context("no worker")?.node.clone();
    let began = now();
    let (epoch, after) = fails_on(&group, &bad, before).await?;
    println!(
        "e2e: {shape}: {:.3} s from the first failure on {bad} until all ran on {:?}",
        now() - began,
        nodes_of(&after)
    );
    let status = group.status().await?;
    ensure!(epoch == 3 && !nodes_of(&after).contains(bad.as_str()), "epoch {epoch}, {after:?}");
    ensure!(status.avoided_nodes.iter().any(|avoided| avoided.node == bad), "{:?}", status.avoided_nodes);
    has_restarted(&group, 2, 2).await?;
    group.remove().await
}

/// Each node has room for one Pod of the group.
#[tokio::test]
async fn group_with_no_other_node_runs_on_bad_one() -> Result<()> {
    let (cluster, _alone) = three_nodes().await?;
    let group = Group::apply(cluster, "bad-node-alone", SUPERVISED, |workload| {
        apart(annotated(workload, "Supervisor", labels::MOVE_AFTER_FAILURES, "2"), true)
    })
    .await?;
    let before = group.runs_in_epoch(1).await?;
    let bad = before.values().next().context("no worker")?.node.clone();
    let began = now();
    let (epoch, after) = fails_on(&group, &bad, before).await?;
    println!("e2e: no other node: {:.3} s from the first failure until all ran again", now() - began);
    ensure!(epoch == 3 && nodes_of(&after).len() == PODS, "epoch {epoch}, {after:?}");
    has_restarted(&group, 2, 2).await?;
    group.remove().await
}

#[rstest]
#[case::sidecar("cordoned-sidecar", "Sidecar")]
#[case::supervisor("cordoned-supervisor", "Supervisor")]
#[tokio::test]
async fn two_cordoned_nodes_empty_by_one_uncounted_restart(#[case] namespace: &str, #[case] shape: &str) -> Result<()> {
    let (cluster, _alone) = three_nodes().await?;
    let group = Group::apply(cluster, namespace, SUPERVISED, |workload| {
        apart(annotated(workload, shape, labels::LEAVE_CORDONED, "Now"), false)
    })
    .await?;
    let before = group.runs_in_epoch(1).await?;
    ensure!(nodes_of(&before).len() == PODS, "{before:?}");
    let (kept, cordoned) = cluster.nodes().split_last().context("no node")?;
    let began = now();
    let all: Vec<&str> = cordoned.iter().map(String::as_str).collect();
    kubectl(cluster, &[&["cordon"], &all[..]].concat()).await?;
    let emptied = wait::until_met(LIMIT, format!("{cordoned:?} without Pods of {namespace}"), || async {
        let workers = group.workers().await?;
        let left = workers.values().filter(|worker| cordoned.contains(&worker.node)).count();
        Ok(if left == 0 { Check::Met(now() - began) } else { Check::Unmet(format!("{left} Pods are left")) })
    })
    .await;
    let after = group.runs_in_epoch(2).await;
    let ran = now() - began;
    kubectl(cluster, &[&["uncordon"], &all[..]].concat()).await?;
    let (emptied, after) = (emptied?, after?);
    println!("e2e: {shape}: two nodes were cordoned; empty after {emptied:.3} s, all ran again after {ran:.3} s");
    ensure!(nodes_of(&after) == BTreeSet::from([kept.as_str()]), "{after:?}");
    for (slot, worker) in before.iter().filter(|(_, worker)| worker.node == *kept) {
        ensure!(after.get(slot).is_some_and(|it| it.uid == worker.uid), "{worker:?} is replaced");
    }
    notes(&group, "Restarting", &["Pods leave cordoned nodes", "not counted"]).await?;
    has_restarted(&group, 1, 0).await?;
    group.remove().await
}

/// The kubelet of the node, and all on it, end for good: nobody confirms the end of its Pods.
#[rstest]
#[case::sidecar("lost-node-sidecar", "Sidecar")]
#[case::supervisor("lost-node-supervisor", "Supervisor")]
#[tokio::test]
async fn group_of_lost_node_runs_elsewhere(#[case] namespace: &str, #[case] shape: &str) -> Result<()> {
    let (cluster, _alone) = three_nodes().await?;
    let group = Group::apply(cluster, namespace, SUPERVISED, |workload| {
        annotated(workload, shape, labels::NODE_LOST_AFTER, &format!("{LOST_AFTER}s"))
    })
    .await?;
    let before = group.runs_in_epoch(1).await?;
    let node = before.values().next().context("no worker")?.node.clone();
    let began = now();
    cluster.power_off(&node).await?;
    let after = group.runs_in_epoch(2).await;
    let ran = now() - began;
    cluster.power_on(&node).await?;
    let after = after?;
    println!(
        "e2e: {shape}: {node} was lost, and all ran elsewhere after {ran:.3} s: {MONITOR_GRACE} s until it was unreachable, \
         {LOST_AFTER} s more until its Pods were given up"
    );
    ensure!(!nodes_of(&after).contains(node.as_str()), "{after:?}");
    for (slot, worker) in before.iter().filter(|(_, worker)| worker.node != node) {
        ensure!(after.get(slot).is_some_and(|it| it.uid == worker.uid), "{worker:?} is replaced");
    }
    notes(&group, "NodeLost", &[&node]).await?;
    notes(&group, "Restarting", &[&node, "NodeLost"]).await?;
    has_restarted(&group, 1, 1).await?;
    group.remove().await?;
    // The next test wants all of its nodes.
    wait::until_met(LIMIT, format!("{node} to be ready again"), || async {
        let line = kubectl(cluster, &["get", "node", &node, "--no-headers"]).await?.stdout;
        let line = String::from_utf8_lossy(&line).into_owned();
        Ok(if line.contains(" Ready ") { Check::Met(()) } else { Check::Unmet(line) })
    })
    .await
}
