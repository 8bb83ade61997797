//! Nodes that cannot restart Pods in place are named.

use anyhow::Result;
use jobset_api::conditions::IN_PLACE_UNSUPPORTED;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Space};
use crate::workload::restarting;

async fn node(space: &Space, name: &str, status: &Value) -> Result<()> {
    let nodes: Api<Node> = Api::all(space.client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": name}}))?).await?;
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    Ok(())
}

fn kubelet(version: &str) -> Value {
    json!({"nodeInfo": {"kubeletVersion": version, "architecture": "", "bootID": "", "containerRuntimeVersion": "",
           "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
           "systemUUID": ""}})
}

#[tokio::test]
async fn cluster_without_capable_node_is_named_until_one_joins() -> Result<()> {
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
