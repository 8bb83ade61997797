//! Services and claims that are there before the JobSet that needs them, and Jobs that cannot be changed.

use anyhow::Result;
use jobset_e2e::wait::{self, Seen};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{Fixture, LIMIT, in_place};

const LABEL: &str = "jobset.sigs.k8s.io/jobset-name";

async fn service(fixture: &Fixture, name: &str, spec: Value) -> Result<Service> {
    let services: Api<Service> = Api::default_namespaced(fixture.client.clone());
    let service = json!({"metadata": {"name": name}, "spec": spec});
    Ok(services.create(&PostParams::default(), &serde_json::from_value(service)?).await?)
}

/// The note of an Event with this reason that contains the text.
async fn told(fixture: &Fixture, reason: &str, text: &str) -> Result<String> {
    let events: Api<Event> = Api::default_namespaced(fixture.client.clone());
    wait::until_seen(LIMIT, format!("an Event {reason} about {text}"), || async {
        let all = events.list(&ListParams::default()).await?.items;
        let notes: Vec<String> =
            all.iter().filter(|event| event.reason.as_deref() == Some(reason)).filter_map(|e| e.note.clone()).collect();
        let found = notes.iter().find(|note| note.contains(text)).cloned();
        Ok(found.map_or_else(|| Seen::NotYet(format!("{notes:?}")), Seen::Yes))
    })
    .await
}

#[tokio::test]
async fn a_headless_service_of_somebody_else_is_used_and_not_asked_for_with_every_pass() -> Result<()> {
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
    let fixture = Fixture::start().await?;
    fixture.create(in_place("train", 1, 1)).await?;
    fixture.pods("train", 1, "0").await?;
    // As the Go JobSet leaves it.
    let services: Api<Service> = Api::default_namespaced(fixture.client.clone());
    let bare = json!({"metadata": {"labels": null}});
    services.patch("train", &PatchParams::default(), &Patch::Merge(bare)).await?;
    wait::until(LIMIT, "the label", || async {
        let labels = services.get("train").await?.labels().clone();
        Ok((labels.get(LABEL).map(String::as_str) == Some("train")).then_some(()))
    })
    .await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn a_service_that_is_not_headless_is_named_and_holds_nothing_else_up() -> Result<()> {
    let fixture = Fixture::start().await?;
    service(&fixture, "train", json!({"ports": [{"port": 80}]})).await?;
    fixture.create(in_place("train", 1, 1)).await?;
    let pods = fixture.pods("train", 1, "0").await?;
    let note = told(&fixture, "ServiceNameTaken", "default/train").await?;
    let wanted = "Service default/train exists, and is not headless: delete it, or set another spec.network.subdomain";
    assert_eq!(note, wanted);
    let mut history = fixture.history("train").await?;
    fixture.report(&pods[0], "1").await?;
    while crate::fixture::next(&mut history).await?.status.is_none_or(|status| status.synced_epoch < 1) {}

    let services: Api<Service> = Api::default_namespaced(fixture.client.clone());
    services.delete("train", &DeleteParams::default()).await?;
    wait::until(LIMIT, "the own Service", || async {
        let found = services.get_opt("train").await?.is_some_and(|found| found.labels().contains_key(LABEL));
        Ok(found.then_some(()))
    })
    .await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn a_job_that_cannot_be_resumed_is_named_and_the_others_go_on() -> Result<()> {
    let fixture = Fixture::start().await?;
    let mut jobset = in_place("train", 1, 1);
    jobset["spec"]["failurePolicy"] = json!({"maxRestarts": 1});
    jobset["spec"]["suspend"] = json!(true);
    let group = jobset["spec"]["replicatedJobs"][0].clone();
    let mut other = group.clone();
    other["name"] = json!("others");
    jobset["spec"]["replicatedJobs"] = json!([group, other]);
    fixture.create(jobset.clone()).await?;
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::default_namespaced(fixture.client.clone());
    wait::until(LIMIT, "both suspended Jobs", || async {
        Ok((jobs.list(&ListParams::default()).await?.items.len() == 2).then_some(()))
    })
    .await?;

    let container = "/spec/replicatedJobs/0/template/spec/template/spec/containers/0";
    jobset.pointer_mut(container).expect("a container")["resources"] =
        json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}});
    jobset.pointer_mut("/spec/replicatedJobs/1/template/spec/template/spec").expect("a Pod")["nodeSelector"] =
        json!({"flavor": "b"});
    let edit = json!({"spec": {"suspend": false, "replicatedJobs": jobset["spec"]["replicatedJobs"]}});
    fixture.jobsets().patch("train", &PatchParams::default(), &Patch::Merge(edit)).await?;
    let note = told(&fixture, "Refused", "train-workers-0").await?;
    assert!(note.starts_with("cannot change Job default/train-workers-0: "), "{note}");
    assert!(note.contains("must be less than or equal to cpu limit"), "{note}");
    let resumed = fixture.pods("train", 1, "0").await?;
    let selector = resumed[0].spec.as_ref().and_then(|spec| spec.node_selector.clone()).unwrap_or_default();
    assert_eq!(selector.get("flavor").map(String::as_str), Some("b"));
    assert_eq!(resumed[0].labels()["jobset.sigs.k8s.io/replicatedjob-name"], "others");

    // The edit that mends it is tried at once.
    jobset.pointer_mut(container).expect("a container")["resources"] = json!({"requests": {"cpu": "1"}});
    let edit = json!({"spec": {"replicatedJobs": jobset["spec"]["replicatedJobs"]}});
    fixture.jobsets().patch("train", &PatchParams::default(), &Patch::Merge(edit)).await?;
    fixture.pods("train", 2, "0").await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn a_claim_of_somebody_else_is_named_and_one_of_nobody_is_used() -> Result<()> {
    let fixture = Fixture::start().await?;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(fixture.client.clone());
    let other = service(&fixture, "somebody", json!({"clusterIP": "None"})).await?;
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
    fixture.create(jobset).await?;
    let note = told(&fixture, "ClaimTaken", "taken-train").await?;
    assert!(note.contains("controlled by Service somebody"), "{note}");
    fixture.pods("train", 1, "0").await?;
    assert!(claims.get("mine-train").await?.labels().is_empty(), "it is left alone");
    fixture.plane.stop().await
}
