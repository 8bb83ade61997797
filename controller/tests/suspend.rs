//! Suspend and resume: Pods go and come back, and nothing of it is a failure.

use anyhow::Result;
use jobset_api::JobSetStatus;
use serde_json::json;

use crate::fixture::Space;
use crate::jobsets::{group, jobset, with};
use crate::outcome::restarts;

fn assert_nothing_failed(status: &JobSetStatus) {
    assert_eq!(restarts(status), (0, 0, 0));
    assert_eq!(status.terminal_state, "");
}

#[tokio::test]
async fn suspension_removes_running_pods_and_keeps_completed_jobs() -> Result<()> {
    let space = Space::new("suspend-running").await?;
    let policy = json!({"spec": {"failurePolicy": {"maxRestarts": 0}}});
    space.create(with(jobset("train", &[group("done", 1, 1), group("workers", 2, 2)]), &policy)).await?;
    space.complete_job("train-done-0", 1).await?;
    space.run_job("train-workers-0", 2).await?;
    space.run_job("train-workers-1", 2).await?;
    space.counts("train", "done", [0, 0, 0, 1, 0]).await?;
    let status = space.counts("train", "workers", [2, 2, 0, 0, 0]).await?;
    assert!(status.conditions.is_empty(), "one that never was suspended does not say so: {:?}", status.conditions);

    for _ in 1..=2 {
        space.suspend("train", true).await?;
        space.pods_of("train-workers-0", 0).await?;
        space.pods_of("train-workers-1", 0).await?;
        space.condition("train", "Suspended", "True").await?;
        space.counts("train", "done", [0, 0, 0, 1, 0]).await?;
        assert_nothing_failed(&space.counts("train", "workers", [0, 0, 2, 0, 0]).await?);

        space.suspend("train", false).await?;
        space.run_job("train-workers-0", 2).await?;
        space.run_job("train-workers-1", 2).await?;
        space.condition("train", "Suspended", "False").await?;
        assert_nothing_failed(&space.counts("train", "workers", [2, 2, 0, 0, 0]).await?);
    }
    Ok(())
}
