//! Causes that `explain` finds outside of the JobSet: permissions, nodes and other JobSets.

use anyhow::{Context, Result};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::fixture::{Space, expect, in_place};

/// Key of the topology domains of this test.
const RACK: &str = "example.com/rack";

#[tokio::test]
async fn agent_without_permission_is_named_until_role_exists() -> Result<()> {
    let space = Space::new("silent").await?;
    let roles: Api<ClusterRole> = Api::all(space.client.clone());
    let role = json!({"metadata": {"name": "jobset-agent"}, "rules": [
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
    ]});
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    space.create(in_place("train", 1)).await?;
    let pods = space.pods_of("train", 1).await?;
    space.node("silent-1", &json!({})).await?;
    space.bind_to(&pods[0], "silent-1").await?;
    space.held(&pods[0], 0).await?;

    let pod = pods[0].name_any();
    let denied = format!(
        "Pod {pod} cannot report to the barrier: ServiceAccount default may not watch JobSets or list JobSets or patch Pods."
    );
    let text = space.shows(&["explain", "train"], &[&denied], 1).await?;
    space.shows(&["status", "train"], &["BarrierWaiting", "AgentsSilent", &pod], 0).await?;

    // The advice is a command that mends it.
    let advice = text.lines().find_map(|line| line.trim().strip_prefix("-> kubectl ")).context("no command")?;
    let mut command = std::process::Command::new(&space.kubectl);
    command.args(advice.split(' ')).env("KUBECONFIG", &space.kubeconfig);
    expect(&command.output()?, 0)?;
    space.shows(&["explain", "train"], &["is started, but the agent has not reported"], 1).await?;
    Ok(())
}

#[tokio::test]
async fn leader_without_a_domain_names_the_jobs_that_occupy_them() -> Result<()> {
    let space = Space::new("topology").await?;
    for name in ["first", "second"] {
        space.create(exclusive(name)).await?;
    }
    let second = space.pods_of("second", 1).await?;
    space.unschedulable(&second[0]).await?;
    space.shows(&["explain", "second"], &["no node has the label example.com/rack", "label node NODE"], 1).await?;

    let first = space.pods_of("first", 1).await?;
    space.node("rack-a-1", &json!({RACK: "a"})).await?;
    space.bind_to(&first[0], "rack-a-1").await?;
    let words = ["1 of 1 domains of example.com/rack are occupied", "a: Job topology/first-workers-0"];
    space.shows(&["explain", "second"], &words, 1).await?;
    Ok(())
}

/// A JobSet with exclusive placement and one Pod.
fn exclusive(name: &str) -> Value {
    let mut object = in_place(name, 1);
    object["metadata"]["annotations"] = json!({"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK});
    object["spec"]["failurePolicy"] = json!({"maxRestarts": 0});
    let pod = &mut object["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
    *pod = json!({"restartPolicy": "Never", "containers": [{"name": "worker", "image": "none"}]});
    object
}
