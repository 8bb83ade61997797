//! Nodes that cannot restart Pods in place are named.

use anyhow::Result;
use jobset_api::conditions::IN_PLACE_UNSUPPORTED;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Space};
use crate::workload::restarting;

fn nodes(space: &Space) -> Api<Node> {
    Api::all(space.client.clone())
}

async fn node(space: &Space, name: &str, status: &Value) -> Result<()> {
    let node = json!({"metadata": {"name": name}});
    nodes(space).create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    show(space, name, status).await
}

async fn show(space: &Space, name: &str, status: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    nodes(space).patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn kubelet(version: &str) -> Value {
    json!({"nodeInfo": {"kubeletVersion": version, "architecture": "", "bootID": "", "containerRuntimeVersion": "",
           "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
           "systemUUID": ""}})
}

#[tokio::test]
async fn a_cluster_of_which_no_node_can_restart_in_place_is_named_until_one_can() -> Result<()> {
    let fixture = Fixture::start().await?;
    node(&fixture, "old", &kubelet("v1.35.4")).await?;
    node(&fixture, "older", &kubelet("v1.34.0")).await?;
    fixture.create(restarting("train", 1, 1)).await?;
    let named = fixture.condition("train", IN_PLACE_UNSUPPORTED, "True").await?;
    assert!(named.message.starts_with("no node can restart Pods in place; "), "{}", named.message);
    fixture.note("InPlaceUnsupported", "no node can restart").await?;
    let pods = fixture.pods("train", 1, "0").await?;
    fixture.bind(&pods[0], json!({"metadata": {"name": "new"}, "status": kubelet("v1.36.0")})).await?;
    fixture.condition("train", IN_PLACE_UNSUPPORTED, "False").await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn a_node_with_a_pod_of_the_jobset_that_does_not_declare_the_feature_is_named() -> Result<()> {
    let space = Space::new("unsupported-node").await?;
    space.create(restarting("train", 1, 1)).await?;
    let pods = space.pods("train", 1, "0").await?;
    space.bind(&pods[0], json!({"metadata": {"name": "node-without-the-feature"}})).await?;
    let mut status = kubelet("v1.36.0");
    status["declaredFeatures"] = json!(["AnotherFeature"]);
    show(&space, "node-without-the-feature", &status).await?;
    let named = space.condition("train", IN_PLACE_UNSUPPORTED, "True").await?;
    let wanted = "node node-without-the-feature cannot restart Pods in place; ";
    assert!(named.message.starts_with(wanted), "{}", named.message);
    // Of no interest to one that recreates Pods.
    let mut jobset = restarting("recreated", 1, 1);
    jobset["spec"]["failurePolicy"] = json!({"maxRestarts": 1});
    space.create(jobset).await?;
    space.pods("recreated", 1, "0").await?;
    status["declaredFeatures"] = json!(["AnotherFeature", "RestartAllContainersOnContainerExits"]);
    show(&space, "node-without-the-feature", &status).await?;
    space.condition("train", IN_PLACE_UNSUPPORTED, "False").await?;
    assert_eq!(space.status("recreated").await?.conditions, []);
    Ok(())
}
