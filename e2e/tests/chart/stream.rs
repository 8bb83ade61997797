//! What `stream.enabled` adds to the chart.

use anyhow::Result;
use jobset_harness::ControlPlane;
use jobset_harness::admission::apply;
use jobset_harness::chart::Objects;
use serde_json::{Value, json};

use super::render::{NAMESPACE, of, render};

/// All that a program may be asked for, and by whom, where agents connect to relays.
#[tokio::test]
async fn stream_gives_each_program_what_it_needs_alone() -> Result<()> {
    let without = render(NAMESPACE, &[]).await?;
    let with = render(NAMESPACE, &["--set", "stream.enabled=true"]).await?;
    let rules = |objects: &Objects, kind: &str, namespace: &str, name: &str| {
        let role = objects.get(&of(kind, namespace, name));
        role.and_then(|it| it["rules"].as_array()).into_iter().flatten().cloned().collect::<Vec<Value>>()
    };
    let added = |kind: &str, namespace: &str, name: &str| {
        let before = rules(&without, kind, namespace, name);
        let rules = rules(&with, kind, namespace, name).into_iter();
        rules.filter(|rule| !before.contains(rule)).collect::<Vec<_>>()
    };
    let rule = |group: &str, resource: &str, names: &[&str], verbs: &[&str]| {
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    };
    let reviews = rule("authentication.k8s.io", "tokenreviews", &[], &["create"]);
    assert_eq!(added("ClusterRole", "", "jobset-relay"), [reviews]);
    assert_eq!(rules(&with, "Role", NAMESPACE, "jobset-relay"), [] as [Value; 0]);
    let map = ["jobset-relay-ca"];
    let of_controller = [rule("", "configmaps", &[], &["create"]), rule("", "configmaps", &map, &["get", "update"])];
    assert_eq!(added("ClusterRole", "", "jobset-controller"), of_controller);
    let slices = rule("discovery.k8s.io", "endpointslices", &[], &["list", "watch"]);
    assert_eq!(added("Role", NAMESPACE, "jobset-controller-relays"), [slices]);
    let secrets = ["jobset-webhook-server-cert", "jobset-webhook-leaf", "jobset-relay-leaf", "jobset-controller-leaf"];
    let writes = rule("", "secrets", &secrets, &["get", "list", "watch", "update"]);
    assert_eq!(added("Role", NAMESPACE, "jobset-certs"), [writes]);
    assert_eq!(added("ClusterRole", "", "jobset-certs"), [] as [Value; 0]);
    assert_eq!(added("ClusterRole", "", "jobset-webhook"), [] as [Value; 0]);

    let policy = &with[&of("NetworkPolicy", NAMESPACE, "jobset-relay")]["spec"]["ingress"];
    let from = policy.as_array().into_iter().flatten().map(|rule| {
        let ports = rule["ports"].as_array().into_iter().flatten().map(|it| it["port"].clone()).collect::<Vec<_>>();
        (ports, &rule["from"])
    });
    let controller = json!([{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "jobset-controller"}}}]);
    let wanted = [
        (vec![Value::from("agents"), Value::from("health")], &Value::Null),
        (vec![Value::from("controller")], &controller),
    ];
    assert_eq!(from.collect::<Vec<_>>(), wanted);
    Ok(())
}

/// In a namespace for Pods that are restricted.
#[tokio::test]
async fn relay_is_accepted_by_the_api_server() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let restricted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    }});
    apply(&plane, "namespace.yaml", &[restricted]).await?;
    let objects = render(NAMESPACE, &["--set", "stream.enabled=true"]).await?;
    apply(&plane, "stream.yaml", &objects.values().cloned().collect::<Vec<_>>()).await?;
    let template = &objects[&of("Deployment", NAMESPACE, "jobset-relay")]["spec"]["template"];
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "relay", "namespace": NAMESPACE}, "spec": template["spec"],
    });
    apply(&plane, "relay.yaml", &[pod]).await?;
    plane.stop().await
}
