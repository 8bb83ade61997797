//! Reviews of Pods, as the server answers them: without a cluster, of which a leader needs nothing.

use axum::body::Body;
use clap::Parser as _;
use http_body_util::BodyExt as _;
use hyper::{Request, StatusCode};
use jobset_webhook::args::Args;
use jobset_webhook::limits::guard;
use jobset_webhook::serve::POD_PATH;
use k8s_openapi::ByteString;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::server::{UID, pods_without_cluster, review};

async fn answer(content_type: &str, body: String) -> (StatusCode, String) {
    let request = Request::post(POD_PATH).header("content-type", content_type).body(Body::from(body)).unwrap();
    let limits = Args::parse_from(["jobset-webhook", "--namespace=ns"]).limits;
    let response = guard(pods_without_cluster(), &limits, 10).oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn reviewed(operation: &str, sub_resource: Option<&str>, pod: &Value) -> Value {
    let mut review = review(pod);
    (review["request"]["operation"], review["request"]["subResource"]) = (json!(operation), json!(sub_resource));
    let (status, text) = answer("application/json", review.to_string()).await;
    assert_eq!(status, 200, "{text}");
    let review: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&review["apiVersion"], &review["kind"]), (&json!("admission.k8s.io/v1"), &json!("AdmissionReview")));
    assert_eq!(review["response"]["uid"], UID);
    review["response"].clone()
}

fn pod(index: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {
        "generateName": "train-w-0-", "labels": {
            "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/job-key": "k" },
        "annotations": { "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack",
            "batch.kubernetes.io/job-completion-index": index },
        "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "train-w-0", "uid": "u",
            "controller": true }],
    }, "spec": { "containers": [{ "name": "w", "from-the-future": 1 }], "from-the-future": { "a": [2] } } })
}

#[tokio::test]
async fn leader_is_patched_once_and_keeps_unknown_fields() {
    let response = reviewed("CREATE", None, &pod("0")).await;
    assert_eq!((&response["allowed"], &response["patchType"]), (&json!(true), &json!("JSONPatch")));
    let patch: ByteString = serde_json::from_value(response["patch"].clone()).expect("base64");
    let mut placed = pod("0");
    json_patch::patch(&mut placed, &serde_json::from_slice::<json_patch::Patch>(&patch.0).unwrap()).unwrap();
    assert!(placed["spec"]["affinity"]["podAntiAffinity"].is_object());
    assert_eq!(placed["spec"]["from-the-future"], pod("0")["spec"]["from-the-future"]);
    assert_eq!(placed["spec"]["containers"], pod("0")["spec"]["containers"]);
    let again = reviewed("CREATE", None, &placed).await;
    assert_eq!(again, json!({ "uid": response["uid"], "allowed": true }), "nothing is left to do");
}

#[rstest]
#[case::nothing(&[("/spec/affinity", Value::Null)])]
#[case::empty(&[("/spec/affinity", json!({}))])]
#[case::halves(&[("/spec/affinity", json!({ "podAffinity": null, "podAntiAffinity": {} }))])]
#[case::lists(&[("/spec/affinity", json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [] },
    "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": null, "from-the-future": 1 } }))])]
#[tokio::test]
async fn a_patch_applies_to_whatever_affinity_was_sent(#[case] sent: &[(&str, Value)]) {
    let mut pod = pod("0");
    for (pointer, value) in sent {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    let response = reviewed("CREATE", None, &pod).await;
    let patch: ByteString = serde_json::from_value(response["patch"].clone()).expect("base64");
    let future = pod.pointer("/spec/affinity/podAntiAffinity/from-the-future").cloned();
    json_patch::patch(&mut pod, &serde_json::from_slice::<json_patch::Patch>(&patch.0).unwrap()).unwrap();
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = &pod["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(terms.as_array().unwrap().len(), 1, "{pod}");
    }
    assert_eq!(pod.pointer("/spec/affinity/podAntiAffinity/from-the-future").cloned(), future);
}

#[rstest]
#[case::update("UPDATE", None, pod("0"))]
#[case::delete("DELETE", None, Value::Null)]
#[case::binding("CREATE", Some("binding"), pod("1"))]
#[case::not_a_pod("CREATE", None, json!({ "metadata": { "name": "a" }, "spec": { "containers": 3 } }))]
#[tokio::test]
async fn what_is_no_new_pod_is_let_through(
    #[case] operation: &str,
    #[case] sub_resource: Option<&str>,
    #[case] object: Value,
) {
    let through = json!({ "uid": UID, "allowed": true });
    assert_eq!(reviewed(operation, sub_resource, &object).await, through);
}

#[tokio::test]
async fn follower_without_lookup_is_told_to_retry() {
    let response = reviewed("CREATE", None, &pod("1")).await;
    assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(503)));
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("cannot find the leader of Job train-w-0, try again: reading leaders"), "{message}");
    assert_eq!(response.get("patch"), None);
}

#[rstest]
#[case::text("text/plain", "{}".to_owned(), 415)]
#[case::no_json("application/json", "{".to_owned(), 400)]
#[case::no_review("application/json", json!({ "apiVersion": "v1", "kind": "Pod" }).to_string(), 400)]
#[case::no_request("application/json", json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview" }).to_string(), 400)]
#[case::too_large("application/json", " ".repeat(9 << 20), 413)]
#[tokio::test]
async fn what_is_no_review_gets_a_clear_answer(#[case] content_type: &str, #[case] body: String, #[case] code: u16) {
    let (status, text) = answer(content_type, body).await;
    assert_eq!(status.as_u16(), code, "{text}");
    assert!(!text.trim().is_empty());
}
