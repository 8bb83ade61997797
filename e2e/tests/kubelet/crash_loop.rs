//! A group whose workers fail at once, again and again: it waits longer each time, says why, and leaves its last Pods.

use anyhow::{Context, Result, ensure};
use jobset_api::{JobSetStatus, conditions};
use jobset_harness::group::{Group, LIMIT};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::SUPERVISED;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ListParams, LogParams};
use rstest::rstest;
use serde_json::json;

use super::shared::{apply, installed, names_exit_of_sidecar, run_kubectl_jobset};

const WORDS: &str = "loss is NaN";
/// The documented waits before the restarts, in seconds.
const WAITS: [f64; 3] = [0.0, 1.0, 2.0];

#[rstest]
#[case::sidecar("crash-loop-sidecar", "Sidecar")]
#[case::supervisor("crash-loop-supervisor", "Supervisor")]
#[tokio::test]
async fn workers_fail_at_start_group_waits_and_says_why(#[case] namespace: &str, #[case] shape: &str) -> Result<()> {
    let group = apply(namespace, SUPERVISED, |workload| {
        let workload = workload.injected(shape).of_shape(2, 1).with_max_restarts(3);
        workload.with_backoff(json!({})).with_env("EXIT_AT_START", &format!("7:{WORDS}"))
    })
    .await?;
    let status = group.finished().await?;
    let failed = conditions::terminal(&status.conditions).context("no final condition")?;
    assert_eq!(failed.reason, conditions::REACHED_MAX_RESTARTS);
    let in_a_row: Vec<i32> = status.recent_restarts.iter().map(|restart| restart.consecutive_failures).collect();
    assert_eq!(in_a_row, [1, 2, 3]);
    let waits = waits(&group, &status)?;
    println!("e2e: {shape}: the restarts waited {waits:.3?} s");
    assert!(waits.iter().zip(WAITS).all(|(wait, expected)| *wait >= expected), "{waits:?}");

    let mut said: Vec<String> = status.recent_restarts.iter().map(|restart| restart.message.clone()).collect();
    said.push(failed.message.clone());
    said.extend(group.events("Restarting").await?);
    let restarts = kubectl_jobset(&["restarts", &group.name, "-n", namespace]).await?;
    if shape != "Supervisor" {
        let names = |text: &String| names_exit_of_sidecar(text, 7) || text.contains("failures were not observed");
        ensure!(said.iter().all(names), "{said:?}");
        return Ok(());
    }
    said.push(restarts);
    ensure!(said.iter().all(|text| text.contains("exited with code 7") && text.contains(WORDS)), "{said:?}");
    pods_stay(&group).await?;
    let status = kubectl_jobset(&["status", &group.name, "-n", namespace]).await?;
    ensure!(status.contains("Failed workers") && status.contains("worker: exit code 7: "), "{status}");
    let (explained, code) = run_kubectl_jobset(installed().await?, &["explain", &group.name, "-n", namespace]).await?;
    ensure!(code == Some(1) && explained.contains("and stays: kubectl logs "), "{explained}");
    Ok(())
}

/// From the begin of each restart to the first start of a worker in the next epoch, in seconds.
fn waits(group: &Group, status: &JobSetStatus) -> Result<Vec<f64>> {
    let entries = group.journal()?;
    let restarts = (2..).zip(&status.recent_restarts);
    let waits = restarts.map(|(epoch, restart)| {
        let MicroTime(began) = restart.start_time;
        let starts = entries.iter().filter(|entry| entry.event == "start" && entry.epoch == Some(epoch));
        let first = starts.map(|entry| entry.time).reduce(f64::min).with_context(|| format!("no start in {epoch}"))?;
        Ok(first - began.as_duration().as_secs_f64())
    });
    waits.collect()
}

/// The Pods whose workers failed last have ended, and their logs can be read.
async fn pods_stay(group: &Group) -> Result<()> {
    let ended = wait::until_met(LIMIT, "the Pods to end and stay", || async {
        let pods = group.pods.list(&ListParams::default()).await?.items;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let stays = |pod: &Pod| phase(pod) == "Failed" && pod.metadata.deletion_timestamp.is_none();
        if !pods.is_empty() && pods.iter().all(stays) {
            return Ok(Check::Met(pods));
        }
        let state = |pod: &Pod| format!("{:?} {} {:?}", pod.metadata.name, phase(pod), pod.metadata.deletion_timestamp);
        Ok(Check::Unmet(format!("{:?}", pods.iter().map(state).collect::<Vec<_>>())))
    })
    .await?;
    for pod in &ended {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let codes: Vec<i32> =
            statuses.filter_map(|it| Some(it.state.as_ref()?.terminated.as_ref()?.exit_code)).collect();
        assert_eq!(codes, [82]);
        let log = group.pods.logs(pod.metadata.name.as_deref().unwrap_or_default(), &LogParams::default()).await?;
        ensure!(log.contains(WORDS), "{log}");
    }
    Ok(())
}

async fn kubectl_jobset(arguments: &[&str]) -> Result<String> {
    Ok(run_kubectl_jobset(installed().await?, arguments).await?.0)
}
