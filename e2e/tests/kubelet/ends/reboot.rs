//! A node that reboots, and nobody has announced it: its Pods come back in place, or are replaced, and the group runs again.

use anyhow::{Context, Result, ensure};
use jobset_harness::group::Group;
use jobset_harness::journal::now;
use jobset_harness::workload::SUPERVISED;
use rstest::rstest;

use super::{has_restarted, notes, own_cluster};

/// The kubelet makes a second sandbox for a Pod whose containers it resets, and none for one that has ended by its rules.
#[rstest]
#[case::sidecar("reboot-sidecar", "Sidecar", false)]
#[case::supervisor("reboot-supervisor", "Supervisor", true)]
#[tokio::test]
async fn node_reboots_group_runs_again_and_counts_once(
    #[case] namespace: &str,
    #[case] shape: &str,
    #[case] replaced: bool,
) -> Result<()> {
    let (cluster, _alone) = own_cluster().await?;
    let group =
        Group::apply(cluster, namespace, SUPERVISED, |workload| workload.injected(shape).of_shape(1, 4)).await?;
    let before = group.runs_in_epoch(1).await?;
    let node = before.values().next().context("no worker")?.node.clone();
    let began = now();
    cluster.reboot(&node).await?;
    let named = async { notes(&group, "Restarting", &[&node]).await.map(|()| now() - began) };
    let runs = async { group.runs_in_epoch(2).await.map(|workers| (workers, now() - began)) };
    let (named, (after, runs)) = tokio::try_join!(named, runs)?;
    println!(
        "e2e: {shape}: from the loss of its power, the node was named after {named:.3} s, all ran again after {runs:.3} s"
    );
    for (slot, worker) in &before {
        let successor = after.get(slot).context("a slot is empty")?;
        let is_new = successor.uid != worker.uid;
        ensure!(is_new == (replaced && worker.node == node), "{worker:?} is {successor:?}");
    }
    if replaced {
        let victim = before.values().find(|worker| worker.node == node).context("no worker on that node")?;
        notes(&group, "PodReplaced", &[&victim.pod, &node]).await?;
    }
    has_restarted(&group, 1, 1).await?;
    group.remove().await
}
