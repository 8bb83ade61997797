//! Restarts in place: the e2e test of KEP-467, and what a Pod keeps; and restarts after a success.

use anyhow::{Context, Result};
use jobset_harness::group::LIMIT;
use jobset_harness::wait;
use jobset_harness::workload::{STORY_1, SUPERVISED, WORKER_PORT};
use rstest::rstest;

use super::shared::{assert_in_place, start};

#[tokio::test]
async fn group_whose_worker_fails_restarts_and_keeps_empty_dir() -> Result<()> {
    let (group, before) = start("exits-non-zero", STORY_1, |workload| workload.of_shape(1, 2)).await?;
    for worker in before.values() {
        let path = format!("/write?name=checkpoint&text={}", worker.uid);
        group.get(worker, WORKER_PORT, &path).await?;
    }
    let last = before.values().last().context("no worker")?;
    group.exit(last, 1).await?;
    let after = group.runs_in_epoch(2).await?;
    assert_in_place(&before, &after);
    for worker in after.values() {
        let kept = group.get(worker, WORKER_PORT, "/read?name=checkpoint").await?;
        assert_eq!(kept.trim(), worker.uid);
    }
    let status = group.status().await?;
    assert_eq!((status.synced_epoch, status.deprecated_epoch), (2, 1), "S and D advance by one");
    assert_eq!((status.restarts_count_towards_max, status.group_restarts, status.restarts), (1, 1, 0));
    Ok(())
}

#[tokio::test]
async fn worker_succeeds_during_restart_group_is_recreated() -> Result<()> {
    let (group, before) = start("succeeds-meanwhile", STORY_1, |workload| workload.of_shape(1, 2)).await?;
    let workers: Vec<_> = before.values().collect();
    let (failing, succeeding) = (group.exit(workers[0], 1), group.exit(workers[1], 0));
    let (failed, succeeded) = tokio::join!(failing, succeeding);
    failed?;
    succeeded?;
    let after = group.runs_in_epoch(2).await?;
    for worker in after.values() {
        assert_eq!(worker.starts, 1);
        assert!(before.values().all(|old| old.uid != worker.uid), "what has succeeded cannot come back in place");
    }
    let status = group.status().await?;
    assert_eq!((status.restarts, status.restarts_count_towards_max, status.group_restarts), (1, 1, 1), "counted once");
    Ok(())
}

#[rstest]
#[case::sidecar("fails-late", STORY_1)]
#[case::supervisor("fails-late-supervised", SUPERVISED)]
#[tokio::test]
async fn worker_failing_after_another_succeeded_recreates_and_completes(
    #[case] namespace: &str,
    #[case] manifest: &str,
) -> Result<()> {
    let (group, before) = start(namespace, manifest, |workload| workload.of_shape(1, 2)).await?;
    let workers: Vec<_> = before.values().collect();
    group.exit(workers[0], 0).await?;
    wait::until(LIMIT, "the first worker's Pod to succeed", || async {
        let status = group.pods.get(&workers[0].pod).await?.status.unwrap_or_default();
        Ok((status.phase.as_deref() == Some("Succeeded")).then_some(()))
    })
    .await?;
    group.exit(workers[1], 1).await?;
    let after = group.runs_in_epoch(2).await?;
    assert!(after.values().all(|worker| before.values().all(|old| old.uid != worker.uid)), "{after:?}");
    let status = group.status().await?;
    assert_eq!((status.restarts, status.restarts_count_towards_max, status.group_restarts), (1, 1, 1), "counted once");
    for worker in after.values() {
        group.exit(worker, 0).await?;
    }
    let status = group.finished().await?;
    assert_eq!((status.terminal_state.as_str(), status.restarts, status.synced_epoch), ("Completed", 1, 2));
    Ok(())
}
