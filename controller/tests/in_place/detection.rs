//! A failure is found by the status of the worker, before its agent reports it.

use anyhow::{Context, Result};
use jobset_api::conditions;
use kube::ResourceExt;
use serde_json::json;

use crate::fixture::Space;
use crate::outcome::condition;
use crate::workload::restarting;

#[tokio::test]
async fn ended_worker_restarts_group_before_report_and_is_named() -> Result<()> {
    let space = Space::new("detection-by-status").await?;
    space.create(restarting("train", 3, 9)).await?;
    let pods = space.pods("train", 3, "0").await?;
    space.bind(&pods[1], json!({"metadata": {"name": "node-of-the-named"}})).await?;
    space.lift("train", &pods, 1).await?;
    space.crash(&pods[1], 3).await?;
    let status = space.in_epoch("train", (1, 1, 1, 1)).await?;
    let restarting = condition(&status, conditions::RESTARTING).context("no condition")?;
    assert_eq!((&*restarting.status, &*restarting.reason), ("True", conditions::IN_PLACE_RESTART));
    let pod = pods[1].name_any();
    let wanted = format!(
        "in place, from epoch 1 to 2: Pod {pod} on node node-of-the-named failed in epoch 1, container worker exited \
         with code 3 (Error); counted"
    );
    assert_eq!(restarting.message, wanted);
    assert_eq!(space.note("Restarting", "in place").await?, wanted);

    space.restart(&pods, 2).await?;
    space.lift("train", &pods, 2).await?;
    space.in_epoch("train", (2, 1, 1, 1)).await?;
    let over = space.condition("train", conditions::RESTARTING, "False").await?;
    assert_eq!(over.reason, conditions::JOBS_READY);
    Ok(())
}
