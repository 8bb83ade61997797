//! Services and claims that are there before the JobSet that needs them, and Jobs that cannot be changed.

use anyhow::Result;
use jobset_api::conditions;
use jobset_harness::wait;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{Fixture, LIMIT, Space, in_place};

const LABEL: &str = "jobset.sigs.k8s.io/jobset-name";

async fn service(space: &Space, name: &str, spec: Value) -> Result<Service> {
    let services: Api<Service> = Api::default_namespaced(space.client.clone());
    let service = json!({"metadata": {"name": name}, "spec": spec});
    Ok(services.create(&PostParams::default(), &serde_json::from_value(service)?).await?)
}

#[tokio::test]
async fn foreign_headless_service_is_used_and_read_once() -> Result<()> {
    let fixture = Fixture::start().await?;
    service(&fixture, "train", json!({"clusterIP": "None"})).await?;
    fixture.create(in_place("train", 1, 1)).await?;
    let pods = fixture.pods("train", 1, "0").await?;
    let mut history = fixture.history("train").await?;
    fixture.report(&pods[0], "1").await?;
    while crate::fixture::next(&mut history).await?.status.is_none_or(|status| status.synced_epoch < 1) {}
    let asked = r#"jobset_api_requests_total{code="409",resource="services",verb="create"}"#;
    assert_eq!(fixture.controller.metric(asked).await?, Some(1.0));
    let services: Api<Service> = Api::default_namespaced(fixture.client.clone());
    assert!(services.get("train").await?.labels().is_empty(), "it is left alone");
    assert!(!fixture.controller.log()?.contains("WARN"));
    fixture.plane.stop().await
}

#[tokio::test]
async fn an_own_service_without_a_label_gets_it() -> Result<()> {
    let space = Space::new("own-service").await?;
    space.create(in_place("train", 1, 1)).await?;
    space.pods("train", 1, "0").await?;
    // As the Go JobSet leaves it.
    let services: Api<Service> = Api::default_namespaced(space.client.clone());
    let bare = json!({"metadata": {"labels": null}});
    services.patch("train", &PatchParams::default(), &Patch::Merge(bare)).await?;
    wait::until(LIMIT, "the label", || async {
        let labels = services.get("train").await?.labels().clone();
        Ok((labels.get(LABEL).map(String::as_str) == Some("train")).then_some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn service_with_cluster_ip_is_named_others_go_on() -> Result<()> {
    let space = Space::new("not-headless").await?;
    service(&space, "train", json!({"ports": [{"port": 80}]})).await?;
    space.create(in_place("train", 1, 1)).await?;
    let pods = space.pods("train", 1, "0").await?;
    let note = space.note("HeadlessServiceCreationFailed", "not-headless/train").await?;
    let wanted =
        "Service not-headless/train exists, and is not headless: delete it, or set another spec.network.subdomain";
    assert_eq!(note, wanted);
    let mut history = space.history("train").await?;
    space.report(&pods[0], "1").await?;
    while crate::fixture::next(&mut history).await?.status.is_none_or(|status| status.synced_epoch < 1) {}

    let services: Api<Service> = Api::default_namespaced(space.client.clone());
    services.delete("train", &DeleteParams::default()).await?;
    wait::until(LIMIT, "the own Service", || async {
        let found = services.get_opt("train").await?.is_some_and(|found| found.labels().contains_key(LABEL));
        Ok(found.then_some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn service_of_another_jobset_is_named_in_event_and_condition() -> Result<()> {
    let space = Space::new("shared-subdomain").await?;
    let on = |name: &str| {
        let mut jobset = in_place(name, 1, 1);
        jobset["spec"]["network"] = json!({"subdomain": "shared"});
        jobset
    };
    space.create(on("first")).await?;
    space.pods("first", 1, "0").await?;
    space.create(on("second")).await?;
    let note = space.note("HeadlessServiceCreationFailed", "shared-subdomain/shared").await?;
    let wanted = "Service shared-subdomain/shared exists, and does not select the Pods of this JobSet, which have no names by it: \
                  delete it, or set another spec.network.subdomain";
    assert_eq!(note, wanted);
    wait::until(LIMIT, "the condition ChildRefused", || async {
        let status = space.jobsets().get("second").await?.status.unwrap_or_default();
        Ok(conditions::find_true(&status.conditions, conditions::CHILD_REFUSED).map(|it| it.message.clone()))
    })
    .await
    .map(|message| assert!(message.contains("does not select the Pods"), "{message}"))
}

#[tokio::test]
async fn job_that_cannot_resume_is_named_others_go_on() -> Result<()> {
    let space = Space::new("not-resumed").await?;
    let mut jobset = in_place("train", 1, 1);
    jobset["spec"]["failurePolicy"] = json!({"maxRestarts": 1});
    jobset["spec"]["suspend"] = json!(true);
    let group = jobset["spec"]["replicatedJobs"][0].clone();
    let mut other = group.clone();
    other["name"] = json!("others");
    jobset["spec"]["replicatedJobs"] = json!([group, other]);
    space.create(jobset.clone()).await?;
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::default_namespaced(space.client.clone());
    wait::until(LIMIT, "both suspended Jobs", || async {
        Ok((jobs.list(&ListParams::default()).await?.items.len() == 2).then_some(()))
    })
    .await?;

    let pod = |group: usize| format!("/spec/replicatedJobs/{group}/template/spec/template/spec");
    jobset.pointer_mut(&pod(0)).expect("a Pod")["nodeSelector"] = json!({"flavor": "no value of a label"});
    jobset.pointer_mut(&pod(1)).expect("a Pod")["nodeSelector"] = json!({"flavor": "b"});
    let edit = json!({"spec": {"suspend": false, "replicatedJobs": jobset["spec"]["replicatedJobs"]}});
    space.jobsets().patch("train", &PatchParams::default(), &Patch::Merge(edit)).await?;
    let note = space.note("Refused", "train-workers-0").await?;
    assert!(note.starts_with("cannot change Job not-resumed/train-workers-0: "), "{note}");
    assert!(note.contains("a valid label must be"), "{note}");
    let resumed = space.pods("train", 1, "0").await?;
    let selector = resumed[0].spec.as_ref().and_then(|spec| spec.node_selector.clone()).unwrap_or_default();
    assert_eq!(selector.get("flavor").map(String::as_str), Some("b"));
    assert_eq!(resumed[0].labels()["jobset.sigs.k8s.io/replicatedjob-name"], "others");

    // The edit that mends it is tried at once.
    jobset.pointer_mut(&pod(0)).expect("a Pod")["nodeSelector"] = json!({"flavor": "a"});
    let edit = json!({"spec": {"replicatedJobs": jobset["spec"]["replicatedJobs"]}});
    space.jobsets().patch("train", &PatchParams::default(), &Patch::Merge(edit)).await?;
    space.pods("train", 2, "0").await?;
    Ok(())
}

#[tokio::test]
async fn foreign_claim_is_named_and_unowned_claim_used() -> Result<()> {
    let space = Space::new("claims-of-others").await?;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(space.client.clone());
    let other = service(&space, "somebody", json!({"clusterIP": "None"})).await?;
    let owner =
        json!({"apiVersion": "v1", "kind": "Service", "name": "somebody", "uid": other.uid(), "controller": true});
    for (name, owners) in [("mine-train", json!([])), ("taken-train", json!([owner]))] {
        let claim = json!({
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    }
    let mut jobset = in_place("train", 1, 1);
    let policy = |name: &str| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        json!({"templates": [{"metadata": {"name": name}, "spec": spec}]})
    };
    jobset["spec"]["volumeClaimPolicies"] = json!([policy("mine"), policy("taken")]);
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    let worker = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0];
    worker["volumeMounts"] = json!([mount("mine"), mount("taken")]);
    space.create(jobset).await?;
    let note = space.note("PVCCreationFailed", "taken-train").await?;
    assert!(note.contains("controlled by Service somebody"), "{note}");
    space.pods("train", 1, "0").await?;
    assert!(claims.get("mine-train").await?.labels().is_empty(), "it is left alone");
    Ok(())
}
