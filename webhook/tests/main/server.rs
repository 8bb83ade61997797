//! The server over real TLS on loopback, without a cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use clap::Parser as _;
use hyper::Method;
use jobset_api::JobSet;
use jobset_api::gates::Gates;
use jobset_certs::Resolver;
use jobset_webhook::args::Args;
use jobset_webhook::connections::{Drain, serve};
use jobset_webhook::jobset::Terms;
use jobset_webhook::limits::guard;
use jobset_webhook::nodes::known::KnownJobSets;
use jobset_webhook::pod::lookup::Lookup;
use jobset_webhook::serve::{MUTATE_PATH, VALIDATE_PATH, pod_router, router};
use jobset_webhook::tls;
use k8s_openapi::ByteString;
use rstest::rstest;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Http, JSON, authority, certificates, request};

pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// Of every review.
pub(crate) const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) address: SocketAddr,
    draining: CancellationToken,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::of(router(Terms::default()), &[]).await
    }

    pub(crate) async fn with(flags: &[&str]) -> Self {
        Self::of(router(Terms::default()), flags).await
    }

    pub(crate) async fn of(router: Router, flags: &[&str]) -> Self {
        let args = Args::parse_from(["jobset-webhook", "--namespace=ns"].iter().chain(flags));
        let certificates = certificates();
        let resolver = Arc::new(Resolver::default());
        resolver.serve(certificates.serving.clone().unwrap().certified);
        let tls = tls::config(resolver, args.serving.tls_min_version).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let (router, limits) = (guard(router, &args.limits, args.limits.max_concurrent_reviews), args.limits);
        let drain = Drain { begun: CancellationToken::new(), closed: stop.clone(), timeout: LIMIT };
        let draining = drain.begun.clone();
        let task = tokio::spawn(async move { serve(listener, Some(tls), router, &limits, drain).await });
        Self { client: Client::new(address, authority(&certificates)), address, draining, stop, task }
    }

    /// The drain delay begins.
    pub(crate) fn drain(&self) {
        self.draining.cancel();
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        timeout(LIMIT, self.task).await.expect("the server ends").unwrap();
    }

    /// A review is answered as ever, and the server ends as ever.
    pub(crate) async fn stop_unharmed(self) {
        self.is_unharmed().await;
        self.stop().await;
    }

    /// A review is answered as ever.
    pub(crate) async fn is_unharmed(&self) {
        let response = self.client.review(VALIDATE_PATH, &review(&with("/spec", json!({})))).await;
        assert_eq!(response["allowed"], true);
    }
}

/// A JobSet that restarts in place, with an agent and nothing else set.
pub(crate) fn jobset() -> Value {
    json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "train", "namespace": "ml" }, "spec": {
        "failurePolicy": { "restartStrategy": "InPlaceRestart", "maxRestarts": 3 },
        "replicatedJobs": [{ "name": "workers", "template": { "spec": { "template": { "spec": {
            "initContainers": [{ "name": "agent", "image": "agent", "restartPolicy": "Always", "restartPolicyRules": [
                { "action": "RestartPod", "exitCodes": { "operator": "In", "values": [81] } }],
                "startupProbe": { "httpGet": { "path": "/barrier-is-lifted", "port": 8080 }, "failureThreshold": i32::MAX } }],
            "containers": [{ "name": "worker", "image": "worker", "from-the-future": true, "terminationMessagePolicy": "File", "restartPolicy": "Never", "restartPolicyRules": [
                { "action": "RestartPod", "exitCodes": { "operator": "NotIn", "values": [0] } }] }],
        } } } } }],
    } })
}

pub(crate) fn review(object: &Value) -> Value {
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": UID, "operation": "CREATE", "name": "train", "namespace": "ml",
        "kind": { "group": "jobset.x-k8s.io", "version": "v1alpha2", "kind": "JobSet" },
        "resource": { "group": "jobset.x-k8s.io", "version": "v1alpha2", "resource": "jobsets" },
        "userInfo": { "username": "admin" }, "object": object, "oldObject": null, "dryRun": false,
        "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" } } })
}

/// The webhooks of Pods, which reach no API server.
pub(crate) fn pods_without_cluster() -> Router {
    let nobody = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    pod_router(Lookup::new(nobody.clone(), Duration::ZERO), KnownJobSets::new(nobody))
}

/// The review with the defaults of its object.
pub(crate) fn complete(review: &Value) -> Value {
    let mut review = review.clone();
    let jobset: jobset_api::JobSet = serde_json::from_value(review["request"]["object"].clone()).unwrap();
    let spec = jobset_api::defaults::apply(&jobset.spec);
    review["request"]["object"] = json!(jobset_api::JobSet { spec, ..jobset });
    review
}

pub(crate) fn with(pointer: &str, value: Value) -> Value {
    let mut object = jobset();
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

#[rstest]
#[tokio::test]
async fn defaults_are_patched_over_every_tls_and_http(
    #[values(&TLS12, &TLS13)] tls: &'static SupportedProtocolVersion,
    #[values(Http::One, Http::Two)] http: Http,
) {
    let server = Server::start().await;
    let client = Client { tls, http, ..server.client.clone() };
    let response = client.review(MUTATE_PATH, &review(&jobset())).await;
    assert_eq!(response["uid"], UID);
    assert_eq!((&response["allowed"], &response["patchType"]), (&json!(true), &json!("JSONPatch")));
    let patch: ByteString = serde_json::from_value(response["patch"].clone()).expect("base64");
    let mut stored = jobset();
    json_patch::patch(&mut stored, &serde_json::from_slice::<json_patch::Patch>(&patch.0).unwrap()).unwrap();
    assert_eq!(stored.pointer("/spec/replicatedJobs/0/template/spec/backoffLimit"), Some(&json!(i32::MAX)));
    assert_eq!(
        stored.pointer("/spec/replicatedJobs/0/template/spec/template/spec/containers/0/from-the-future"),
        Some(&json!(true))
    );
    let accepted = client.review(VALIDATE_PATH, &review(&stored)).await;
    assert_eq!(accepted, json!({ "uid": UID, "allowed": true }));
    let again = client.review(MUTATE_PATH, &review(&stored)).await;
    assert_eq!(again.get("patch"), None, "nothing is left to default");
    server.stop().await;
}

#[tokio::test]
async fn what_may_not_be_meant_is_admitted_with_a_warning() {
    let server = Server::start().await;
    let restart = "/spec/replicatedJobs/0/template/spec/template/spec/containers/0/restartPolicyRules/0/action";
    let object = review(&with(restart, json!("Restart")));
    let defaulted = server.client.review(MUTATE_PATH, &object).await;
    assert_eq!(defaulted.get("warnings"), None, "once is enough");
    let response = server.client.review(VALIDATE_PATH, &complete(&object)).await;
    assert_eq!(response["allowed"], true, "{response}");
    let warning = response["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("containers[0].restartPolicyRules: exit code 1 restarts this container alone"),
        "{warning}"
    );
    server.stop().await;
}

#[tokio::test]
async fn feature_switched_off_is_rejected_by_name() {
    let server = Server::of(
        router(Terms { gates: Gates { in_place_restart: false, ..Gates::default() }, ..Terms::default() }),
        &[],
    )
    .await;
    let response = server.client.review(VALIDATE_PATH, &review(&jobset())).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("while the feature gate InPlaceRestart is off"), "{message}");
    server.stop().await;
}

#[tokio::test]
async fn invalid_jobset_is_rejected_as_by_api_server() {
    let server = Server::start().await;
    let bad = with(
        "/spec/replicatedJobs/0/template/spec",
        json!({ "backoffLimit": 6, "podReplacementPolicy": "Failed", "completionMode": "Indexed", "template": {
            "spec": { "restartPolicy": "Never", "containers": [] } } }),
    );
    let response = server.client.review(VALIDATE_PATH, &review(&bad)).await;
    assert_eq!((&response["uid"], &response["allowed"]), (&json!(UID), &json!(false)));
    let status = &response["status"];
    assert_eq!(
        (&status["code"], &status["reason"], &status["status"]),
        (&json!(422), &json!("Invalid"), &json!("Failure"))
    );
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with(r#"JobSet.jobset.x-k8s.io "train" is invalid: [spec.replicatedJobs[0].template.spec."#),
        "{message}"
    );
    assert!(message.contains("backoffLimit: Invalid value: 6: must be 2147483647"), "{message}");
    let details = &status["details"];
    assert_eq!(
        (&details["name"], &details["group"], &details["kind"]),
        (&json!("train"), &json!("jobset.x-k8s.io"), &json!("JobSet"))
    );
    let causes: Vec<_> = details["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["field"].as_str().unwrap(), it["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(
        causes,
        [
            ("spec.replicatedJobs[0].template.spec.template.spec.initContainers", "FieldValueRequired"),
            ("spec.replicatedJobs[0].template.spec.backoffLimit", "FieldValueInvalid"),
            ("spec.replicatedJobs[0].template.spec.template.spec.containers", "FieldValueRequired"),
        ]
    );
    server.stop().await;
}

#[rstest]
#[case::replicas(with("/spec/replicatedJobs/0", json!({ "name": "w", "replicas": "three", "template": {} })), "spec.replicatedJobs[0].replicas", "three")]
#[case::strategy(with("/spec/failurePolicy/restartStrategy", json!("Magic")), "spec.failurePolicy.restartStrategy", "Magic")]
#[case::backoff_limit(with("/spec/replicatedJobs/0/template/spec", json!({ "backoffLimit": 21_474_836_470_i64 })), "spec.replicatedJobs[0].template.spec.backoffLimit", "21474836470")]
#[case::no_spec(with("/spec", Value::Null), "spec", "null")]
#[tokio::test]
async fn unreadable_object_is_left_to_schema_then_rejected(
    #[case] object: Value,
    #[case] field: &str,
    #[case] found: &str,
) {
    let server = Server::start().await;
    let mutated = server.client.review(MUTATE_PATH, &review(&object)).await;
    assert_eq!(mutated, json!({ "uid": UID, "allowed": true }));
    let response = server.client.review(VALIDATE_PATH, &review(&object)).await;
    assert_eq!(response["status"]["details"]["causes"][0]["field"], field, "{response}");
    assert!(response["status"]["message"].as_str().unwrap().contains(found), "{response}");
    let mut deleting = review(&object);
    deleting["request"]["operation"] = json!("UPDATE");
    deleting["request"]["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let response = server.client.review(VALIDATE_PATH, &deleting).await;
    assert_eq!(response["allowed"], true, "{response}");
    server.stop().await;
}

#[tokio::test]
async fn an_old_object_that_cannot_be_read_can_be_replaced() {
    let server = Server::start().await;
    let mut update = review(&with("/spec", json!({})));
    update["request"]["operation"] = json!("UPDATE");
    update["request"]["oldObject"] = with("/spec", json!({ "replicatedJobs": 3 }));
    let response = server.client.review(VALIDATE_PATH, &update).await;
    assert_eq!(response["allowed"], true, "{response}");
    server.stop().await;
}

/// Nearly all that etcd stores of one object, in entries that take nearly as much memory as a JobSet may take.
#[tokio::test]
async fn what_is_admitted_can_be_suspended_however_large_it_is() {
    let server = Server::start().await;
    let value = "1".repeat(100);
    let env: Vec<_> = (0..110).map(|number| json!({ "name": format!("VAR_{number}"), "value": value })).collect();
    let job = |number: usize| {
        let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "w", "image": "w", "env": env }] });
        let job = json!({ "completionMode": "Indexed", "template": { "spec": pod } });
        json!({ "name": format!("r{number}"), "replicas": 1, "template": { "spec": job } })
    };
    let mut large = with("/spec", json!({ "replicatedJobs": (0..100).map(job).collect::<Vec<_>>() }));
    let response = server.client.review(VALIDATE_PATH, &review(&large)).await;
    assert_eq!(response["allowed"], true, "{response}");
    let mut update = review(&large);
    assert!(large.to_string().len() > 1_400_000);
    large["spec"]["suspend"] = json!(true);
    update["request"]["operation"] = json!("UPDATE");
    update["request"]["oldObject"] = std::mem::replace(&mut update["request"]["object"], large);
    for path in [MUTATE_PATH, VALIDATE_PATH] {
        let response = server.client.review(path, &update).await;
        assert_eq!(response["allowed"], true, "{response}");
    }
    server.stop().await;
}

#[tokio::test]
async fn malformed_requests_are_explained_and_harm_nothing() {
    let server = Server::start().await;
    let client = &server.client;
    let mut other_version = review(&jobset());
    other_version["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let no_request = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview" });
    let no_uid = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {} });
    let deep = "[".repeat(100_000);
    let cases: [(&str, &str, String, u16, &str); 10] = [
        (
            MUTATE_PATH,
            "text/plain",
            review(&jobset()).to_string(),
            415,
            "Content-Type must be application/json, not \"text/plain\"",
        ),
        (VALIDATE_PATH, "", review(&jobset()).to_string(), 415, "Content-Type must be application/json"),
        (VALIDATE_PATH, JSON, String::new(), 400, "not an AdmissionReview"),
        (VALIDATE_PATH, JSON, "{".to_owned(), 400, "not an AdmissionReview"),
        (MUTATE_PATH, JSON, "null".to_owned(), 400, "not an AdmissionReview"),
        (MUTATE_PATH, JSON, deep, 400, "not an AdmissionReview"),
        (
            VALIDATE_PATH,
            JSON,
            other_version.to_string(),
            400,
            "this service understands AdmissionReview of admission.k8s.io/v1",
        ),
        (MUTATE_PATH, JSON, no_request.to_string(), 400, "has no request"),
        (MUTATE_PATH, JSON, no_uid.to_string(), 400, "missing field `uid`"),
        (VALIDATE_PATH, JSON, " ".repeat((8 << 20) + 1), 413, "must not be larger than 8388608 bytes"),
    ];
    for (path, content_type, body, status, text) in cases {
        let answer = client.post(path, content_type, body).await;
        assert_eq!(answer.status, status, "{text}: {}", answer.text());
        assert!(answer.text().contains(text), "{:?}", answer.text());
        assert_eq!(answer.text().lines().count(), 1);
    }
    let nowhere = client.post("/elsewhere", JSON, "").await;
    assert_eq!((nowhere.status.as_u16(), nowhere.text()), (404, "there is no webhook at /elsewhere\n"));
    let get = client.send(request(Method::GET, MUTATE_PATH, JSON, "")).await;
    assert_eq!((get.status.as_u16(), get.text()), (405, "the method must be POST, not GET\n"));
    let charset = client
        .post(VALIDATE_PATH, "application/json; charset=utf-8", review(&with("/spec", json!({}))).to_string())
        .await;
    assert_eq!(charset.json()["response"]["allowed"], true);
    server.stop().await;
}

#[tokio::test]
async fn drain_finishes_requests_and_refuses_new_connections() {
    let server = Server::start().await;
    let body = review(&with("/spec", json!({}))).to_string();
    let client = Client { http: Http::One, ..server.client.clone() };
    let mut stream = client.connect().await.unwrap();
    let (first, second) = body.split_at(body.len() / 2);
    let head = format!(
        "POST {VALIDATE_PATH} HTTP/1.1\r\nhost: h\r\ncontent-type: {JSON}\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server asks for the body: it has begun to answer.
    let mut interim = [0; 25];
    timeout(LIMIT, stream.read_exact(&mut interim)).await.unwrap().unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(first.as_bytes()).await.unwrap();
    server.stop.cancel();
    let refused = async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, refused).await.expect("new connections are refused");
    assert!(!server.task.is_finished(), "a request is in flight");
    stream.write_all(second.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(LIMIT, stream.read_to_string(&mut answer)).await.expect("the connection is closed").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains(r#""allowed":true"#), "{answer}");
    timeout(LIMIT, server.task).await.expect("the server ends").unwrap();
}

#[test]
fn the_manifest_of_these_tests_is_a_jobset() {
    assert!(serde_json::from_value::<JobSet>(jobset()).is_ok());
}
