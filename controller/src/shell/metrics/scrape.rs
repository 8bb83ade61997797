//! What a scrape costs when ten thousand JobSets have finished (`make bench-metrics`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use jobset_api::{JobSet, JobSetSpec, ReplicatedJob, ReplicatedJobStatus, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use prometheus::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Ledger, ObjectMetrics, Reconciliations};
use crate::engine::Key;
use crate::plan::Fact;

const JOBSETS: usize = 10_000;
const SCRAPES: usize = 20;
const NAMESPACES: [&str; 10] = [
    "ml-research",
    "ml-serving",
    "speech",
    "vision",
    "ads-ranking",
    "team-llm",
    "robotics",
    "search-quality",
    "forecasting",
    "sandbox",
];
const MODELS: [&str; 4] = ["llama3-70b", "gemma-27b", "bert-large", "resnet50"];

/// As pipelines name them: what is trained, when, and a number.
fn key(number: usize) -> Key {
    let (model, day) = (MODELS[number % MODELS.len()], number / 500);
    let name = format!("{model}-train-202611{:02}-{number:05}", day + 1);
    Key { namespace: NAMESPACES[number % NAMESPACES.len()].to_owned(), name }
}

fn finished(key: &Key) -> JobSet {
    let group = |name: &str| ReplicatedJob { name: name.to_owned(), ..ReplicatedJob::default() };
    let groups = vec![group("driver"), group("workers")];
    let mut jobset = JobSet::new(&key.name, JobSetSpec { replicated_jobs: groups, ..JobSetSpec::default() });
    let status = jobset.status.get_or_insert_default();
    status.replicated_jobs_status = ["driver", "workers"]
        .map(|name| ReplicatedJobStatus { name: name.to_owned(), succeeded: 1, ..ReplicatedJobStatus::default() })
        .into();
    let now = Time(Timestamp::UNIX_EPOCH);
    conditions::set(&mut status.conditions, conditions::COMPLETED, true, conditions::ALL_JOBS_COMPLETED, "", &now);
    jobset
}

async fn scrape(address: std::net::SocketAddr) -> (usize, Duration) {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let took = began.elapsed();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    (body.len(), took)
}

/// Bytes of a scrape over HTTP, and how long it took: the median, and the longest.
async fn measure(registry: Registry) -> (usize, Duration, Duration) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = jobset_metrics::routes(registry, "0").unwrap();
    let server = tokio::spawn(axum::serve(listener, routes).into_future());
    let (mut bytes, mut took) = (0, Vec::new());
    for _ in 0..SCRAPES {
        let (length, duration) = scrape(address).await;
        bytes = bytes.max(length);
        took.push(duration);
    }
    server.abort();
    took.sort();
    (bytes, took[SCRAPES / 2], took[SCRAPES - 1])
}

#[tokio::test]
async fn ten_thousand_finished_jobsets_fit_into_a_megabyte() {
    let of_all = Registry::new();
    let mut ledger = Ledger::register(&of_all).unwrap();
    let _passes = Reconciliations::register(&of_all).unwrap();
    let of_each = Registry::new();
    let objects = ObjectMetrics::register(&of_each).unwrap();
    let mut letters = 0;
    for number in 0..JOBSETS {
        let key = key(number);
        let jobset = Arc::new(finished(&key));
        ledger.see(&key, &jobset);
        let facts = if number % 4 == 0 { Fact::Failed { budget_exhausted: true } } else { Fact::Completed };
        ledger.written(&key, &[Fact::Started, facts], Timestamp::UNIX_EPOCH);
        objects.see(&key, &jobset, None);
        letters += key.name.len();
    }
    let (bytes, median, longest) = measure(of_all).await;
    let mean = letters / JOBSETS;
    println!(
        "{JOBSETS} finished JobSets in {} namespaces, names of {mean} letters, {SCRAPES} scrapes",
        NAMESPACES.len()
    );
    println!("  as it is:               {bytes} bytes, {median:.1?} (median), {longest:.1?} (longest)");
    assert!(bytes <= 1_000_000, "{bytes} bytes");
    let (more, median, longest) = measure(of_each).await;
    println!("  --metrics-per-jobset: + {more} bytes, {median:.1?} (median), {longest:.1?} (longest)");
}
