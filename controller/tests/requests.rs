//! Restarts on request: an annotation that the controller carries out once, or notes.

use anyhow::Result;
use jobset_api::{conditions, labels};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::fixture::Space;
use crate::jobsets::with;
use crate::outcome::restarts;
use crate::workload::recreated;

fn requested(request: &Value) -> Value {
    json!({"metadata": {"annotations": {labels::RESTART_REQUEST: request.to_string()}}})
}

/// What has become of each request that the status knows.
async fn outcomes(space: &Space, count: usize) -> Result<Vec<String>> {
    let has = |requests: &Option<Vec<_>>| requests.as_ref().is_some_and(|it: &Vec<_>| it.len() == count);
    let status = space.status_once("train", "to know the request", |status| has(&status.restart_requests)).await?;
    Ok(status.restart_requests.unwrap_or_default().into_iter().map(|it| it.outcome).collect())
}

/// The two Pods of an attempt, once all workers run, as the controller knows.
async fn running(space: &Space, attempt: &str) -> Result<Vec<Pod>> {
    let pods = space.pods("train", 2, attempt).await?;
    for pod in &pods {
        space.run(pod).await?;
    }
    space.status_once("train", "to be ready", |status| status.jobs_ready == "2/2").await?;
    Ok(pods)
}

#[tokio::test]
async fn request_recreates_once_and_fails_when_none_is_left() -> Result<()> {
    let space = Space::new("restart-requests").await?;
    let jobset = recreated("train", &json!({"maxRestarts": 1}), &[("w", 2)]);
    space.create(with(jobset, &requested(&json!({"id": "exported"})))).await?;
    let pods = running(&space, "0").await?;
    assert_eq!(outcomes(&space, 1).await?, ["Found"]);
    space.note("RestartRequestNoted", "restart request exported is not carried out (Found)").await?;

    let pod = pods[1].metadata.name.clone();
    space.edit("train", requested(&json!({"id": "a", "reason": "driver update", "pod": pod}))).await?;
    let status = space.restarted("train", (1, 1, 1)).await?;
    let said = status.recent_restarts.last().map(|last| last.message.clone()).unwrap_or_default();
    let expected = format!("restart requested: driver update; Pod {}", pod.clone().unwrap_or_default());
    assert!(said.starts_with(&expected), "{said}");
    space.note("Restarting", "recreating all Jobs, attempt 1: restart requested: driver update").await?;
    running(&space, "1").await?;
    // The Pod is gone, and so is what it was blamed for.
    space.edit("train", requested(&json!({"id": "b", "pod": pod}))).await?;
    assert_eq!(outcomes(&space, 3).await?, ["Found", "CarriedOut", "PodNotFound"]);
    // Written again, as by a manifest of an hour ago.
    space.edit("train", requested(&json!({"id": "a", "reason": "driver update"}))).await?;
    space.settle().await?;
    assert_eq!(restarts(&space.status("train").await?), (1, 1, 1));

    space.edit("train", requested(&json!({"id": "c"}))).await?;
    let (end, status) = space.ended("train").await?;
    assert_eq!(end.reason, conditions::REACHED_MAX_RESTARTS);
    assert!(end.message.ends_with("restart requested: no reason given; request c; counted"), "{}", end.message);
    assert_eq!(restarts(&status), (1, 1, 1));
    Ok(())
}
