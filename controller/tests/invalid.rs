//! Bad input: what admission would have refused, and got in without it.

use anyhow::Result;
use jobset_api::{conditions, labels};
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

/// A coordinator whose network name does not fit into its label.
fn long_coordinator() -> Value {
    json!({"spec": {"coordinator": {"replicatedJob": "a".repeat(60)}}})
}

/// JobSets of which one thing each cannot be carried out, and what is said about it. `cannot_run` has more of them.
fn bad() -> [(Value, &'static str); 2] {
    let policy = json!({"spec": {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["nobody"]}}});
    let target = r#"spec.successPolicy.targetReplicatedJobs[0]: Not found: "nobody""#;
    let names = jobset("long-names", &[group(&"a".repeat(60), 1, 1)]);
    [(changed("success-target", &policy), target), (names, "characters of the 63 that Kubernetes allows")]
}

/// JobSets that admission refuses, each for one thing, and that can be carried out; and how many Pods each has.
fn carried_out() -> Vec<(Value, usize)> {
    let spec = |spec: Value| json!({"spec": spec});
    let rule = |rule: Value| spec(json!({"failurePolicy": {"maxRestarts": 1, "rules": [rule]}}));
    let claim = json!({"templates": [{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]});
    let mut without_agent = in_place("without-agent", 2, 1);
    without_agent["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["initContainers"] = json!([]);
    let mut on_failure = in_place("on-failure", 2, 1);
    on_failure["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] =
        json!("OnFailure");
    let not_indexed = json!({"template": {"spec": {"completionMode": "NonIndexed"}}});
    vec![
        (changed("failure-target", &rule(json!({"action": "FailJobSet", "targetReplicatedJobs": ["nobody"]}))), 5),
        (changed("pattern", &rule(json!({"action": "FailJobSet", "onJobFailureMessagePatterns": ["a("]}))), 5),
        (changed("coordinator", &spec(json!({"coordinator": {"replicatedJob": "workers", "jobIndex": 2}}))), 5),
        (
            with(
                jobset("not-indexed", &[with(group("w", 1, 1), &not_indexed)]),
                &spec(json!({"coordinator": {"replicatedJob": "w"}})),
            ),
            1,
        ),
        (changed("claim", &spec(json!({"volumeClaimPolicies": [claim]}))), 5),
        (without_agent, 2),
        (on_failure, 2),
    ]
}

#[tokio::test]
async fn stored_jobset_that_admission_refuses_is_carried_out() -> Result<()> {
    let space = Space::new("carried-out").await?;
    for (jobset, _) in carried_out() {
        space.create(jobset).await?;
    }
    for (jobset, pods) in carried_out() {
        let name = jobset["metadata"]["name"].as_str().unwrap_or_default();
        space.pods(name, pods, "0").await?;
        let status = space.jobsets().get(name).await?.status.unwrap_or_default();
        assert!(!conditions::is_true(&status.conditions, conditions::INVALID), "{name}: {:?}", status.conditions);
    }
    space.note("MessagePatternInvalid", "onJobFailureMessagePatterns[0]").await?;
    let told = space.condition("without-agent", conditions::IN_PLACE_UNSUPPORTED, "True").await?;
    assert_eq!(told.reason, conditions::CANNOT_RESTART_IN_PLACE);
    let job = &space.jobs_of("not-indexed", &["not-indexed-w-0"]).await?[0];
    let endpoint = Some(&"not-indexed-w-0-0.not-indexed".to_owned());
    assert_eq!([job.labels(), job.annotations()].map(|keys| keys.get(labels::COORDINATOR)), [endpoint, endpoint]);
    Ok(())
}

#[tokio::test]
async fn invalid_jobset_is_named_creates_nothing_others_go_on() -> Result<()> {
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
        assert!(
            message.starts_with("the JobSet is left alone, because its specification is invalid: "),
            "{name}: {message}"
        );
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
async fn one_that_becomes_invalid_while_it_runs_runs_on_untouched() -> Result<()> {
    let space = Space::new("spoilt").await?;
    space.create(changed("train", &json!({}))).await?;
    let names = ["train-driver-0", "train-workers-0", "train-workers-1"];
    let jobs = space.jobs_of("train", &names).await?;
    let pods = space.pods("train", 5, "0").await?;
    space.edit("train", with(long_coordinator(), &json!({"spec": {"suspend": true}}))).await?;
    let condition = space.condition("train", "Invalid", "True").await?;
    assert!(condition.message.contains("fit into a label"), "{}", condition.message);
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
