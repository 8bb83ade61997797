//! Pods that the controller deletes, each in the way that its reason asks for.

use anyhow::{Context, Result};
use futures::StreamExt;
use jobset_e2e::wait;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, in_place};

/// Waits until another Pod has taken the place of this one, and the others are as they were.
async fn replaced(fixture: &Fixture, jobset: &str, before: &[Pod], pod: &Pod) -> Result<()> {
    wait::until(LIMIT, format!("another Pod than {}", pod.name_any()), || async {
        let labels = format!("jobset.sigs.k8s.io/jobset-name={jobset}");
        let now = fixture.all_pods().list(&ListParams::default().labels(&labels)).await?.items;
        let kept = |pod: &Pod| now.iter().any(|other| other.uid() == pod.uid());
        let others_kept = before.iter().filter(|other| other.uid() != pod.uid()).all(kept);
        Ok((!kept(pod) && now.len() == before.len() && others_kept).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_pod_whose_epoch_cannot_become_valid_is_replaced() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.create(in_place("train", 2, 1)).await?;
    let before = fixture.pods("train", 2, "0").await?;
    fixture.report(&before[0], "1").await?;
    fixture.report(&before[1], "7").await?;
    replaced(&fixture, "train", &before, &before[1]).await?;
    let read = r#"jobset_api_requests_total{code="200",resource="pods",verb="get"}"#;
    assert!(fixture.controller.metric(read).await? > Some(0.0), "it is read before it is deleted");
    fixture.plane.stop().await
}

#[tokio::test]
async fn a_pod_on_a_node_that_is_unreachable_for_long_goes_without_its_kubelet() -> Result<()> {
    let fixture = Fixture::start_with(&["--force-delete-unreachable-after", "1s"]).await?;
    let mut jobset = in_place("train", 2, 1);
    jobset["spec"]["failurePolicy"] = json!({"maxRestarts": 1});
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["podReplacementPolicy"] = json!("TerminatingOrFailed");
    fixture.create(jobset).await?;
    let before = fixture.pods("train", 2, "0").await?;
    fixture.bind(&before[0], json!({"metadata": {"name": "lost"}})).await?;
    // The node controller, which takes a silent kubelet for such a node, taints it.
    let nodes: Api<Node> = Api::all(fixture.client.clone());
    let silent = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    nodes.patch_status("lost", &PatchParams::default(), &Patch::Strategic(silent)).await?;
    replaced(&fixture, "train", &before, &before[0]).await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn a_misplaced_pod_is_marked_as_disrupted_before_it_goes() -> Result<()> {
    let fixture = Fixture::start().await?;
    let mut jobset = in_place("train", 2, 1);
    jobset["metadata"]["annotations"] = json!({"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"});
    jobset["spec"]["failurePolicy"] = json!({"maxRestarts": 1});
    let template = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
    template["metadata"]["annotations"] = json!({"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"});
    // As admission would send the follower.
    template["spec"]["nodeSelector"] = json!({"rack": "a"});
    fixture.create(jobset).await?;
    let before = fixture.pods("train", 2, "0").await?;
    let index = |pod: &&Pod| pod.annotations()["batch.kubernetes.io/job-completion-index"] == "0";
    let leader = before.iter().find(index).context("no leader")?;
    let follower = before.iter().find(|pod| !index(pod)).context("no follower")?;

    let params = WatchParams::default().fields(&format!("metadata.name={}", follower.name_any()));
    let mut events =
        Box::pin(fixture.all_pods().watch(&params, &follower.resource_version().unwrap_or_default()).await?);
    fixture.bind(leader, json!({"metadata": {"name": "elsewhere", "labels": {"rack": "b"}}})).await?;
    let mut reason = None;
    loop {
        let event = tokio::time::timeout(LIMIT, events.next()).await?.context("the watch has ended")??;
        let (WatchEvent::Modified(pod) | WatchEvent::Deleted(pod)) = event else { continue };
        let conditions = pod.status.clone().and_then(|status| status.conditions).unwrap_or_default();
        let disrupted = conditions.into_iter().find(|condition| condition.type_ == "DisruptionTarget");
        reason = reason.or(disrupted.and_then(|condition| condition.reason));
        if pod.metadata.deletion_timestamp.is_some() {
            break;
        }
    }
    assert_eq!(reason.as_deref(), Some("ExclusivePlacementViolation"));
    fixture.plane.stop().await
}
