//! Actions on single Jobs of a group that restarts in place.

use anyhow::{Context, Result};
use jobset_api::conditions;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::fixture::Space;
use crate::kubelet::pod_of;
use crate::outcome::condition;
use crate::workload::restarting;

const BACKOFF: &str = "BackoffLimitExceeded";

/// Two Jobs of one worker each, and one rule with this action.
fn two_jobs(action: &str) -> Value {
    let mut jobset = restarting("train", 1, 1);
    jobset["spec"]["failurePolicy"]["rules"] = json!([{"action": action}]);
    jobset["spec"]["replicatedJobs"][0]["replicas"] = json!(2);
    jobset
}

/// The worker of the other Job than `train-workers-0`.
fn other(pods: &[Pod]) -> Result<Pod> {
    pod_of(pods, "train-workers-1", "0").cloned().context("no Pod")
}

#[tokio::test]
async fn restart_job_recreates_the_failed_job_and_the_others_restart_in_place_with_it() -> Result<()> {
    let space = Space::new("partial-restart").await?;
    let pods = space.start_in_place(two_jobs("RestartJob"), 2).await?;
    let job = space.job("train-workers-0").await?;
    space.fail_job("train-workers-0", BACKOFF).await?;
    // Counted for the Job, and so not for the group.
    let status = space.in_epoch("train", (1, 1, 0, 1)).await?;
    let group = status.replicated_job("workers").context("no counters")?;
    assert_eq!((&*group.job_restarts_count_towards_max, status.restarts), (&[1, 0][..], 0));
    let restarting = condition(&status, conditions::RESTARTING).context("no condition")?;
    assert!(restarting.message.starts_with("the others restart in place: Job train-workers-0"), "{restarting:?}");

    space.job_after(&job).await?;
    let now = space.pods("train", 2, "0").await?;
    assert_eq!(other(&now)?.uid(), other(&pods)?.uid(), "the other one stays");
    space.restart(&[other(&now)?], 2).await?;
    space.lift("train", &now, 2).await?;
    space.in_epoch("train", (2, 1, 0, 1)).await?;
    space.condition("train", conditions::RESTARTING, "False").await?;
    Ok(())
}

#[tokio::test]
async fn fail_job_leaves_the_job_failed_and_nobody_waits_for_it_at_the_barrier() -> Result<()> {
    let space = Space::new("partial-failure").await?;
    let pods = space.start_in_place(two_jobs("FailJob"), 2).await?;
    space.fail_job("train-workers-0", BACKOFF).await?;
    space.counts("train", "workers", [1, 1, 0, 0, 1]).await?;
    let left = [other(&pods)?];
    space.crash(&left[0], 1).await?;
    space.in_epoch("train", (1, 1, 1, 1)).await?;
    space.restart(&left, 2).await?;
    space.lift("train", &left, 2).await?;
    let status = space.in_epoch("train", (2, 1, 1, 1)).await?;
    assert_eq!((status.restarts, &*status.terminal_state), (0, ""));
    Ok(())
}
