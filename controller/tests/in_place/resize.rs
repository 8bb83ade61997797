//! Resizing costs no restart: the controller makes the group advance itself.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::fixture::Space;
use crate::outcome::epochs;
use crate::workload::restarting;

/// The edit that gives the JobSet another number of Pods.
fn of_size(pods: usize) -> Value {
    json!({"spec": {"replicatedJobs": restarting("train", pods, 0)["spec"]["replicatedJobs"]}})
}

#[tokio::test]
async fn a_group_that_grows_restarts_when_the_newcomers_are_there_and_one_that_shrinks_at_once() -> Result<()> {
    let space = Space::new("resized").await?;
    let pods = space.start_in_place(restarting("train", 2, 0), 2).await?;
    space.edit("train", of_size(4)).await?;
    let grown = space.pods("train", 4, "0").await?;
    let is_old = |pod: &&Pod| pods.iter().any(|old| old.metadata.uid == pod.metadata.uid);
    let newcomers: Vec<_> = grown.iter().filter(|pod| !is_old(pod)).cloned().collect();
    space.report(&newcomers[0], "2").await?;
    space.settle().await?;
    assert_eq!(epochs(&space.status("train").await?), (1, 0, 0, 0), "the old ones run on");
    space.report(&newcomers[1], "2").await?;
    space.in_epoch("train", (1, 1, 0, 0)).await?;
    space.restart(&pods, 2).await?;
    space.lift("train", &grown, 2).await?;
    space.in_epoch("train", (2, 1, 0, 0)).await?;

    space.edit("train", of_size(3)).await?;
    space.in_epoch("train", (2, 2, 0, 0)).await?;
    let shrunk = space.pods("train", 3, "0").await?;
    space.restart(&shrunk, 3).await?;
    space.lift("train", &shrunk, 3).await?;
    space.in_epoch("train", (3, 2, 0, 0)).await?;
    Ok(())
}
