//! JobSets whose nodes Kueue assigns by topology: they restart in place, stay on bad nodes, and leave lost ones together with Kueue.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use jobset_api::labels;
use jobset_e2e::clients::kueue;
use jobset_e2e::manifests;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT, Workers};
use jobset_harness::install::{self, kubectl};
use jobset_harness::journal::now;
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{SUPERVISED, Workload};
use kube::api::DeleteParams;
use serde_json::json;

use super::is_suspended;
use super::kueue::runs_again;
use super::queue::{self, LOCAL_QUEUE, QUEUE_NAME, VERSION, evictions, workload};
use crate::kubelet::{assert_in_place, binaries, has_restarted, notes};

const FLAVOR: &str = "topology";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Label of the nodes of the flavor.
const POOL: (&str, &str) = ("pool", "topology");
/// All Pods go to one host, or the JobSet waits.
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
/// The same where one has room for them.
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// The CPUs of a Pod that shares its node with no other of its kind: a node has two.
const MOST_OF_A_NODE: &str = "1100m";
/// How Events say why a Pod stays.
const PLACED: &str = "Kueue places it by topology";

/// After this time without word of a kubelet, its node is unreachable.
const MONITOR_GRACE: u32 = 20;
/// How long a node is unreachable until its Pods are given up.
const LOST_AFTER: u32 = 20;

#[tokio::test]
#[ignore = "ten minutes: make clients"]
async fn jobsets_placed_by_topology_restart_stay_and_leave_lost_nodes() -> Result<()> {
    let cluster = cluster().await?;
    for shape in ["Supervisor", "Sidecar"] {
        restarts_in_place_and_returns_to_its_node(&cluster, shape).await?;
        stays_on_a_bad_node(&cluster, shape).await?;
        stays_on_a_cordoned_node(&cluster, shape).await?;
        leaves_a_lost_node(&cluster, shape).await?;
    }
    waits_in_the_queue_where_no_node_is_left(&cluster).await?;
    cluster.stop().await
}

/// Three nodes in one flavor with a topology of hosts. Kueue's manager runs on the last one.
async fn cluster() -> Result<Cluster> {
    let grace = format!("--node-monitor-grace-period={MONITOR_GRACE}s");
    let cluster = Cluster::builder().controller_manager_arg(grace).cluster(3).await?;
    let nodes: Vec<&str> = cluster.nodes().iter().map(String::as_str).collect();
    let (key, value) = POOL;
    kubectl(&cluster, &[&["label", "node"], &nodes[..], &[&format!("{key}={value}")]].concat()).await?;
    install::install(&cluster, binaries().await?).await?;
    let (_, others) = nodes.split_last().context("no node")?;
    kubectl(&cluster, &[&["cordon"], others].concat()).await?;
    kueue::install(&cluster, &kueue::configuration("")?).await?;
    kubectl(&cluster, &[&["uncordon"], others].concat()).await?;
    let objects = [
        json!({"apiVersion": VERSION, "kind": "Topology", "metadata": {"name": "hosts"},
            "spec": {"levels": [{"nodeLabel": HOSTNAME}]}}),
        json!({"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR},
            "spec": {"nodeLabels": {key: value}, "topologyName": "hosts"}}),
        queue::cluster_queue([(FLAVOR, 6)]),
    ];
    manifests::apply(&cluster, "queues.yaml", &objects).await?;
    Ok(cluster)
}

/// Applies a JobSet of so many Pods, and waits until it runs where Kueue has said.
async fn start(
    cluster: &Cluster,
    namespace: &str,
    pods: usize,
    (topology, cpu): (&str, &str),
    change: impl FnOnce(Workload) -> Workload,
) -> Result<(Group, Workers)> {
    let group = Group::apply(cluster, namespace, SUPERVISED, |it| {
        let mut workload = change(it.of_shape(1, pods)).labelled(QUEUE_NAME, LOCAL_QUEUE).requesting_cpu(cpu);
        let template = &mut workload.0["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
        template["metadata"]["annotations"][topology] = json!(HOSTNAME);
        workload
    })
    .await?;
    queue::open(cluster, namespace).await?;
    let workers = group.runs_in_epoch(1).await?;
    are_where_kueue_says(&group).await?;
    Ok((group, workers))
}

fn annotated(mut workload: Workload, shape: &str, annotation: &str, value: &str) -> Workload {
    workload.0["metadata"]["annotations"][annotation] = json!(value);
    workload.injected(shape)
}

fn nodes_of(workers: &Workers) -> BTreeSet<&str> {
    workers.values().map(|worker| worker.node.as_str()).collect()
}

/// Kueue has opened its gate with a selector for the node of each Pod.
async fn are_where_kueue_says(group: &Group) -> Result<()> {
    for pod in group.live_pods().await? {
        let spec = pod.spec.context("a Pod without a specification")?;
        let selected = spec.node_selector.as_ref().and_then(|selector| selector.get(HOSTNAME));
        ensure!(selected.is_some() && selected == spec.node_name.as_ref(), "{selected:?}, {:?}", spec.node_name);
    }
    Ok(())
}

async fn restarts_in_place_and_returns_to_its_node(cluster: &Cluster, shape: &str) -> Result<()> {
    let namespace = format!("in-place-{}", shape.to_lowercase());
    let spread = (PREFERRED, MOST_OF_A_NODE);
    let (group, before) = start(cluster, &namespace, 2, spread, |it| it.injected(shape)).await?;
    ensure!(nodes_of(&before).len() == 2, "{before:?}");
    let victim = before.values().next().context("no worker")?;
    group.exit(victim, 1).await?;
    let after = group.runs_in_epoch(2).await?;
    assert_in_place(&before, &after);

    group.pods.delete(&victim.pod, &DeleteParams::default()).await?;
    let last = group.runs_in_epoch(3).await?;
    are_where_kueue_says(&group).await?;
    for (slot, worker) in &last {
        let earlier = after.get(slot).context("another slot")?;
        ensure!(worker.node == earlier.node, "{worker:?} was on {}", earlier.node);
        ensure!((worker.uid == earlier.uid) == (earlier.pod != victim.pod), "{worker:?} after {earlier:?}");
    }
    has_restarted(&group, 2, 2).await?;
    assert_eq!(evictions(&workload(&group).await?), 0);
    progress(&format!(
        "{shape}: restarted in place, and Kueue has assigned the node of a deleted Pod to its successor"
    ));
    group.remove().await
}

/// Kueue would assign the same node again, so nothing moves.
async fn stays_on_a_bad_node(cluster: &Cluster, shape: &str) -> Result<()> {
    let namespace = format!("bad-node-{}", shape.to_lowercase());
    let (group, mut before) =
        start(cluster, &namespace, 2, (REQUIRED, "200m"), |it| annotated(it, shape, labels::MOVE_AFTER_FAILURES, "2"))
            .await?;
    ensure!(nodes_of(&before).len() == 1, "{before:?}");
    for epoch in 2..=3 {
        group.exit(before.values().next().context("no worker")?, 1).await?;
        let after = group.runs_in_epoch(epoch).await?;
        assert_in_place(&before, &after);
        before = after;
    }
    let status = group.status().await?;
    ensure!(status.avoided_nodes.is_empty() && status.node_strikes.len() == 2, "{status:?}");
    notes(&group, "NodeNotLeft", &[PLACED]).await?;
    has_restarted(&group, 2, 2).await?;
    progress(&format!("{shape}: two failures on one node, and all Pods have stayed there"));
    group.remove().await
}

/// It leaves the node once somebody deletes it, as a drain does: Kueue assigns no node with such a taint.
async fn stays_on_a_cordoned_node(cluster: &Cluster, shape: &str) -> Result<()> {
    let namespace = format!("cordoned-{}", shape.to_lowercase());
    let (group, before) = start(cluster, &namespace, 2, (PREFERRED, MOST_OF_A_NODE), |it| {
        annotated(it, shape, labels::LEAVE_CORDONED, "Now")
    })
    .await?;
    let worker = before.values().next().context("no worker")?;
    kubectl(cluster, &["cordon", &worker.node]).await?;
    let stayed = stays_until_deleted(&group, &before).await;
    kubectl(cluster, &["uncordon", &worker.node]).await?;
    stayed?;
    progress(&format!("{shape}: a Pod has stayed on a cordoned node, also in a restart, until it was deleted"));
    group.remove().await
}

async fn stays_until_deleted(group: &Group, before: &Workers) -> Result<()> {
    let (slot, worker) = before.iter().next().context("no worker")?;
    notes(group, "StaysOnCordonedNode", &[&worker.pod, PLACED]).await?;
    group.exit(worker, 1).await?;
    assert_in_place(before, &group.runs_in_epoch(2).await?);

    group.pods.delete(&worker.pod, &DeleteParams::default()).await?;
    let after = group.runs_in_epoch(3).await?;
    are_where_kueue_says(group).await?;
    ensure!(after.get(slot).is_some_and(|it| it.node != worker.node), "{after:?}");
    has_restarted(group, 2, 2).await
}

/// The Pod of the lost node is given up, Kueue assigns another node in place of the lost one, and the successor goes there.
async fn leaves_a_lost_node(cluster: &Cluster, shape: &str) -> Result<()> {
    let namespace = format!("lost-node-{}", shape.to_lowercase());
    let (group, before) = start(cluster, &namespace, 2, (PREFERRED, MOST_OF_A_NODE), |it| {
        annotated(it, shape, labels::NODE_LOST_AFTER, &format!("{LOST_AFTER}s"))
    })
    .await?;
    let lost = without_kueue(cluster, &before)?;
    let began = now();
    cluster.power_off(&lost).await?;
    let after = group.runs_in_epoch(2).await;
    let ran = now() - began;
    cluster.power_on(&lost).await?;
    let after = after?;
    progress(&format!("{shape}: {lost} was lost, and all ran elsewhere after {ran:.3} s"));
    ensure!(!nodes_of(&after).contains(lost.as_str()) && nodes_of(&after).len() == 2, "{after:?}");
    are_where_kueue_says(&group).await?;
    for (slot, worker) in before.iter().filter(|(_, worker)| worker.node != lost) {
        ensure!(after.get(slot).is_some_and(|it| it.uid == worker.uid), "{worker:?} is replaced");
    }
    notes(&group, "NodeLost", &[&lost]).await?;
    has_restarted(&group, 1, 1).await?;
    assert_eq!(evictions(&workload(&group).await?), 0);
    is_ready_again(cluster, &lost).await?;
    group.remove().await
}

/// Each node has room for one Pod. Kueue takes the admission back, and gives it again once the node is there.
async fn waits_in_the_queue_where_no_node_is_left(cluster: &Cluster) -> Result<()> {
    let (group, before) = start(cluster, "no-node-left", 3, (PREFERRED, MOST_OF_A_NODE), |it| {
        annotated(it, "Supervisor", labels::NODE_LOST_AFTER, &format!("{LOST_AFTER}s"))
    })
    .await?;
    let lost = without_kueue(cluster, &before)?;
    cluster.power_off(&lost).await?;
    let evicted = is_suspended(&group).await;
    cluster.power_on(&lost).await?;
    evicted?;
    assert_eq!(evictions(&workload(&group).await?), 1);
    is_ready_again(cluster, &lost).await?;
    let after = runs_again(&group).await?;
    ensure!(nodes_of(&after).len() == 3, "{after:?}");
    let status = group.status().await?;
    assert_eq!(status.restarts_count_towards_max, 1, "the loss is counted once: {status:?}");
    progress("no node was left: evicted, and admitted again when the node was back");
    group.remove().await
}

/// A node of these workers on which Kueue's manager does not run.
fn without_kueue(cluster: &Cluster, workers: &Workers) -> Result<String> {
    let of_kueue = cluster.nodes().last().context("no node")?;
    let node = nodes_of(workers).into_iter().find(|node| node != of_kueue);
    node.map(str::to_owned).context("all workers are on the node of Kueue")
}

async fn is_ready_again(cluster: &Cluster, node: &str) -> Result<()> {
    let conditions = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status} {.spec.taints[*].key}";
    wait::until_met(LIMIT, format!("{node} to be ready again"), || async {
        let shown = kubectl(cluster, &["get", "node", node, "-o", conditions]).await?.stdout;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        Ok(if shown.trim() == "True" { Check::Met(()) } else { Check::Unmet(shown) })
    })
    .await
}
