//! The exit-code table of KEP-467's Story 2. X = 81, Y = 42, Z = 43.

use anyhow::{Context, Result};
use jobset_api::conditions;
use jobset_harness::group::LIMIT;
use jobset_harness::wait;
use jobset_harness::workload::{STORY_2, SUPERVISED};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use super::shared::{assert_in_place, assert_replaced, start_unchanged};

/// One row after the other, in one group.
#[tokio::test]
async fn story_2_exit_codes_restart_group_as_table_says() -> Result<()> {
    let (group, first, worker) = start_unchanged("exit-codes", STORY_2).await?;
    // Worker, any other code.
    group.exit(&worker, 7).await?;
    let second = group.runs_in_epoch(2).await?;
    assert_in_place(&first, &second);

    // Agent, any other end. KEP-262's table says that the Pod is recreated. Kubernetes has no action that fails a Pod, and a sidecar that
    // comes back alone would report a new epoch while its worker runs on: the whole Pod restarts in place instead.
    group.kill_agent(&worker)?;
    let third = group.runs_in_epoch(3).await?;
    assert_in_place(&second, &third);
    assert_eq!(group.status().await?.restarts_count_towards_max, 2);

    // Agent, X. What the controller writes to make the agents of epoch 3 exit with X.
    let patch = json!({"status": {"deprecatedEpoch": 3}});
    group.jobsets.patch_status(&group.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    let fourth = group.runs_in_epoch(4).await?;
    assert_in_place(&third, &fourth);
    assert_eq!(group.status().await?.restarts_count_towards_max, 2, "it was not the controller's");

    // Worker, Z.
    let replaced = fourth.values().next().context("no worker")?;
    group.exit(replaced, 43).await?;
    assert_replaced(&fourth, replaced, group.runs_in_epoch(5).await?)?;
    assert_eq!(group.status().await?.restarts_count_towards_max, 3);
    Ok(())
}

#[rstest]
#[case::sidecar("worker-0", STORY_2)]
#[case::supervisor("supervised-done", SUPERVISED)]
#[tokio::test]
async fn worker_0_completes_the_pod_and_nothing_restarts(
    #[case] namespace: &str,
    #[case] manifest: &str,
) -> Result<()> {
    let (group, before, _) = start_unchanged(namespace, manifest).await?;
    for worker in before.values() {
        group.exit(worker, 0).await?;
    }
    let status = group.finished().await?;
    assert_eq!((status.terminal_state.as_str(), status.synced_epoch, status.deprecated_epoch), ("Completed", 1, 0));
    assert_eq!((status.restarts, status.restarts_count_towards_max, status.group_restarts), (0, 0, 0));
    assert_eq!(group.workers().await?, before, "no worker started again");
    let jobs: Api<Job> = Api::namespaced(group.client.clone(), &group.namespace);
    let jobs = jobs.list(&ListParams::default()).await?.items;
    let succeeded = jobs.iter().filter_map(|job| job.status.as_ref()?.succeeded).map(i64::from).sum::<i64>();
    assert_eq!(succeeded, i64::try_from(before.len())?);
    let exits: Vec<_> = group.journal()?.iter().filter(|entry| entry.event == "exit").map(|entry| entry.code).collect();
    assert_eq!(exits, vec![Some(0); before.len()]);
    Ok(())
}

#[rstest]
#[case::sidecar("worker-y", STORY_2)]
#[case::supervisor("supervised-fatal", SUPERVISED)]
#[tokio::test]
async fn worker_y_fails_the_jobset(#[case] namespace: &str, #[case] manifest: &str) -> Result<()> {
    let (group, _, first) = start_unchanged(namespace, manifest).await?;
    group.exit(&first, 42).await?;
    let status = group.finished().await?;
    assert_eq!(status.terminal_state, "Failed");
    let condition = conditions::terminal(&status.conditions).context("no final condition")?;
    assert_eq!(condition.reason, conditions::FAIL_JOB_SET_ACTION);
    assert!(condition.message.contains("PodFailurePolicy"), "{}", condition.message);
    assert_eq!((status.restarts, status.group_restarts, status.synced_epoch), (0, 0, 1));
    wait::until(LIMIT, "the last worker to end", || async { Ok(group.live_pods().await?.is_empty().then_some(())) })
        .await
}
