//! The nodes that JobSets blame, on a real API server.

use anyhow::Result;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixture::{Space, in_place};

/// The test writes the status of a JobSet that no controller reconciles.
#[tokio::test]
async fn nodes_are_listed() -> Result<()> {
    let space = Space::new("nodes").await?;
    let mut object = in_place("train", 1);
    object["spec"]["managedBy"] = json!("example.com/nobody");
    object["metadata"]["labels"] = json!({"team": "vision"});
    space.create(object).await?;
    space.node("nodes-bad", &json!({})).await?;
    let now = Timestamp::now();
    let time = |minutes: i64| now + SignedDuration::from_mins(minutes);
    let strike = |node: &str| json!({"node": node, "time": format!("{:.6}", time(-1)), "job": "train-workers-0", "index": 0, "reason": "container_exit"});
    let status = json!({
        "restarts": 0,
        "nodeStrikes": [strike("nodes-bad"), strike("nodes-gone"), strike("nodes-bad")],
        "avoidedNodes": [{
            "node": "nodes-bad", "since": format!("{now:.0}"), "until": format!("{:.0}", time(60)), "failures": 2,
            "reason": "Failures",
        }],
    });
    let patch = Patch::Merge(json!({ "status": status }));
    space.jobsets().patch_status("train", &PatchParams::default(), &patch).await?;

    let text = space.run(&["nodes"], 0).await?;
    println!("{text}");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1][..3], ["nodes-bad", "2", "train"], "{text}");
    assert!(lines[1].contains(&"container_exit") && text.contains("train for "), "{text}");
    assert_eq!(lines[2][..3], ["nodes-gone", "1", "train"], "{text}");
    assert_eq!(lines[2].last(), Some(&"gone"), "{text}");
    let report: Value =
        serde_json::from_str(&space.run(&["nodes", "-A", "-l", "team=vision", "-o", "json"], 0).await?)?;
    assert_eq!(report["nodes"][0]["jobsets"], json!([{"namespace": "nodes", "name": "train"}]), "{report}");
    assert_eq!(report["nodes"][0]["observed"]["exists"], true, "{report}");
    let none = space.run(&["nodes", "-l", "team=other"], 0).await?;
    assert_eq!(none, "No JobSet in namespace nodes blames a node for a failure of the last 24 hours.\n");
    let status = space.run(&["status", "train"], 0).await?;
    assert!(status.contains("nodes-bad, 2 failures in 24 h, avoided for "), "{status}");

    viewer(&space).await?;
    let text = space.shows(&["nodes", "--as", "viewer"], &["nodes-bad"], 0).await?;
    let line = text.lines().find(|line| line.starts_with("nodes-bad")).unwrap_or_default();
    assert!(line.split_whitespace().rev().take(2).all(|cell| cell == "-"), "{text}");
    Ok(())
}

/// A user who may list the JobSets of the namespace, and no nodes.
async fn viewer(space: &Space) -> Result<()> {
    let roles: Api<Role> = Api::default_namespaced(space.client.clone());
    let may_list = json!([{"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "viewer"}, "rules": may_list});
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    let bindings: Api<RoleBinding> = Api::default_namespaced(space.client.clone());
    let binding = json!({
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}
