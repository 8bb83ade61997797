//! Pods that the controller deletes, each in the way that its reason asks for.

use anyhow::{Context, Result};
use futures::StreamExt;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, Space, in_place};

/// Waits until another Pod has taken the place of this one, and the others are as they were.
async fn replaced(space: &Space, jobset: &str, before: &[Pod], pod: &Pod) -> Result<()> {
    wait::until(LIMIT, format!("another Pod than {}", pod.name_any()), || async {
        let labels = format!("jobset.sigs.k8s.io/jobset-name={jobset}");
        let now = space.all_pods().list(&ListParams::default().labels(&labels)).await?.items;
        let kept = |pod: &Pod| now.iter().any(|other| other.uid() == pod.uid());
        let others_kept = before.iter().filter(|other| other.uid() != pod.uid()).all(kept);
        Ok((!kept(pod) && now.len() == before.len() && others_kept).then_some(()))
    })
    .await
}

fn nodes(space: &Space) -> Api<Node> {
    Api::all(space.client.clone())
}

/// Gives a node this status of readiness, and waits for the taint that the node controller puts on it for that.
async fn tainted(space: &Space, node: &str, ready: &str) -> Result<()> {
    let now = Timestamp::now().to_string();
    let status = json!({"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": now, "lastTransitionTime": now}]});
    let patch = Patch::Strategic(json!({"status": status}));
    nodes(space).patch_status(node, &PatchParams::default(), &patch).await?;
    let wanted = if ready == "Unknown" { "node.kubernetes.io/unreachable" } else { "node.kubernetes.io/not-ready" };
    wait::until_met(LIMIT, format!("node {node} with the taint {wanted}"), || async {
        let taints = nodes(space).get(node).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let found = taints.iter().any(|taint| taint.key == wanted);
        Ok(if found { Check::Met(()) } else { Check::Unmet(format!("{taints:?}")) })
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

/// In place, Jobs replace failed Pods alone, and no kubelet writes that phase any more.
#[tokio::test]
async fn pod_on_lost_node_is_replaced_without_kubelet() -> Result<()> {
    let fixture = Fixture::start().await?;
    let mut jobset = in_place("train", 2, 1);
    jobset["metadata"]["annotations"] = json!({"jobset.sigs.k8s.io/node-lost-after": "10s"});
    jobset["spec"]["failurePolicy"] = json!({"maxRestarts": 1, "restartStrategy": "InPlaceRestart"});
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["podReplacementPolicy"] = "Failed".into();
    fixture.create(jobset).await?;
    let before = fixture.pods("train", 2, "0").await?;
    fixture.bind(&before[0], json!({"metadata": {"name": "lost"}})).await?;
    // One whose kubelet says that it is not ready is left alone, however long that lasts.
    fixture.bind(&before[1], json!({"metadata": {"name": "unready"}})).await?;
    tainted(&fixture, "unready", "False").await?;
    tainted(&fixture, "lost", "Unknown").await?;
    replaced(&fixture, "train", &before, &before[0]).await?;
    let left = fixture.all_pods().get(&before[1].name_any()).await?;
    assert!(left.uid() == before[1].uid() && left.metadata.deletion_timestamp.is_none());
    fixture.plane.stop().await
}

#[tokio::test]
async fn a_misplaced_pod_is_marked_as_disrupted_before_it_goes() -> Result<()> {
    let space = Space::new("misplaced").await?;
    let mut jobset = in_place("train", 2, 1);
    jobset["metadata"]["annotations"] = json!({"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"});
    jobset["spec"]["failurePolicy"] = json!({"maxRestarts": 1});
    let template = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
    template["metadata"]["annotations"] = json!({"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"});
    // As admission would send the follower.
    template["spec"]["nodeSelector"] = json!({"rack": "a"});
    space.create(jobset).await?;
    let before = space.pods("train", 2, "0").await?;
    let index = |pod: &&Pod| pod.annotations()["batch.kubernetes.io/job-completion-index"] == "0";
    let leader = before.iter().find(index).context("no leader")?;
    let follower = before.iter().find(|pod| !index(pod)).context("no follower")?;

    let params = WatchParams::default().fields(&format!("metadata.name={}", follower.name_any()));
    let mut events = Box::pin(space.all_pods().watch(&params, &follower.resource_version().unwrap_or_default()).await?);
    space.bind(leader, json!({"metadata": {"name": "elsewhere", "labels": {"rack": "b"}}})).await?;
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
    Ok(())
}
