//! Requests and limits that change while a JobSet is suspended (KEP-1150).

use anyhow::{Context, Result};
use jobset_api::conditions;
use jobset_harness::ControlPlane;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Space, Vacant, in_place};
use crate::jobsets::{group, jobset, with};

const ON: &str = "--feature-gates=MutablePodResourcesForSuspendedJobSets=true";

/// Sets the resources of the container at this place of the first replicatedJob.
async fn set_resources(space: &Space, name: &str, list: &str, resources: &Value) -> Result<()> {
    let mut spec = serde_json::to_value(space.jobsets().get(name).await?.spec)?;
    spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][list][0]["resources"] = resources.clone();
    space.edit(name, json!({"spec": {"replicatedJobs": spec["replicatedJobs"]}})).await
}

/// The resources of the worker, and those of the agent if there is one.
fn resources(pod: &Pod) -> Value {
    let spec = pod.spec.clone().unwrap_or_default();
    let of = |containers: Option<Vec<_>>| {
        let container: Option<k8s_openapi::api::core::v1::Container> = containers.into_iter().flatten().next();
        json!(container.and_then(|it| it.resources).unwrap_or_default())
    };
    json!([of(Some(spec.containers)), of(spec.init_containers)])
}

async fn suspended(space: &Space, name: &str) -> Result<()> {
    space.suspend(name, true).await?;
    space.condition(name, conditions::SUSPENDED, "True").await?;
    Ok(())
}

#[tokio::test]
async fn resources_changed_while_suspended_reach_resumed_pods() -> Result<()> {
    let fixture = Fixture::start_with(&[ON]).await?;
    fixture.create(in_place("train", 1, 9)).await?;
    let pods = fixture.pods("train", 1, "0").await?;
    assert_eq!(resources(&pods[0]), json!([{}, {}]));
    let first = fixture.job("train-workers-0").await?;
    suspended(&fixture, "train").await?;
    let worker = json!({"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}});
    set_resources(&fixture, "train", "containers", &worker).await?;
    set_resources(&fixture, "train", "initContainers", &json!({"requests": {"cpu": "10m"}})).await?;
    fixture.suspend("train", false).await?;
    let pods = fixture.pods("train", 1, "0").await?;
    let expected = json!([
        {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        {"requests": {"cpu": "10m"}},
    ]);
    assert_eq!(resources(&pods[0]), expected);
    assert_eq!(fixture.job("train-workers-0").await?.uid(), first.uid(), "the Job is the same");
    assert_eq!(fixture.warnings().await?, Vec::<String>::new());
    fixture.plane.stop().await
}

#[tokio::test]
async fn refused_resources_are_named_and_hold_up_nothing_else() -> Result<()> {
    let off = "--feature-gates=MutablePodResourcesForSuspendedJobs=false";
    let plane = ControlPlane::builder().api_server_arg(off).control_plane().await?;
    let fixture = Vacant::on(plane).await?.start_controller(&[ON])?;
    let groups = [group("w", 1, 1), group("x", 1, 1)];
    fixture.create(with(jobset("train", &groups), &json!({"spec": {"suspend": true}}))).await?;
    fixture.condition("train", conditions::SUSPENDED, "True").await?;
    set_resources(&fixture, "train", "containers", &json!({"requests": {"cpu": "2"}})).await?;
    fixture.suspend("train", false).await?;
    let gate = "feature gate MutablePodResourcesForSuspendedJobs of the API server";
    let note = fixture.note("FailedResourcePropagation", gate).await?;
    assert!(note.starts_with("cannot resume Job default/train-w-0 ") && note.contains("field is immutable"), "{note}");
    let refused = fixture.condition("train", conditions::CHILD_REFUSED, "True").await?;
    assert!(refused.message.contains(gate), "{}", refused.message);
    // The Job of the other replicatedJob runs, and that one does not run with resources that it should not have.
    fixture.pods_of("train-x-0", 1).await?;
    assert_eq!(fixture.job("train-w-0").await?.spec.context("no spec")?.suspend, Some(true));

    // What the note says to do, helps.
    suspended(&fixture, "train").await?;
    set_resources(&fixture, "train", "containers", &json!({})).await?;
    fixture.suspend("train", false).await?;
    fixture.pods_of("train-w-0", 1).await?;
    fixture.condition("train", conditions::CHILD_REFUSED, "False").await?;
    fixture.plane.stop().await
}
