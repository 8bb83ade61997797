//! The success policy, as far as the API server has a part in it: `cases/plan/success` has the rest.

use anyhow::Result;
use serde_json::json;

use crate::fixture::Space;
use crate::jobsets::{group, jobset, with};
use crate::outcome::restarts;

#[tokio::test]
async fn success_of_all_targets_completes_jobset_deletes_the_rest() -> Result<()> {
    let space = Space::new("success-all").await?;
    let policy = json!({"spec": {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]}}});
    space.create(with(jobset("train", &[group("monitor", 1, 1), group("workers", 2, 1)]), &policy)).await?;
    space.complete_job("train-workers-0", 1).await?;
    // The write that counts so would be the one that ends it.
    let status = space.counts("train", "workers", [1, 0, 0, 1, 0]).await?;
    assert_eq!(status.terminal_state, "");
    space.complete_job("train-workers-1", 1).await?;
    let (end, status) = space.ended("train").await?;
    assert_eq!((&*end.type_, &*end.reason), ("Completed", "AllJobsCompleted"));
    assert_eq!(end.message, "jobset completed successfully");
    assert_eq!(restarts(&status), (0, 0, 0));
    space.jobs_of("train", &["train-workers-0", "train-workers-1"]).await?;
    space.pods_of("train-monitor-0", 0).await?;
    Ok(())
}
