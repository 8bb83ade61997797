//! Where restart in place ends: before the barrier, where it is switched off, and with the JobSet.

use anyhow::{Context, Result};
use jobset_api::conditions;
use jobset_harness::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, Space};
use crate::outcome::{condition, epochs, restarts};
use crate::workload::restarting;

const DISABLED: &str = "jobset.sigs.k8s.io/disable-in-place-restart";

#[tokio::test]
async fn pod_failing_three_times_before_worker_is_replaced_counts_once() -> Result<()> {
    let space = Space::new("barrier-never-reached").await?;
    space.create(restarting("train", 2, 1)).await?;
    let pods = space.pods("train", 2, "0").await?;
    for _ in 0..3 {
        space.reset(&pods[1]).await?;
    }
    let stays = |pod: &Pod| pod.uid() == pods[1].uid();
    space.pods_where("train", "one asked to go", |now| !now.iter().any(stays)).await?;
    space.settle().await?;
    let status = space.status("train").await?;
    let blocked = condition(&status, conditions::BARRIER_BLOCKED).context("no condition")?;
    assert!(blocked.message.contains("failed before its worker could start (maxRestarts 1)"), "{}", blocked.message);
    assert_eq!((status.terminal_state.as_str(), epochs(&status)), ("", (0, 0, 0, 0)));
    Ok(())
}

#[tokio::test]
async fn feature_gate_off_restarts_jobset_by_recreation() -> Result<()> {
    let fixture = Fixture::start_with(&["--feature-gates", "InPlaceRestart=false"]).await?;
    fixture.create(restarting("train", 2, 1)).await?;
    fixture.pods("train", 2, "0").await?;
    wait::until(LIMIT, "the annotation", || async {
        Ok(fixture.jobsets().get("train").await?.annotations().contains_key(DISABLED).then_some(()))
    })
    .await?;
    fixture.note("InPlaceRestartDisabled", "the feature gate InPlaceRestart is off").await?;
    fixture.fail_job("train-workers-0", "BackoffLimitExceeded").await?;
    fixture.restarted("train", (1, 1, 1)).await?;
    fixture.pods("train", 2, "1").await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn jobset_of_same_name_ignores_pods_of_predecessor() -> Result<()> {
    let space = Space::new("same-name").await?;
    space.create(restarting("train", 2, 0)).await?;
    let old = space.pods("train", 2, "0").await?;
    // Bound, it outlives its Job.
    space.bind(&old[0], json!({"metadata": {"name": "node-of-the-predecessor"}})).await?;
    space.lift("train", &old, 1).await?;
    let job = space.job("train-workers-0").await?;
    space.jobsets().delete("train", &DeleteParams::background()).await?;
    space.create(restarting("train", 2, 0)).await?;
    let job = space.job_after(&job).await?;
    let is_new = |pod: &Pod| pod.labels().get("batch.kubernetes.io/controller-uid") == job.uid().as_ref();
    let new = space.pods_where("train", "all new", |pods| pods.len() == 2 && pods.iter().all(is_new)).await?;
    assert_eq!(space.all_pods().get(&old[0].name_any()).await?.uid(), old[0].uid(), "it takes its time to go");
    // Its agent reports, and its worker fails: of this JobSet, nothing has.
    space.report(&old[0], "2").await?;
    space.crash(&old[0], 1).await?;
    space.lift("train", &new, 1).await?;
    space.settle().await?;
    let status = space.status("train").await?;
    assert_eq!((epochs(&status), restarts(&status)), ((1, 0, 0, 0), (0, 0, 0)));
    assert_eq!(status.terminal_state, "");
    let uid = space.jobsets().get("train").await?.uid().context("no UID")?;
    assert!(new.iter().all(|pod| pod.labels()["jobset.sigs.k8s.io/jobset-uid"] == uid));
    Ok(())
}
