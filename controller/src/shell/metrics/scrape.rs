//! Measures a scrape after ten thousand JobSets have finished (`make bench-metrics`).

use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, to_bytes};
use http::Request;
use jobset_api::{JobSet, ReplicatedJobStatus, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use prometheus::Registry;
use serde_json::json;
use tower::ServiceExt as _;

use super::{Ledger, ObjectMetrics};
use crate::engine::Key;
use crate::plan::Fact;

const JOBSETS: usize = 10_000;
const SCRAPES: usize = 20;

fn finished(key: &Key) -> Arc<JobSet> {
    let groups = ["driver", "workers"].map(|name| json!({"name": name, "template": {"spec": {}}}));
    let mut jobset = JobSet::new(&key.name, serde_json::from_value(json!({"replicatedJobs": groups})).unwrap());
    let status = jobset.status.get_or_insert_default();
    let counts = |name: &str| ReplicatedJobStatus { name: name.to_owned(), succeeded: 1, ..Default::default() };
    status.replicated_jobs_status = ["driver", "workers"].map(counts).into();
    let now = Time(Timestamp::UNIX_EPOCH);
    conditions::set(&mut status.conditions, conditions::COMPLETED, true, conditions::ALL_JOBS_COMPLETED, "", &now);
    Arc::new(jobset)
}

/// Returns the bytes of a scrape, and prints its duration.
async fn measure(what: &str, registry: Registry) -> usize {
    let routes = jobset_metrics::routes(registry, "0").unwrap();
    let (mut bytes, mut durations) = (0, Vec::new());
    for _ in 0..SCRAPES {
        let began = Instant::now();
        let request = Request::get(jobset_metrics::PATH).body(Body::empty()).unwrap();
        let answer = routes.clone().oneshot(request).await.unwrap();
        bytes = to_bytes(answer.into_body(), usize::MAX).await.unwrap().len();
        durations.push(began.elapsed());
    }
    durations.sort();
    let [median, longest] = [durations[SCRAPES / 2], durations[SCRAPES - 1]];
    println!("{JOBSETS} finished JobSets, {what}: {bytes} bytes, {median:.1?} (median), {longest:.1?} (longest)");
    bytes
}

#[tokio::test]
async fn ten_thousand_finished_jobsets_fit_into_a_megabyte() {
    let [of_all, of_each] = [Registry::new(), Registry::new()];
    let mut ledger = Ledger::register(&of_all).unwrap();
    let objects = ObjectMetrics::register(&of_each).unwrap();
    for number in 0..JOBSETS {
        let name = format!("llama3-70b-train-202611{:02}-{number:05}", number / 500 + 1);
        let key = Key { namespace: format!("research-{}", number % 10), name };
        let jobset = finished(&key);
        ledger.see(&key, &jobset);
        let end = if number % 4 == 0 { Fact::Failed { budget_exhausted: true } } else { Fact::Completed };
        ledger.written(&key, &[Fact::Started, end], Timestamp::UNIX_EPOCH);
        objects.see(&key, &jobset, None);
    }
    let bytes = measure("by default", of_all).await;
    assert!(bytes <= 1_000_000, "{bytes} bytes");
    measure("--metrics-per-jobset adds", of_each).await;
}
