//! Pods that somebody deletes: their workers may save, the others stop when they have ended, and successors come at once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jobset_harness::journal::now;
use jobset_harness::workload::SUPERVISED;
use kube::api::DeleteParams;
use rstest::rstest;

use super::super::shared::start;
use super::{first_after, has_restarted, have_come_without_back_off, notes, restarts_before_a_successor_reports};

/// Grace of a Pod whose worker ignores SIGTERM, as one that saves its state.
const GRACE: u32 = 6;
const LOSSES: i32 = 4;

#[rstest]
#[case::sidecar("saves-sidecar", "Sidecar")]
#[case::supervisor("saves-supervisor", "Supervisor")]
#[tokio::test]
async fn peers_of_deleted_pod_run_until_its_worker_has_ended(
    #[case] namespace: &str,
    #[case] shape: &str,
) -> Result<()> {
    let (group, workers) = start(namespace, SUPERVISED, |workload| {
        let mut workload = workload.injected(shape).of_shape(1, 2).with_env("IGNORE_SIGTERM", "1");
        workload.each_pod(|pod| pod["terminationGracePeriodSeconds"] = GRACE.into());
        workload
    })
    .await?;
    let [deleted, peer] = workers.values().collect::<Vec<_>>()[..] else { anyhow::bail!("not two: {workers:?}") };
    let began = now();
    group.pods.delete(&deleted.pod, &DeleteParams::default()).await?;
    restarts_before_a_successor_reports(&group, 1, deleted).await?;
    group.runs_in_epoch(2).await?;
    let entries = group.journal()?;
    let asked = first_after(&entries, "sigterm", &deleted.pod, began)?.time;
    let stopped = first_after(&entries, "sigterm", &peer.pod, began)?.time;
    // The agent of a sidecar may end before its worker, which is killed at the end of the grace.
    let least = Duration::from_secs(u64::from(GRACE) - 2).as_secs_f64();
    ensure!(stopped - asked >= least, "the peer was stopped {:.3} s after the deletion", stopped - asked);
    println!("e2e: {shape}: the peer was stopped {:.3} s after SIGTERM, grace {GRACE} s", stopped - asked);
    notes(&group, "Restarting", &[&deleted.pod, "deleted"]).await?;
    has_restarted(&group, 1, 1).await
}

/// The same index, again and again. With the back-off of the Job controller, the fourth successor comes after 80 s.
#[rstest]
#[case::sidecar("lost-sidecar", "Sidecar")]
#[case::supervisor("lost-supervisor", "Supervisor")]
#[tokio::test]
async fn fourth_loss_of_an_index_has_no_back_off(#[case] namespace: &str, #[case] shape: &str) -> Result<()> {
    let (group, mut workers) = start(namespace, SUPERVISED, |workload| workload.injected(shape).of_shape(1, 2)).await?;
    let mut seconds = Vec::new();
    for epoch in 1..=LOSSES {
        let lost = workers.values().next().context("no worker")?.clone();
        let began = now();
        group.pods.delete(&lost.pod, &DeleteParams::default()).await?;
        workers = group.runs_in_epoch(epoch + 1).await?;
        seconds.push(last_start(&group.journal()?) - began);
        have_come_without_back_off(&group).await?;
    }
    println!("e2e: {shape}: from the deletion of a Pod to the last start {seconds:.3?} s");
    has_restarted(&group, LOSSES, LOSSES).await
}

fn last_start(entries: &[jobset_harness::journal::Entry]) -> f64 {
    entries.iter().rfind(|entry| entry.event == "start").map_or(0.0, |entry| entry.time)
}
