//! What `/metrics` says of reviews and of the certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use clap::Parser as _;
use hyper::{Request, StatusCode};
use jiff::Timestamp;
use jobset_harness::wait::{self, Check};
use jobset_webhook::args::Args;
use jobset_webhook::jobset::Terms;
use jobset_webhook::limits::guard;
use jobset_webhook::metrics::{Metrics, measure};
use jobset_webhook::serve::{MUTATE_PATH, POD_PATH, VALIDATE_PATH, router};
use kube::api::DeleteParams;
use prometheus::{Registry, TextEncoder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tower::ServiceExt as _;

use crate::api_server::good;
use crate::certificates::SECRET;
use crate::client::JSON;
use crate::cluster::{LIMIT, Plane, Replica};
use crate::server::{pods_without_cluster, review};

/// All that the service serves over HTTPS, without a cluster behind it.
fn routes(registry: &Registry) -> Router {
    let limits = Args::parse_from(["jobset-webhook", "--namespace=ns"]).limits;
    let pods = guard(pods_without_cluster(), &limits, 10);
    measure(guard(router(Terms::default()), &limits, 10).merge(pods), Metrics::register(registry).unwrap())
}

/// The series of a metric that have counted something, without its name.
fn counted(registry: &Registry, name: &str) -> Vec<String> {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    series.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect()
}

fn series(registry: &Registry) -> usize {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).count()
}

fn jobset(spec: &Value) -> Value {
    json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "a" }, "spec": spec })
}

fn asked(operation: &str, object: &Value) -> Request<Body> {
    let mut review = review(object);
    review["request"]["operation"] = json!(operation);
    sent("POST", VALIDATE_PATH, JSON, review.to_string())
}

fn sent(method: &str, path: &str, content_type: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder().method(method).uri(path).header("content-type", content_type).body(body.into()).unwrap()
}

#[tokio::test]
async fn reviews_are_counted_by_result_without_sent_labels() {
    let registry = Registry::new();
    let routes = routes(&registry);
    let seeded = series(&registry);
    let ask = async |request: Request<Body>| routes.clone().oneshot(request).await.unwrap().status();
    let (good, bad) = (jobset(&json!({})), jobset(&json!({ "coordinator": { "replicatedJob": "nobody" } })));
    ask(asked("CREATE", &good)).await;
    ask(asked("CREATE", &bad)).await;
    ask(asked("CREATE", &bad)).await;
    ask(asked("UPDATE", &good)).await;
    // Read with care, and denied.
    ask(asked("CREATE", &jobset(&json!({ "suspend": "perhaps" })))).await;
    ask(sent("POST", &format!("{MUTATE_PATH}?timeout=5s"), JSON, review(&good).to_string())).await;
    assert_eq!(
        counted(&registry, "jobset_webhook_requests_total"),
        [
            r#"operation="CREATE",result="allowed",webhook="mjobset.kb.io"} 1"#,
            r#"operation="CREATE",result="allowed",webhook="vjobset.kb.io"} 1"#,
            r#"operation="CREATE",result="denied",webhook="vjobset.kb.io"} 3"#,
            r#"operation="UPDATE",result="allowed",webhook="vjobset.kb.io"} 1"#,
        ]
    );
    let count = counted(&registry, "jobset_webhook_request_duration_seconds_count");
    assert_eq!(count, [r#"webhook="mjobset.kb.io"} 1"#, r#"webhook="vjobset.kb.io"} 5"#]);
    assert_eq!(series(&registry), seeded, "each was there before its first event");

    for odd in ["create", "DROP", "CREATE\"} 1", "\u{1F4A3}", ""] {
        assert_eq!(ask(asked(odd, &good)).await, StatusCode::BAD_REQUEST, "{odd}");
    }
    ask(sent("POST", VALIDATE_PATH, JSON, "{")).await;
    ask(sent("POST", VALIDATE_PATH, "text/plain", "{}")).await;
    ask(sent("BREW", VALIDATE_PATH, JSON, "")).await;
    ask(sent("POST", VALIDATE_PATH, JSON, " ".repeat(9 << 20))).await;
    ask(sent("POST", "/validate-everything", JSON, "{}")).await;
    let errors = r#"operation="unknown",result="error",webhook="vjobset.kb.io"} 9"#.to_owned();
    assert!(counted(&registry, "jobset_webhook_requests_total").contains(&errors));
    assert_eq!(series(&registry), seeded);
}

#[tokio::test]
async fn pods_that_are_not_placed_are_counted_by_the_reason() {
    let registry = Registry::new();
    let routes = routes(&registry);
    let ask = async |annotations: Value, owners: Value| {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "containers": [] }, "metadata": { "name": "p",
            "labels": { "jobset.sigs.k8s.io/jobset-name": "train" }, "annotations": annotations, "ownerReferences": owners } });
        routes.clone().oneshot(sent("POST", POD_PATH, JSON, review(&pod).to_string())).await.unwrap()
    };
    let exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology";
    ask(json!({}), json!([])).await;
    ask(json!({ exclusive: "rack" }), json!([])).await;
    let job = json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true }]);
    ask(json!({ exclusive: "rack", "batch.kubernetes.io/job-completion-index": "1" }), job).await;
    assert_eq!(
        counted(&registry, "jobset_placement_rejections_total"),
        [r#"reason="invalid"} 1"#, r#"reason="unread"} 1"#]
    );
    assert_eq!(
        counted(&registry, "jobset_webhook_requests_total"),
        [
            r#"operation="CREATE",result="allowed",webhook="mpod.kb.io"} 1"#,
            r#"operation="CREATE",result="denied",webhook="mpod.kb.io"} 1"#,
            r#"operation="CREATE",result="error",webhook="mpod.kb.io"} 1"#,
        ],
        "that the API server does not answer is nobody's fault"
    );
}

#[tokio::test]
async fn overloaded_and_abandoned_reviews_count_as_errors() {
    let registry = Registry::new();
    let flags = ["jobset-webhook", "--namespace=ns", "--review-wait=10ms"];
    let (limits, begun) = (Args::parse_from(flags).limits, Arc::new(Notify::new()));
    let begins = Arc::clone(&begun);
    let endless = async move || {
        begins.notify_one();
        std::future::pending::<()>().await;
    };
    let routes = guard(Router::new().route(VALIDATE_PATH, post(endless)), &limits, 1);
    let routes = measure(routes, Metrics::register(&registry).unwrap());
    let first = tokio::spawn(routes.clone().oneshot(sent("POST", VALIDATE_PATH, JSON, "{}")));
    begun.notified().await;
    let refused = routes.oneshot(sent("POST", VALIDATE_PATH, JSON, "{}")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let turn = r#"limit="turn",webhook="vjobset.kb.io"} 1"#;
    assert_eq!(counted(&registry, "jobset_webhook_overload_total"), [turn]);
    let errors = |count| format!(r#"operation="unknown",result="error",webhook="vjobset.kb.io"}} {count}"#);
    assert_eq!(counted(&registry, "jobset_webhook_requests_total"), [errors(1)]);
    // Its client has gone.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(counted(&registry, "jobset_webhook_requests_total"), [errors(2)]);
    assert_eq!(counted(&registry, "jobset_webhook_overload_total"), [turn]);
}

async fn scrape(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

impl Replica {
    /// The value of a series, by its name and labels as they are written; `None` where there is no such series.
    pub(crate) async fn metric(&self, series: &str) -> Result<Option<f64>> {
        let metrics = scrape(self.metrics).await?;
        let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.map(str::parse).transpose()?)
    }

    /// Waits until a series has this value.
    pub(crate) async fn has_metric(&self, series: &str, wanted: f64) -> Result<()> {
        wait::until_met(LIMIT, format!("{series} to be {wanted}"), async || {
            let value = self.metric(series).await?;
            Ok(if value == Some(wanted) { Check::Met(()) } else { Check::Unmet(format!("{value:?}")) })
        })
        .await
    }

    /// How many requests came to this.
    async fn requests(&self, webhook: &str, operation: &str, result: &str) -> Result<Option<f64>> {
        let labels = format!(r#"operation="{operation}",result="{result}",webhook="{webhook}""#);
        self.metric(&format!("jobset_webhook_requests_total{{{labels}}}")).await
    }
}

#[tokio::test]
async fn scrape_shows_reviews_and_certificate() -> Result<()> {
    let mut plane = Plane::start().await?;
    plane.start_issuer(&["--ca-lead-time=1s"]).await?;
    let replica = plane.replica_with(&["--ca-bundle-settle=0s"]).await?;
    let validated = async |result: &str| replica.requests("vjobset.kb.io", "CREATE", result).await;
    replica.has_metric("jobset_webhook_cert_reloads_total", 0.0).await?;
    plane.register(replica.address).await?;
    replica.ready().await?;
    wait::until(LIMIT, "the API server to ask", async || {
        plane.dry_run(&good("a")).await?;
        Ok((validated("allowed").await? > Some(0.0)).then_some(()))
    })
    .await?;
    let after = |count: Option<f64>, more: f64| count.map(|count| count + more);
    let filled_in = replica.requests("mjobset.kb.io", "CREATE", "allowed").await?;
    let (allowed, denied) = (validated("allowed").await?, validated("denied").await?);
    let errors = validated("error").await?;
    plane.dry_run(&good("b")).await?;
    let mut bad = good("c");
    bad["spec"]["coordinator"] = json!({ "replicatedJob": "nobody" });
    plane.dry_run(&bad).await.unwrap_err();
    assert_eq!(validated("allowed").await?, after(allowed, 1.0));
    assert_eq!(validated("denied").await?, after(denied, 1.0));
    assert_eq!(validated("error").await?, errors);
    assert_eq!(replica.requests("mjobset.kb.io", "CREATE", "allowed").await?, after(filled_in, 2.0));
    assert!(
        replica.metric(r#"jobset_webhook_request_duration_seconds_sum{webhook="vjobset.kb.io"}"#).await? > Some(0.0)
    );
    let build = concat!("jobset_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    assert_eq!(replica.metric(build).await?, Some(1.0));
    assert!(replica.metric("process_resident_memory_bytes").await? > Some(1e6));

    let expiry = "jobset_webhook_cert_expiry_timestamp_seconds";
    let days = |expiry: f64| (expiry - Timestamp::now().as_duration().as_secs_f64()) / 86_400.0;
    let first = replica.metric(expiry).await?.unwrap();
    assert!((89.0..=90.0).contains(&days(first)), "{} days", days(first));
    assert_eq!(replica.metric("jobset_webhook_ca_mismatch").await?, None, "jobset-certs looks at the caBundles");
    plane.secrets().delete(SECRET, &DeleteParams::default()).await?;
    replica.has_metric("jobset_webhook_cert_reloads_total", 1.0).await?;
    assert!(replica.metric(expiry).await? >= Some(first));
    plane.end(replica).await
}
