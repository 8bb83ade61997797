//! `maxRestarts`: one budget for all restarts, spent to the last restart and not one more.

use anyhow::Result;
use jobset_api::{JobSetStatus, conditions, labels};
use serde_json::json;

use crate::fixture::Space;
use crate::jobsets::with;
use crate::outcome::restarts;
use crate::workload::recreated;

const BACKOFF: &str = "BackoffLimitExceeded";

/// Restarts of the Jobs of a replicatedJob that count: each alone, and all together.
fn counted(status: &JobSetStatus, group: &str) -> Option<(Vec<i32>, i32)> {
    let group = status.replicated_job(group)?;
    Some((group.job_restarts_count_towards_max.clone(), group.restarts_count_towards_max))
}

/// Fails a Job, and waits for the one that comes in its place.
async fn fail_and_come_back(space: &Space, name: &str) -> Result<()> {
    let job = space.job(name).await?;
    space.fail_job(name, BACKOFF).await?;
    space.job_after(&job).await?;
    Ok(())
}

#[tokio::test]
async fn shared_budget_is_spent_by_restarts_of_all_kinds() -> Result<()> {
    let space = Space::new("shared-budget").await?;
    let rules = json!([{"action": "RestartJob", "targetReplicatedJobs": ["w"]},
                       {"action": "RestartReplicatedJob", "targetReplicatedJobs": ["x"]}]);
    let jobset = recreated("train", &json!({"maxRestarts": 3, "rules": rules}), &[("w", 2), ("x", 1), ("y", 1)]);
    // Nobody has annotated it: the controller does, before it does anything else.
    space.create(with(jobset, &json!({"metadata": {"annotations": null}}))).await?;
    fail_and_come_back(&space, "train-w-1").await?;
    fail_and_come_back(&space, "train-x-0").await?;
    let annotations = space.jobsets().get("train").await?.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get(labels::RESTART_BUDGET).map(String::as_str), Some("Shared"));
    let status = space.status("train").await?;
    assert_eq!(status.replicated_job("w").map(|it| &*it.job_restarts), Some(&[0, 1][..]), "as many as Jobs");
    let before = space.job("train-w-0").await?;
    fail_and_come_back(&space, "train-y-0").await?;
    // All Jobs are recreated, each as soon as its predecessor is gone.
    space.job_after(&before).await?;
    space.fail_job("train-w-0", BACKOFF).await?;
    let (end, status) = space.ended("train").await?;
    assert_eq!(end.reason, conditions::REACHED_MAX_RESTARTS);
    assert!(end.message.contains("together: 3 of maxRestarts 3 are spent: Job train-w-0 failed"), "{}", end.message);
    assert_eq!(counted(&status, "w"), Some((vec![0, 1], 0)));
    assert_eq!(counted(&status, "x"), Some((vec![], 1)));
    assert_eq!(restarts(&status), (1, 1, 1));
    Ok(())
}
