//! Evictions, one after the other: none counts where a rule says so, and the group is told when the worker has ended.

use anyhow::{Context, Result};
use jobset_harness::journal::now;
use jobset_harness::median::median;
use jobset_harness::workload::SUPERVISED;
use kube::api::EvictParams;
use rstest::rstest;

use super::super::shared::{assert_replaced, start};
use super::restarts_before_a_successor_reports;
use super::{first_after, has_restarted, have_come_without_back_off, not_counting_maintenance};

const EVICTIONS: i32 = 10;

#[rstest]
#[case::sidecar("evicted-sidecar", "Sidecar")]
#[case::supervisor("evicted-supervisor", "Supervisor")]
#[tokio::test]
async fn evictions_under_excluding_rule_are_noticed_and_not_counted(
    #[case] namespace: &str,
    #[case] shape: &str,
) -> Result<()> {
    let (group, mut workers) =
        start(namespace, SUPERVISED, |workload| not_counting_maintenance(workload.injected(shape).of_shape(1, 2)))
            .await?;
    let (mut noticed, mut stopped) = (Vec::new(), Vec::new());
    for epoch in 1..=EVICTIONS {
        let [evicted, peer] = workers.values().collect::<Vec<_>>()[..] else { anyhow::bail!("not two: {workers:?}") };
        let began = now();
        group.pods.evict(&evicted.pod, &EvictParams::default()).await?;
        let told = restarts_before_a_successor_reports(&group, epoch, evicted).await?;
        let after = group.runs_in_epoch(epoch + 1).await?;
        assert_replaced(&workers, evicted, after.clone())?;
        let entries = group.journal()?;
        let ended = first_after(&entries, "exit", &evicted.pod, began)?.time;
        noticed.push(told - ended);
        stopped.push(first_after(&entries, "exit", &peer.pod, ended).context("the peer was not stopped")?.time - ended);
        workers = after;
    }
    for (what, seconds) in [("the restart", noticed), ("the end of its peer", stopped)] {
        let longest = seconds.iter().copied().fold(0.0, f64::max);
        let typical = median(seconds);
        println!(
            "e2e: {shape}: from the end of an evicted worker to {what} {typical:.3} s (median), {longest:.3} s (longest)"
        );
    }
    has_restarted(&group, EVICTIONS, 0).await?;
    have_come_without_back_off(&group).await
}
