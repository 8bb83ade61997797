//! Measures a scrape after ten thousand JobSets have finished (`make bench-metrics`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use jobset_api::{JobSet, ReplicatedJobStatus, conditions};
use jobset_rules::Fact;
use jobset_store::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use prometheus::{Registry, TextEncoder};
use serde_json::json;

use super::{Ledger, ObjectMetrics};

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
fn measure(what: &str, registry: &Registry) -> usize {
    let mut scrapes: Vec<(Duration, usize)> = (0..SCRAPES)
        .map(|_| {
            let began = Instant::now();
            let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
            (began.elapsed(), text.len())
        })
        .collect();
    scrapes.sort_unstable();
    let [(median, bytes), (longest, _)] = [scrapes[SCRAPES / 2], scrapes[SCRAPES - 1]];
    println!("{JOBSETS} finished JobSets, {what}: {bytes} bytes, {median:.1?} (median), {longest:.1?} (longest)");
    bytes
}

#[test]
fn ten_thousand_finished_jobsets_fit_into_a_megabyte() {
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
    let bytes = measure("by default", &of_all);
    assert!(bytes <= 1_000_000, "{bytes} bytes");
    measure("--metrics-per-jobset adds", &of_each);
}
