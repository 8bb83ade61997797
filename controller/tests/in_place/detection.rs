//! How a failure is found: by the report of the agent, or before that, by the status of the worker.

use anyhow::{Context, Result};
use jobset_api::conditions;
use kube::ResourceExt;
use serde_json::json;

use crate::fixture::Space;
use crate::outcome::condition;
use crate::workload::restarting;

#[tokio::test]
async fn a_worker_that_ends_restarts_the_group_before_its_agent_reports_and_is_named() -> Result<()> {
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

#[tokio::test]
async fn a_failure_that_no_status_showed_is_found_by_the_report_and_its_exit_code_is_unknown() -> Result<()> {
    let space = Space::new("detection-by-report").await?;
    let pods = space.start_in_place(restarting("train", 2, 9), 2).await?;
    space.report(&pods[0], "2").await?;
    space.in_epoch("train", (1, 1, 1, 1)).await?;
    let note = space.note("Restarting", "in place, from epoch 1 to 2: ").await?;
    assert!(note.ends_with(", exit code unknown; counted"), "{note}");
    // Its status shows the restart later, and that is the same one.
    space.restart(&pods, 2).await?;
    space.lift("train", &pods, 2).await?;
    space.in_epoch("train", (2, 1, 1, 1)).await?;

    // The kubelet shows the restart, and no longer its cause.
    space.reset(&pods[1]).await?;
    space.in_epoch("train", (2, 2, 2, 2)).await?;
    let note = space.note("Restarting", "in place, from epoch 2 to 3: ").await?;
    let wanted = format!("Pod {} on node unknown failed in epoch 2, exit code unknown; counted", pods[1].name_any());
    assert!(note.ends_with(&wanted), "{note}");
    Ok(())
}

#[tokio::test]
async fn workers_that_fail_together_are_one_restart() -> Result<()> {
    let space = Space::new("detection-of-several").await?;
    let pods = space.start_in_place(restarting("train", 4, 9), 4).await?;
    for pod in &pods[1..] {
        space.crash(pod, 1).await?;
    }
    space.in_epoch("train", (1, 1, 1, 1)).await?;
    space.restart(&pods, 2).await?;
    space.lift("train", &pods, 2).await?;
    // The next one is the second: nothing else was counted before.
    space.crash(&pods[0], 1).await?;
    space.in_epoch("train", (2, 2, 2, 2)).await?;
    Ok(())
}

#[tokio::test]
async fn a_status_that_still_shows_the_last_failure_is_no_failure_of_the_next_epoch() -> Result<()> {
    let space = Space::new("detection-of-the-past").await?;
    let pods = space.start_in_place(restarting("train", 2, 9), 2).await?;
    space.crash(&pods[0], 1).await?;
    space.in_epoch("train", (1, 1, 1, 1)).await?;
    // The agent of the failed Pod is back before its kubelet writes that.
    space.report(&pods[0], "2").await?;
    space.restart(&pods[1..], 2).await?;
    space.in_epoch("train", (2, 1, 1, 1)).await?;
    space.run(&pods[1]).await?;
    // As it is while the other fails: what the old status shows is not counted with it.
    space.crash(&pods[1], 5).await?;
    space.in_epoch("train", (2, 2, 2, 2)).await?;
    let note = space.note("Restarting", "in place, from epoch 2 to 3: ").await?;
    assert!(note.contains(&pods[1].name_any()) && note.contains("exited with code 5"), "{note}");
    Ok(())
}
