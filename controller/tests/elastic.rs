//! Elastic: a JobSet that is resized while it runs. Pods that go for that are nobody's failure.

use anyhow::Result;
use serde_json::json;

use crate::expect::uids;
use crate::fixture::Space;
use crate::jobsets::{group, jobset, with};
use crate::outcome::restarts;

async fn resize(space: &Space, pods: usize) -> Result<()> {
    space.edit("train", json!({"spec": {"replicatedJobs": [group("w", 1, pods)]}})).await
}

async fn assert_nothing_failed(space: &Space) -> Result<()> {
    space.settle().await?;
    let status = space.status("train").await?;
    assert_eq!(restarts(&status), (0, 0, 0));
    assert_eq!(status.terminal_state, "");
    assert!(status.conditions.is_empty(), "{:?}", status.conditions);
    Ok(())
}

#[tokio::test]
async fn resize_adds_and_removes_pods_while_others_run() -> Result<()> {
    let space = Space::new("elastic-pods").await?;
    // Any failure that is counted would fail the JobSet.
    let policy = json!({"spec": {"failurePolicy": {"maxRestarts": 0}}});
    space.create(with(jobset("train", &[group("w", 1, 2)]), &policy)).await?;
    space.run_job("train-w-0", 2).await?;
    space.counts("train", "w", [1, 1, 0, 0, 0]).await?;
    let job = space.jobs_of("train", &["train-w-0"]).await?;
    let two = space.pods_of("train-w-0", 2).await?;

    resize(&space, 4).await?;
    let four = space.pods_of("train-w-0", 4).await?;
    assert_eq!(uids(&two), uids(&four)[..2], "those that were there run on");
    // Ready is what the new size asks for.
    space.counts("train", "w", [1, 0, 0, 0, 0]).await?;
    for pod in &four[2..] {
        space.run(pod).await?;
    }
    space.counts("train", "w", [1, 1, 0, 0, 0]).await?;

    resize(&space, 1).await?;
    let one = space.pods_of("train-w-0", 1).await?;
    assert_eq!(uids(&one), uids(&two)[..1], "the first one runs on");
    space.counts("train", "w", [1, 1, 0, 0, 0]).await?;
    assert_eq!(uids(&job), uids(&space.jobs_of("train", &["train-w-0"]).await?), "the same Job");
    assert_nothing_failed(&space).await?;

    // Of the size that it now has, it completes.
    space.succeed(&one[0]).await?;
    space.condition("train", "Completed", "True").await?;
    Ok(())
}
