//! Bad input: what admission would have refused, and got in without it.

use anyhow::Result;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::expect::uids;
use crate::fixture::{Space, in_place};
use crate::jobsets::{group, jobset, with};

/// A JobSet of a driver and two Jobs of workers, so changed.
fn changed(name: &str, patch: &Value) -> Value {
    with(jobset(name, &[group("driver", 1, 1), group("workers", 2, 2)]), patch)
}

/// JobSets of which one thing each is wrong, and what is said about it.
fn bad() -> Vec<(Value, &'static str)> {
    let depends_on = |on: &str| json!({"dependsOn": [{"name": on, "status": "Ready"}]});
    let spec = |spec: Value| json!({"spec": spec});
    let rule = |rule: Value| spec(json!({"failurePolicy": {"maxRestarts": 1, "rules": [rule]}}));
    let claim = json!({"templates": [{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]});
    let mut without_agent = in_place("without-agent", 2, 1);
    without_agent["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["initContainers"] = json!([]);
    vec![
        (
            changed(
                "success-target",
                &spec(json!({"successPolicy": {"operator": "All", "targetReplicatedJobs": ["nobody"]}})),
            ),
            r#"spec.successPolicy.targetReplicatedJobs[0]: Not found: "nobody""#,
        ),
        (
            changed("failure-target", &rule(json!({"action": "FailJobSet", "targetReplicatedJobs": ["nobody"]}))),
            r#"spec.failurePolicy.rules[0].targetReplicatedJobs[0]: Not found: "nobody""#,
        ),
        (
            changed("pattern", &rule(json!({"action": "FailJobSet", "onJobFailureMessagePatterns": ["a("]}))),
            r#"spec.failurePolicy.rules[0].onJobFailureMessagePatterns[0]: Invalid value: "a(""#,
        ),
        (
            jobset("later", &[with(group("driver", 1, 1), &depends_on("workers")), group("workers", 1, 1)]),
            r#"spec.replicatedJobs[0].dependsOn[0].name: Invalid value: "workers": must name an earlier entry"#,
        ),
        (
            jobset(
                "circle",
                &[
                    with(group("driver", 1, 1), &depends_on("workers")),
                    with(group("workers", 1, 1), &depends_on("driver")),
                ],
            ),
            r#"spec.replicatedJobs[0].dependsOn[0].name: Invalid value: "workers": must name an earlier entry"#,
        ),
        (
            jobset("itself", &[group("driver", 1, 1), with(group("workers", 1, 1), &depends_on("workers"))]),
            "a replicatedJob cannot wait for itself",
        ),
        (
            changed("coordinator", &spec(json!({"coordinator": {"replicatedJob": "workers", "jobIndex": 2}}))),
            "spec.coordinator.jobIndex: Invalid value: 2: must be an index of the 2 replicas",
        ),
        (
            changed("claim", &spec(json!({"volumeClaimPolicies": [claim]}))),
            r#"spec.volumeClaimPolicies[0].templates[0].metadata.name: Invalid value: "data": must be mounted"#,
        ),
        (
            changed("subdomain", &spec(json!({"network": {"subdomain": "Not_A_Name"}}))),
            r#"spec.network.subdomain: Invalid value: "Not_A_Name""#,
        ),
        (jobset("long-names", &[group(&"a".repeat(60), 1, 1)]), "characters of the 63 that Kubernetes allows"),
        (
            with(
                jobset(
                    "placed",
                    &[with(group("w", 1, 1), &json!({"template": {"spec": {"completionMode": "NonIndexed"}}}))],
                ),
                &json!({"metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}}),
            ),
            "spec.replicatedJobs[0].template.spec.completionMode",
        ),
        (without_agent, "spec.replicatedJobs[0].template.spec.template.spec"),
    ]
}

#[tokio::test]
async fn what_cannot_be_carried_out_is_named_and_nothing_of_it_is_made_while_others_go_on() -> Result<()> {
    let space = Space::new("invalid").await?;
    let bad = bad();
    for (jobset, _) in &bad {
        space.create(jobset.clone()).await?;
    }
    space.create(jobset("good", &[group("w", 1, 1)])).await?;
    space.pods_of("good-w-0", 1).await?;
    for (jobset, wanted) in &bad {
        let name = jobset["metadata"]["name"].as_str().unwrap_or_default();
        let condition = space.condition(name, "Invalid", "True").await?;
        assert_eq!(condition.reason, "InvalidSpecification");
        let message = &condition.message;
        assert!(message.starts_with("left alone, because admission would refuse it: "), "{name}: {message}");
        assert!(message.contains(wanted), "{name}: {message}");
        space.note("InvalidSpecification", wanted).await?;
    }
    space.settle().await?;
    for (jobset, _) in &bad {
        let name = jobset["metadata"]["name"].as_str().unwrap_or_default();
        space.jobs_of(name, &[]).await?;
        let status = space.jobsets().get(name).await?.status.unwrap_or_default();
        assert_eq!(status.conditions.len(), 1, "{name}: {:?}", status.conditions);
    }
    let services: Api<Service> = Api::default_namespaced(space.client.clone());
    let mut services: Vec<String> =
        services.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    services.retain(|name| !name.starts_with("last-"));
    assert_eq!(services, ["good"]);
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(space.client.clone());
    assert!(claims.list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

#[tokio::test]
async fn an_edit_that_mends_it_makes_it_run() -> Result<()> {
    let space = Space::new("mended").await?;
    let coordinator = |index: i32| json!({"spec": {"coordinator": {"replicatedJob": "workers", "jobIndex": index}}});
    space.create(changed("train", &coordinator(2))).await?;
    space.condition("train", "Invalid", "True").await?;
    space.edit("train", coordinator(1)).await?;
    let condition = space.condition("train", "Invalid", "False").await?;
    assert_eq!(condition.reason, "Valid");
    space.pods("train", 5, "0").await?;
    Ok(())
}

#[tokio::test]
async fn one_that_becomes_invalid_while_it_runs_runs_on_untouched() -> Result<()> {
    let space = Space::new("spoilt").await?;
    space.create(changed("train", &json!({}))).await?;
    let names = ["train-driver-0", "train-workers-0", "train-workers-1"];
    let jobs = space.jobs_of("train", &names).await?;
    let pods = space.pods("train", 5, "0").await?;
    let spoilt = json!({"spec": {"suspend": true, "coordinator": {"replicatedJob": "nobody"}}});
    space.edit("train", spoilt).await?;
    let condition = space.condition("train", "Invalid", "True").await?;
    assert!(
        condition.message.contains(r#"spec.coordinator.replicatedJob: Not found: "nobody""#),
        "{}",
        condition.message
    );
    space.settle().await?;
    space.only_run("train", &names).await?;
    assert_eq!(uids(&jobs), uids(&space.jobs_of("train", &names).await?));
    assert_eq!(uids(&pods), uids(&space.pods("train", 5, "0").await?));
    // Mended, it is suspended, as it was told.
    space.edit("train", json!({"spec": {"coordinator": null}})).await?;
    space.pods("train", 0, "0").await?;
    space.condition("train", "Suspended", "True").await?;
    Ok(())
}
