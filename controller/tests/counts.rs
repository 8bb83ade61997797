//! How a JobSet counts its Jobs: as the Go JobSet counts them.

use anyhow::Result;
use serde_json::json;

use crate::fixture::Space;
use crate::jobsets::{group, jobset, with};

#[tokio::test]
async fn job_with_terminating_pods_is_counted_at_its_end() -> Result<()> {
    let space = Space::new("about-to-end").await?;
    let first = json!({"template": {"spec": {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}}});
    space.create(jobset("succeeds", &[with(group("w", 1, 2), &first)])).await?;
    space.create(jobset("fails", &[group("w", 1, 1)])).await?;
    let succeeding = space.pods_of("succeeds-w-0", 2).await?;
    let failing = space.pods_of("fails-w-0", 1).await?;
    // Bound, they stay until a kubelet has ended them: so long the Job has not ended either.
    space.bind(&succeeding[1], json!({"metadata": {"name": "about-to-end-1"}})).await?;
    space.bind(&failing[0], json!({"metadata": {"name": "about-to-end-2"}})).await?;
    space.succeed(&succeeding[0]).await?;
    space.fail_job("fails-w-0", "BackoffLimitExceeded").await?;
    for (jobset, condition, ended) in [("succeeds", "SuccessCriteriaMet", 1), ("fails", "FailureTarget", 0)] {
        let job = format!("{jobset}-w-0");
        space.pods_of(&job, ended).await?;
        space.settle().await?;
        let status = space.jobs().get(&job).await?.status.unwrap_or_default();
        let conditions: Vec<String> = status.conditions.into_iter().flatten().map(|it| it.type_).collect();
        assert_eq!(conditions, [condition], "{jobset}");
        let status = space.counts(jobset, "w", [0, 0, 0, 0, 0]).await?;
        assert_eq!(status.terminal_state, "", "{jobset}");
    }
    space.succeed(&succeeding[1]).await?;
    space.fail(&failing[0], 1).await?;
    space.condition("succeeds", "Completed", "True").await?;
    space.counts("succeeds", "w", [0, 0, 0, 1, 0]).await?;
    space.condition("fails", "Failed", "True").await?;
    space.counts("fails", "w", [0, 0, 0, 0, 1]).await?;
    Ok(())
}
