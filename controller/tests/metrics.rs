//! What `/metrics` says after a restart.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::fixture::{Fixture, in_place, next};

/// Makes a Pod ready, or not, as its kubelet would.
async fn set_ready(fixture: &Fixture, pod: &Pod, ready: bool) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(fixture.client.clone());
    let (phase, status) = if ready { ("Running", "True") } else { ("Pending", "False") };
    let state = if ready { json!({"running": {}}) } else { json!({"waiting": {"reason": "PodInitializing"}}) };
    let worker = json!({"name": "worker", "image": "none", "imageID": "", "ready": ready, "restartCount": 0,
        "containerID": if ready { "test://worker" } else { "" }, "state": state});
    let patch = json!({"status": {
        "phase": phase, "conditions": [{"type": "Ready", "status": status}], "containerStatuses": [worker]}});
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

#[tokio::test]
async fn a_restart_in_place_is_measured_and_a_deleted_jobset_leaves_no_series() -> Result<()> {
    let fixture = Fixture::start().await?;
    let program = &fixture.controller;
    fixture.create(in_place("train", 2, 1)).await?;
    let pods = fixture.pods("train", 2, "0").await?;
    let failed = r#"jobset_failed_total{jobset_name="train",namespace="default"}"#;
    let restarts =
        r#"jobset_restarts_total{action="restart_jobset",counted="true",namespace="default",strategy="in_place"}"#;
    program.has_metric(failed, Some(0.0)).await?;
    program.has_metric(restarts, Some(0.0)).await?;
    for pod in &pods {
        fixture.report(pod, "1").await?;
    }
    // No worker runs before the barrier is lifted.
    let mut history = fixture.history("train").await?;
    while next(&mut history).await?.status.is_none_or(|status| status.synced_epoch < 1) {}
    for pod in &pods {
        set_ready(&fixture, pod, true).await?;
    }
    program.has_metric("jobset_startup_duration_seconds_count", Some(1.0)).await?;

    for pod in &pods {
        set_ready(&fixture, pod, false).await?;
    }
    fixture.report(&pods[0], "2").await?;
    program.has_metric(restarts, Some(1.0)).await?;
    fixture.report(&pods[1], "2").await?;
    let register = r#"jobset_restart_phase_seconds_count{phase="register",strategy="in_place"}"#;
    program.has_metric(register, Some(1.0)).await?;
    for pod in &pods {
        set_ready(&fixture, pod, true).await?;
    }
    let recovered = r#"jobset_restart_duration_seconds_count{result="recovered",strategy="in_place"}"#;
    program.has_metric(recovered, Some(1.0)).await?;
    let triggers = r#"jobset_restart_triggers_total{exit_class="unknown",namespace="default",reason="container_exit"}"#;
    program.has_metric(triggers, Some(1.0)).await?;
    assert!(program.metric(r#"jobset_downtime_seconds_total{namespace="default"}"#).await? > Some(0.0));
    assert_eq!(program.metric("jobset_time_between_restarts_seconds_count").await?, Some(1.0));

    // The second one is one too many.
    let mut history = fixture.history("train").await?;
    fixture.report(&pods[0], "3").await?;
    while next(&mut history).await?.status.is_none_or(|status| status.terminal_state != "Failed") {}
    program.has_metric(failed, Some(1.0)).await?;
    program.has_metric(r#"jobset_restart_budget_exhausted_total{namespace="default"}"#, Some(1.0)).await?;
    program.has_metric(restarts, Some(1.0)).await?;
    for (series, wanted) in [
        ("jobset_leader", 1.0),
        (r#"jobset_build_info{version="0.1.0"}"#, 1.0),
        ("jobset_workqueue_depth", 0.0),
        (r#"jobset_api_requests_total{code="201",resource="jobs",verb="create"}"#, 1.0),
    ] {
        assert_eq!(program.metric(series).await?, Some(wanted), "{series}");
    }
    assert!(program.metric("process_resident_memory_bytes").await? > Some(1e6));

    fixture.jobsets().delete("train", &DeleteParams::foreground()).await?;
    program.has_metric(failed, None).await?;
    program.has_metric(restarts, Some(1.0)).await?;
    fixture.plane.stop().await
}
