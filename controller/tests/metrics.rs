//! What `/metrics` says after a restart.

use anyhow::Result;
use jobset_harness::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, in_place, next};
use crate::program::Program;

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
async fn in_place_restart_is_measured_deleted_jobset_leaves_no_series() -> Result<()> {
    let fixture = Fixture::start().await?;
    let program = &fixture.controller;
    fixture.create(in_place("train", 2, 1)).await?;
    let pods = fixture.pods("train", 2, "0").await?;
    let failed = r#"jobset_failed_total{jobset_name="train",namespace="default"}"#;
    let restarts =
        r#"jobset_restarts_total{action="restart_jobset",counted="true",namespace="default",strategy="in_place"}"#;
    let finished = r#"jobset_finished_total{namespace="default",result="failed"}"#;
    program.has_metric(finished, Some(0.0)).await?;
    program.has_metric(restarts, Some(0.0)).await?;
    assert_eq!(program.metric(failed).await?, None, "it has not failed, and may never");
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
    program.has_metric(finished, Some(1.0)).await?;
    program.has_metric(r#"jobset_restart_budget_exhausted_total{namespace="default"}"#, Some(1.0)).await?;
    program.has_metric(restarts, Some(1.0)).await?;
    for (series, wanted) in [
        ("jobset_leader", 1.0),
        (concat!("jobset_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
        ("jobset_workqueue_depth", 0.0),
        ("jobset_workqueue_oldest_urgent_seconds", 0.0),
        ("jobset_internal_errors_total", 0.0),
        (r#"jobset_api_requests_total{code="201",resource="jobs",verb="create"}"#, 1.0),
    ] {
        assert_eq!(program.metric(series).await?, Some(wanted), "{series}");
    }
    assert!(program.metric("process_resident_memory_bytes").await? > Some(1e6));

    fixture.jobsets().delete("train", &DeleteParams::foreground()).await?;
    program.has_metric(failed, None).await?;
    program.has_metric(restarts, Some(1.0)).await?;
    assert_eq!(program.metric(finished).await?, Some(1.0), "what counts for the namespace stays");
    assert!(!program.get("metrics", "/metrics").await?.contains("kube_jobset_"), "nobody asked for them");
    fixture.plane.stop().await
}

/// A series of the JobSet `train`.
fn of_jobset(name: &str) -> String {
    format!(r#"{name}{{jobset_name="train",namespace="default"}}"#)
}

/// Waits until these series of the JobSet `train` have these values.
async fn shows(program: &Program, wanted: &[(&str, f64)]) -> Result<()> {
    for (name, value) in wanted {
        program.has_metric(&of_jobset(name), Some(*value)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn leader_shows_state_of_each_existing_jobset() -> Result<()> {
    let fixture = Fixture::start_with(&["--metrics-per-jobset"]).await?;
    let leader = &fixture.controller;
    let of_group =
        |name: &str| format!(r#"{name}{{jobset_name="train",namespace="default",replicated_job_name="workers"}}"#);
    let condition = r#"kube_jobset_status_condition{condition="RestartingJobSet",jobset_name="train",namespace="default",status="true"}"#;
    fixture.create(in_place("train", 2, 3)).await?;
    let pods = fixture.pods("train", 2, "0").await?;
    shows(leader, &[("jobset_barrier_waiting_pods", 2.0), ("jobset_barrier_open", 0.0)]).await?;
    let budget = [("kube_jobset_restarts", 0.0), ("jobset_restarts_counted", 0.0), ("jobset_max_restarts", 3.0)];
    shows(leader, &budget).await?;
    leader.has_metric(&of_group("kube_jobset_specified_replicas"), Some(1.0)).await?;
    leader.has_metric(&of_group("kube_jobset_active_replicas"), Some(1.0)).await?;
    fixture.report(&pods[0], "1").await?;
    shows(leader, &[("jobset_barrier_waiting_pods", 1.0)]).await?;
    fixture.report(&pods[1], "1").await?;
    shows(leader, &[("jobset_barrier_waiting_pods", 0.0), ("jobset_barrier_open", 1.0)]).await?;
    assert_eq!(leader.metric(condition).await?, None, "it has never restarted");
    for pod in &pods {
        set_ready(&fixture, pod, true).await?;
    }
    leader.has_metric(&of_group("kube_jobset_ready_replicas"), Some(1.0)).await?;
    // A report counts once the worker of before has ended.
    for pod in &pods {
        set_ready(&fixture, pod, false).await?;
    }
    fixture.report(&pods[0], "2").await?;
    shows(leader, &[("jobset_barrier_waiting_pods", 1.0), ("jobset_barrier_open", 0.0)]).await?;
    shows(leader, &[("kube_jobset_restarts", 1.0), ("jobset_restarts_counted", 1.0)]).await?;
    leader.has_metric(condition, Some(1.0)).await?;

    // Of both replicas together, a JobSet is counted once.
    let standby = Program::start(&fixture.plane, "standby", &["--metrics-per-jobset"])?;
    standby.has_metric("jobset_leader", Some(0.0)).await?;
    wait::until(LIMIT, "the other replica to have listed everything", async || {
        Ok(standby.get("health checks", "/readyz").await?.contains("200 OK").then_some(()))
    })
    .await?;
    assert_eq!(standby.metric(&of_jobset("kube_jobset_restarts")).await?, None);
    leader.signal(Signal::TERM)?;
    shows(&standby, &[("kube_jobset_restarts", 1.0), ("jobset_barrier_waiting_pods", 1.0)]).await?;

    fixture.jobsets().delete("train", &DeleteParams::foreground()).await?;
    standby.has_metric(condition, None).await?;
    assert!(!standby.get("metrics", "/metrics").await?.contains("\"train\""), "nothing of it is left");
    // Another one of its name has none of its past.
    fixture.create(in_place("train", 3, 9)).await?;
    shows(&standby, &[("jobset_max_restarts", 9.0), ("kube_jobset_restarts", 0.0)]).await?;
    shows(&standby, &[("jobset_barrier_waiting_pods", 3.0)]).await?;
    assert_eq!(standby.metric(condition).await?, None);
    fixture.plane.stop().await
}
