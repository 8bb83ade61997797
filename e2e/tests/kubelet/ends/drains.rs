//! Nodes that are drained, one after the other: each drain ends with the grace of its Pods, and none counts.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use jobset_api::labels;
use jobset_harness::group::Group;
use jobset_harness::install::kubectl;
use jobset_harness::workload::SUPERVISED;
use rstest::rstest;

use super::{has_restarted, have_come_without_back_off, not_counting_maintenance, own_cluster};

const GRACE: u32 = 2;
/// Drains in a row. With the back-off of the Job controller, the third one waits for 40 s.
const DRAINS: i32 = 3;

#[rstest]
#[case::sidecar("drained-sidecar", "Sidecar")]
#[case::supervisor("drained-supervisor", "Supervisor")]
#[tokio::test]
async fn drains_in_a_row_wait_for_no_back_off(#[case] namespace: &str, #[case] shape: &str) -> Result<()> {
    let (cluster, _alone) = own_cluster().await?;
    let group = Group::apply(cluster, namespace, SUPERVISED, |workload| {
        let mut workload = not_counting_maintenance(workload.injected(shape).of_shape(1, 2));
        workload.each_pod(|pod| pod["terminationGracePeriodSeconds"] = GRACE.into());
        workload
    })
    .await?;
    let mut workers = group.runs_in_epoch(1).await?;
    let selector = format!("--pod-selector={}={}", labels::JOBSET_NAME, group.name);
    for epoch in 1..=DRAINS {
        let node = workers.values().next().context("no worker")?.node.clone();
        let began = Instant::now();
        let drained = kubectl(cluster, &["drain", &node, &selector, "--delete-emptydir-data", "--timeout=2m"]).await;
        let seconds = began.elapsed().as_secs_f64();
        kubectl(cluster, &["uncordon", &node]).await?;
        drained?;
        println!("e2e: {shape}: drain {epoch} took {seconds:.3} s, grace {GRACE} s");
        let after = group.runs_in_epoch(epoch + 1).await?;
        ensure!(
            after.values().filter(|worker| workers.values().all(|it| it.uid != worker.uid)).count() > 0,
            "{after:?}"
        );
        workers = after;
        have_come_without_back_off(&group).await?;
    }
    has_restarted(&group, DRAINS, 0).await?;
    group.remove().await
}
