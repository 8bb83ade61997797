//! A controller of one namespace.

use anyhow::Result;
use kube::api::DeleteParams;

use crate::fixture::Fixture;
use crate::jobsets::{group, jobset};

#[tokio::test]
async fn a_controller_of_one_namespace_leaves_the_others_alone() -> Result<()> {
    let fixture = Fixture::start_with(&["--namespace", "ours"]).await?;
    let (ours, theirs) = (fixture.space("ours").await?, fixture.space("theirs").await?);
    theirs.create(jobset("train", &[group("w", 1, 1)])).await?;
    ours.create(jobset("train", &[group("w", 1, 1)])).await?;
    ours.pods_of("train-w-0", 1).await?;
    ours.settle().await?;
    assert_eq!(theirs.jobsets().get("train").await?.status, None);
    theirs.jobs_of("train", &[]).await?;
    // It goes on when that one goes.
    theirs.jobsets().delete("train", &DeleteParams::background()).await?;
    ours.complete_job("train-w-0", 1).await?;
    ours.condition("train", "Completed", "True").await?;
    let log = fixture.controller.log()?;
    assert!(!log.contains("ERROR") && !log.contains("theirs"), "{log}");
    fixture.plane.stop().await
}
