//! Failed Pods that the controller releases, so that their successors come at once, and the policy that keeps it from any other
//! change of a Pod.

use anyhow::{Context, Result};
use http::Request;
use jobset_api::conditions::CHILD_REFUSED;
use jobset_harness::install::kubectl;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::agents::refusal;
use crate::fixture::{Fixture, LIMIT, Space, in_place};
use crate::program::NAMESPACE;

const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const HELD: &str = "example.com/held";
/// The Job controller's own count of the failed Pods of an index, by which it delays the successor.
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// What a refusal by the policy begins with.
const DENIED: &str = "ValidatingAdmissionPolicy 'jobset-controller' with binding 'jobset-controller' denied request: ";

/// The first worker of a group of two, which runs in epoch 1, has failed.
async fn fails(fixture: &Fixture) -> Result<Pod> {
    fixture.create(in_place("train", 2, 3)).await?;
    let pods = fixture.pods("train", 2, "0").await?;
    for pod in &pods {
        fixture.report(pod, "1").await?;
    }
    is_in(fixture, "epoch 1 to begin", 1, 0).await?;
    for pod in &pods {
        fixture.run(pod).await?;
    }
    fixture.fail(&pods[0], 1).await?;
    is_in(fixture, "epoch 1 to be over", 1, 1).await?;
    Ok(pods[0].clone())
}

async fn is_in(fixture: &Fixture, what: &str, synced: i32, deprecated: i32) -> Result<()> {
    wait::until_met(LIMIT, what, || async {
        let status = fixture.jobsets().get("train").await?.status.unwrap_or_default();
        let epochs = (status.synced_epoch, status.deprecated_epoch);
        Ok(if epochs == (synced, deprecated) { Check::Met(()) } else { Check::Unmet(format!("{epochs:?}")) })
    })
    .await
}

async fn successor(fixture: &Fixture, failed: &Pod) -> Result<Pod> {
    let index = "batch.kubernetes.io/job-completion-index";
    wait::until(LIMIT, format!("a successor of {}", failed.name_any()), || async {
        let pods = fixture.all_pods().list(&kube::api::ListParams::default()).await?.items;
        let follows =
            |pod: &Pod| pod.uid() != failed.uid() && pod.annotations().get(index) == failed.annotations().get(index);
        Ok(pods.into_iter().find(follows))
    })
    .await
}

#[tokio::test]
async fn released_failed_pod_has_successor_without_back_off() -> Result<()> {
    let fixture = Fixture::start().await?;
    let failed = fails(&fixture).await?;
    let successor = successor(&fixture, &failed).await?;
    assert_eq!(successor.annotations().get(INDEX_FAILURES).map(String::as_str), Some("0"));
    let released = r#"jobset_pods_released_total{namespace="default"}"#;
    fixture.controller.has_metric(released, Some(1.0)).await?;
    let failed = fixture.all_pods().get(&failed.name_any()).await?;
    assert!(!failed.finalizers().iter().any(|it| it == TRACKING), "{:?}", failed.finalizers());
    fixture.plane.stop().await
}

#[tokio::test]
async fn missing_patch_permission_is_named_and_restart_goes_on() -> Result<()> {
    let fixture = Fixture::start().await?;
    let rules = kubectl(&fixture.plane, &["get", "clusterrole", "jobset-controller", "-o", "json"]).await?;
    let mut role: Value = serde_json::from_slice(&rules.stdout)?;
    let rules = role["rules"].as_array_mut().context("no rules")?;
    let pods = rules.iter_mut().find(|rule| rule["resources"] == json!(["pods"])).context("no rule for Pods")?;
    pods["verbs"] = json!(["get", "list", "watch", "delete"]);
    let patch = json!({"rules": role["rules"]}).to_string();
    kubectl(&fixture.plane, &["patch", "clusterrole", "jobset-controller", "--type=merge", "-p", &patch]).await?;
    let failed = fails(&fixture).await?;
    let condition = fixture.condition("train", CHILD_REFUSED, "True").await?;
    let begin = "cannot remove the finalizer batch.kubernetes.io/job-tracking from failed Pods, for which the controller needs \
                 the right to patch Pods.";
    assert!(condition.message.starts_with(begin), "{}", condition.message);
    assert!(condition.message.contains("cannot patch resource \"pods\""), "{}", condition.message);
    assert!(!condition.message.contains(&failed.name_any()), "it holds for all: {}", condition.message);
    // The Job controller replaces it all the same.
    let successor = successor(&fixture, &failed).await?;
    assert_eq!(successor.annotations().get(INDEX_FAILURES).map(String::as_str), Some("1"));
    fixture.plane.stop().await
}

/// A client with the token of the controller.
async fn thief(space: &Space) -> Result<Client> {
    let accounts: Api<ServiceAccount> = Api::namespaced(space.client.clone(), NAMESPACE);
    let issued =
        accounts.create_token_request("jobset-controller", &PostParams::default(), &TokenRequest::default()).await?;
    let token = issued.status.and_then(|status| status.token).context("no token was issued")?;
    space.client_with(&token)
}

/// A Job that the Job controller leaves alone.
async fn unmanaged_job(space: &Space) -> Result<Value> {
    let job = json!({
        "metadata": {"name": "train-w-0"},
        "spec": {"managedBy": "example.com/test", "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "worker", "image": "none"}]}}},
    });
    let job = space.jobs().create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "name": job.name_any(), "uid": job.uid(), "controller": true}))
}

/// A Pod of that Job, with two finalizers.
async fn held_pod(space: &Space, owner: &Value, name: &str, labels: Value) -> Result<Pod> {
    let pod = json!({
        "metadata": {"name": name, "labels": labels, "finalizers": [HELD, TRACKING], "ownerReferences": [owner]},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "none"}]},
    });
    Ok(space.all_pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?)
}

async fn patch(client: &Client, pod: &Pod, query: &str, patch: &Value) -> kube::Result<Value> {
    let namespace = pod.namespace().unwrap_or_default();
    let uri = format!("/api/v1/namespaces/{namespace}/pods/{}{query}", pod.name_any());
    let request = Request::patch(uri).header("content-type", "application/strategic-merge-patch+json");
    client.request(request.body(patch.to_string().into_bytes()).map_err(kube::Error::HttpError)?).await
}

/// The release of a Pod, as the controller asks for it.
fn release(pod: &Pod) -> Value {
    json!({"metadata": {"uid": pod.uid(), "$deleteFromPrimitiveList/finalizers": [TRACKING]}})
}

/// The same, and something else.
fn release_and(pod: &Pod, more: &Value) -> Value {
    let mut patch = release(pod);
    json_patch::merge(&mut patch, more);
    patch
}

fn assert_denied(what: &str, answer: kube::Result<Value>, reason: &str) {
    let status = refusal(answer);
    let (_, said) = status.message.split_once(DENIED).unwrap_or_default();
    assert!(said.contains(reason) && status.code == 403, "{what}: {status:?}, not {reason:?}");
}

#[tokio::test]
async fn stolen_controller_releases_only_failed_pods_of_jobsets() -> Result<()> {
    let space = Space::new("stolen-controllers").await?;
    let (thief, owner) = (thief(&space).await?, unmanaged_job(&space).await?);
    let of_jobset = || json!({"jobset.sigs.k8s.io/jobset-name": "train"});
    let failed = held_pod(&space, &owner, "failed", of_jobset()).await?;
    let open = held_pod(&space, &owner, "open", of_jobset()).await?;
    let foreign = held_pod(&space, &owner, "foreign", json!({"app": "other"})).await?;
    space.fail(&failed, 1).await?;
    space.run(&open).await?;
    space.fail(&foreign, 1).await?;
    let label = json!({"metadata": {"labels": {"more": "b"}}});
    wait::until_met(LIMIT, "the policy to confine the controller", || async {
        Ok(match patch(&thief, &failed, "?dryRun=All", &label).await {
            Err(kube::Error::Api(status)) if status.message.contains(DENIED) => Check::Met(()),
            other => Check::Unmet(format!("{other:?}")),
        })
    })
    .await?;

    let annotation = json!({"metadata": {"annotations": {"jobset.sigs.k8s.io/epoch": "7"}}});
    let image = json!({"spec": {"containers": [{"name": "worker", "image": "other"}]}});
    let owners =
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a"}]}});
    let other = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [HELD]}});
    let both = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [HELD, TRACKING]}});
    let one_more = json!({"metadata": {"finalizers": ["example.com/more"]}});
    let alone = "finalizer batch.kubernetes.io/job-tracking of Pods alone, and add none";
    for (what, pod, change, reason) in [
        ("a label", &failed, label.clone(), "not change metadata.labels"),
        ("a label beside a release", &failed, release_and(&failed, &label), "not change metadata.labels"),
        ("an annotation", &failed, release_and(&failed, &annotation), "not change metadata.annotations"),
        ("an image", &failed, release_and(&failed, &image), "not change spec"),
        ("an owner", &failed, release_and(&failed, &owners), "not change metadata.ownerReferences"),
        ("another finalizer", &failed, other, alone),
        ("all finalizers", &failed, both, alone),
        ("one more finalizer", &failed, one_more, alone),
        ("nothing", &failed, json!({}), alone),
        ("the release of a Pod that runs", &open, release(&open), "of failed Pods alone"),
        ("the release of another's Pod", &foreign, release(&foreign), "may change Pods of JobSets alone"),
    ] {
        assert_denied(what, patch(&thief, pod, "", &change).await, reason);
    }
    let error = refusal(patch(&thief, &failed, "", &release(&open)).await);
    assert!([409, 422].contains(&error.code), "the UID of another Pod: {error:?}");
    // Nobody else is confined.
    patch(&space.client, &open, "", &label).await?;

    patch(&thief, &failed, "", &release(&failed)).await?;
    assert_eq!(space.all_pods().get("failed").await?.finalizers(), [HELD]);
    Ok(())
}
