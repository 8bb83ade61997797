//! How a JobSet is read for Pods that may avoid nodes: once for many of them, within a time limit, and never in the way of others.

use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use clap::Parser as _;
use futures::future::join_all;
use http_body_util::BodyExt as _;
use hyper::Request;
use jobset_webhook::args::Args;
use jobset_webhook::jobset::Terms;
use jobset_webhook::limits::guard;
use jobset_webhook::metrics::{Metrics, measure};
use jobset_webhook::nodes::JobSetKey;
use jobset_webhook::nodes::known::KnownJobSets;
use jobset_webhook::pod::lookup::Lookup;
use jobset_webhook::serve::{NODES_PATH, VALIDATE_PATH, pod_router, router};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Config, ResourceExt as _};
use prometheus::{Registry, TextEncoder};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use crate::client::JSON;
use crate::exclusive::Space;
use crate::server::{LIMIT, jobset, pods_without_cluster, review};

fn key(namespace: &str, name: &str) -> JobSetKey {
    JobSetKey { namespace: namespace.into(), name: name.into() }
}

/// The review of a Pod that may avoid nodes.
fn pod() -> Value {
    review(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "generateName": "train-w-0-0-", "labels": {
        "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/jobset-uid": "u1" } },
        "spec": { "containers": [{ "name": "w", "from-the-future": 1 }] } }))
}

async fn asked(routes: &Router, path: &str, review: &Value) -> Result<Value> {
    let request = Request::post(path).header("content-type", JSON).body(Body::from(review.to_string()))?;
    let answer = routes.clone().oneshot(request).await?;
    let body = answer.into_body().collect().await?.to_bytes();
    serde_json::from_slice(&body).with_context(|| String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn many_pods_at_once_cost_one_request() -> Result<()> {
    let space = Space::new("avoid-many").await?;
    let jobset = space.avoiding("train", json!({}), &["bad"]).await?;
    let (client, requests) = space.plane.counting_client()?;
    let known = KnownJobSets::new(client);
    let of_train = key(space.namespace, "train");
    assert!(known.now(&of_train).is_none());
    let found = join_all((0..500).map(|_| known.read(&of_train))).await;
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    for found in found {
        let found = found?.context("there is a JobSet")?;
        let avoidance = found.avoidance(&jobset.uid().unwrap_or_default(), Timestamp::now());
        assert_eq!(avoidance.context("a node is avoided")?.nodes, ["bad"]);
    }
    // Another name is another JobSet.
    assert!(known.read(&key(space.namespace, "nobody")).await?.is_none());
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    Ok(())
}

#[tokio::test]
async fn silent_api_server_holds_up_neither_pod_nor_jobsets() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let client = Client::try_from(Config::new(format!("http://{}", silent.local_addr()?).parse()?))?;
    let pods = pod_router(Lookup::new(client.clone(), LIMIT), KnownJobSets::new(client));
    // There is one place to compute.
    let limits = Args::parse_from(["jobset-webhook", "--namespace=ns", "--max-concurrent-reviews=1"]).limits;
    let routes = guard(router(Terms::default()).merge(pods), &limits, 10);
    let waiting = tokio::spawn({
        let routes = routes.clone();
        async move { asked(&routes, NODES_PATH, &pod()).await }
    });
    // The Pod waits once somebody has connected for it.
    let _connection = tokio::time::timeout(LIMIT, silent.accept()).await??;
    let beside = asked(&routes, VALIDATE_PATH, &review(&jobset())).await?;
    assert!(beside["response"]["uid"].is_string() && !waiting.is_finished(), "{beside}");
    let answer = tokio::time::timeout(LIMIT, waiting).await???;
    assert_eq!((&answer["response"]["allowed"], answer["response"].get("patch")), (&json!(true), None));
    let warning = answer["response"]["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.ends_with("reading JobSet train: no answer in 800ms"), "{warning}");
    Ok(())
}

#[tokio::test]
async fn pod_without_decision_is_admitted_and_counted_as_error() -> Result<()> {
    let registry = Registry::new();
    let limits = Args::parse_from(["jobset-webhook", "--namespace=ns"]).limits;
    let routes = measure(guard(pods_without_cluster(), &limits, 10), Metrics::register(&registry)?);
    for _ in 0..2 {
        let answer = asked(&routes, NODES_PATH, &pod()).await?;
        assert_eq!((&answer["response"]["allowed"], answer["response"].get("patch")), (&json!(true), None));
        assert!(answer["response"]["warnings"][0].is_string(), "{answer}");
    }
    let text = TextEncoder::new().encode_to_string(&registry.gather())?;
    let errors = r#"jobset_webhook_requests_total{operation="CREATE",result="error",webhook="mpodnodes.kb.io"} 2"#;
    assert!(text.contains(errors), "{text}");
    Ok(())
}
