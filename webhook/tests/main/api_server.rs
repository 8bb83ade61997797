//! Registered with a real API server, which calls the service, and refuses and defaults by what it says.

use anyhow::Result;
use jobset_api::{Operator, StartupPolicyOrder};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::response::Status;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use crate::cluster::Plane;

/// A JobSet that restarts in place and leaves to defaults what it can.
pub(crate) fn good(name: &str) -> Value {
    json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": name, "namespace": "default" }, "spec": {
        "failurePolicy": { "restartStrategy": "InPlaceRestart", "maxRestarts": 3, "rules": [{ "action": "FailJobSet" }] },
        "replicatedJobs": [{ "name": "workers", "template": { "spec": { "parallelism": 2, "completions": 2, "template": { "spec": {
            "initContainers": [{ "name": "agent", "image": "agent", "restartPolicy": "Always", "restartPolicyRules": [
                { "action": "RestartPod", "exitCodes": { "operator": "In", "values": [81] } }],
                "startupProbe": { "httpGet": { "path": "/barrier-is-lifted", "port": 8080 } } }],
            "containers": [{ "name": "worker", "image": "worker" }],
        } } } } }],
    } })
}

fn with(name: &str, pointer: &str, value: Value) -> Value {
    let mut object = good(name);
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn api_server_rejects_and_defaults_as_service_says() -> Result<()> {
    let plane = Plane::start().await?;
    // Stored before there was admission, and broken ever since.
    let job = "/spec/replicatedJobs/0/template/spec";
    let mut old = with("old", &format!("{job}/backoffLimit"), json!(6));
    old["metadata"]["finalizers"] = json!(["example.com/hold"]);
    plane.create(&old).await?;
    let replica = plane.admission().await?;

    // `tables` has a case for each rule.
    let status = refusal(plane.create(&with("bad", &format!("{job}/backoffLimit"), json!(6))).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{status:?}");
    let (field, message) =
        ("spec.replicatedJobs[0].template.spec.backoffLimit", "Invalid value: 6: must be 2147483647 with");
    let begin = "admission webhook \"vjobset.kb.io\" denied the request: JobSet.jobset.x-k8s.io \"bad\" is invalid";
    assert!(status.message.starts_with(&format!("{begin}: {field}: {message}")), "{}", status.message);
    let causes = status.details.unwrap().causes;
    assert!(causes.len() == 1 && causes[0].field == field && causes[0].message.starts_with(message), "{causes:?}");

    let bare = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "bare"}});
    let status = refusal(plane.create(&bare).await);
    assert!(status.code == 422 && status.message.contains("spec: Required value"), "{}", status.message);

    let stored = plane.create(&good("good")).await?;
    let workers = &stored.spec.replicated_jobs[0];
    let job = &workers.template.spec;
    assert_eq!(workers.replicas, Some(1), "from the CRD");
    assert_eq!((job.backoff_limit, job.pod_replacement_policy.as_deref()), (Some(i32::MAX), Some("Failed")));
    assert_eq!(job.completion_mode.as_deref(), Some("Indexed"));
    assert_eq!(job.template.spec.as_ref().unwrap().restart_policy.as_deref(), Some("Never"));
    assert_eq!(stored.spec.success_policy.as_ref().unwrap().operator, Operator::All);
    assert_eq!(stored.spec.startup_policy.as_ref().unwrap().startup_policy_order, StartupPolicyOrder::AnyOrder);
    assert_eq!(stored.spec.failure_policy.as_ref().unwrap().rules[0].name.as_deref(), Some("failurePolicyRule0"));
    let network = stored.spec.network.as_ref().unwrap();
    assert_eq!((network.enable_dns_hostnames, network.publish_not_ready_addresses), (Some(true), Some(true)));
    assert_eq!(plane.jobsets().get("good").await?.spec, stored.spec);

    what_the_schema_refuses_is_left_to_it(&plane).await;

    // A broken specification from before can be labelled, suspended and deleted, but not broken any further.
    let jobsets = plane.jobsets();
    let patch = async |patch: Value| jobsets.patch("old", &PatchParams::default(), &Patch::Merge(patch)).await;
    patch(json!({ "metadata": { "labels": { "team": "a" } } })).await?;
    patch(json!({ "spec": { "suspend": true } })).await?;
    let status = refusal(patch(json!({ "spec": { "coordinator": { "replicatedJob": "nobody" } } })).await);
    let expected = "JobSet.jobset.x-k8s.io \"old\" is invalid: spec.coordinator.replicatedJob: Not found: \"nobody\"";
    assert!(status.message.contains(expected), "{}", status.message);
    jobsets.delete("old", &DeleteParams::default()).await?;
    patch(json!({ "metadata": { "finalizers": null } })).await?;
    let gone = await_condition(jobsets.clone(), "old", kube::runtime::conditions::is_deleted(""));
    tokio::time::timeout(crate::cluster::LIMIT, gone).await??;

    plane.end(replica).await
}

/// The schema names it better.
async fn what_the_schema_refuses_is_left_to_it(plane: &Plane) {
    let status = refusal(plane.create(&with("typed", "/spec/replicatedJobs/0/replicas", json!("three"))).await);
    assert!(
        status.message.contains("spec.replicatedJobs[0].replicas") && !status.message.contains("admission webhook"),
        "{}",
        status.message
    );

    // Lists in the place of objects, which are read as objects whose fields come in order.
    for place in [
        "/spec",
        "/spec/network",
        "/spec/failurePolicy",
        "/spec/failurePolicy/rules/0",
        "/spec/replicatedJobs/0/template",
    ] {
        let mut object = with("listed", "/spec/network", json!({}));
        *object.pointer_mut(place).unwrap() = json!([]);
        let status = refusal(plane.create(&object).await);
        let field = place[1..].replace("/0", "[0]").replace('/', ".");
        assert!(status.code == 422 && status.message.contains(&field), "{field}: {status:?}");
    }
}
