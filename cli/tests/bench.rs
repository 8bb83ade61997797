//! Measures `status` for a JobSet of 5,000 Pods of about 9 kB each, on a real API server without kubelets.
//!
//! `cargo test -p jobset-cli --test cli -- --ignored --nocapture bench` prints the times. The limit is 2 s.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::fixture::{Space, in_place};

pub(crate) const JOBS: usize = 10;
pub(crate) const PODS: usize = 5000;
const LIMIT: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;
pub(crate) const CONCURRENCY: usize = 32;

#[tokio::test]
#[ignore = "creates 5,000 Pods, which takes a minute"]
async fn status_of_5000_pods_takes_at_most_2_seconds() -> Result<()> {
    let space = Space::new("bench").await?;
    let uid = fill(&space, Some("example.com/nobody")).await?;
    let size = serde_json::to_vec(&space.pods().get("bench-workers-0-0").await?)?.len();
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let text = space.run(&["status", "bench"], 0).await?;
        times.push(start.elapsed());
        assert!(text.contains("500 Pods"), "{uid}: {text}");
    }
    times.sort();
    let median = times[times.len() / 2];
    println!("status of {PODS} Pods of {size} bytes: median {median:.2?} of {times:.2?}; limit {LIMIT:?}");
    assert!(median <= LIMIT, "{median:?}");
    Ok(())
}

/// Creates a JobSet that is managed by nobody or by a controller that does not run, with its Jobs and Pods. All workers run in epoch
/// 3. Returns the UID of the JobSet.
pub(crate) async fn fill(space: &Space, managed_by: Option<&str>) -> Result<String> {
    let mut object = in_place("bench", PODS / JOBS);
    if let Some(manager) = managed_by {
        object["spec"]["managedBy"] = json!(manager);
    }
    object["spec"]["replicatedJobs"][0]["replicas"] = json!(JOBS);
    let uid = space.create(object).await?.uid().context("no UID")?;
    let status = json!({"status": {
        "syncedEpoch": 3, "deprecatedEpoch": 2, "groupRestarts": 2, "restartsCountTowardsMax": 1, "restarts": 0,
        "replicatedJobsStatus": [{"name": "workers", "ready": JOBS}]}});
    space.jobsets().patch_status("bench", &PatchParams::default(), &Patch::Merge(status)).await?;
    let jobs: Api<Job> = Api::default_namespaced(space.client.clone());
    for index in 0..JOBS {
        jobs.create(&PostParams::default(), &serde_json::from_value(job(&uid, index))?).await?;
    }
    let (uid_ref, api) = (uid.as_str(), space.pods());
    let make = async |index: usize| {
        let pod: Pod = serde_json::from_value(pod(uid_ref, index % JOBS, index / JOBS))?;
        space.runs(&api.create(&PostParams::default(), &pod).await?, 2).await
    };
    stream::iter(0..PODS).map(Ok).try_for_each_concurrent(CONCURRENCY, make).await?;
    Ok(uid)
}

fn labels(uid: &str, job: usize) -> Value {
    json!({
        "jobset.sigs.k8s.io/jobset-name": "bench", "jobset.sigs.k8s.io/jobset-uid": uid,
        "jobset.sigs.k8s.io/replicatedjob-name": "workers", "jobset.sigs.k8s.io/job-index": job.to_string(),
        "jobset.sigs.k8s.io/restart-attempt": "0", "batch.kubernetes.io/job-name": format!("bench-workers-{job}"),
    })
}

fn job(uid: &str, index: usize) -> Value {
    let worker = json!({"restartPolicy": "Never", "containers": [{"name": "worker", "image": "none"}]});
    json!({"metadata": {"name": format!("bench-workers-{index}"), "labels": labels(uid, index)},
           "spec": {"managedBy": "example.com/nobody", "parallelism": PODS / JOBS, "completions": PODS / JOBS, "completionMode": "Indexed",
                    "template": {"spec": worker}}})
}

/// A Pod as large as one of a typical training job.
fn pod(uid: &str, job: usize, index: usize) -> Value {
    let variable = |number| json!({"name": format!("TRAINING_SETTING_{number}"), "value": "x".repeat(200)});
    let variables: Vec<Value> = (0..20).map(variable).collect();
    json!({
        "metadata": {"name": format!("bench-workers-{job}-{index}"), "labels": labels(uid, job), "annotations": {
            "batch.kubernetes.io/job-completion-index": index.to_string(), "jobset.sigs.k8s.io/epoch": "3"}},
        "spec": {"restartPolicy": "Never", "nodeName": format!("node-{index}"),
            "initContainers": [{"name": "agent", "image": "registry.example/agent:1", "restartPolicy": "Always"}],
            "containers": [{"name": "worker", "image": "registry.example/trainer:1", "env": variables}]},
    })
}
