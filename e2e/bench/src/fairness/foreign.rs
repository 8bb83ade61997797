//! JobSets with many suspended Jobs, in a namespace of their own.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use jobset_api::{JobSet, labels};
use jobset_harness::cluster::Handle;
use jobset_harness::install;
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::limit;

const PAGE: u32 = 2_000;
/// Jobs that a JobSet may create between the count of its Jobs and its new size.
const MARGIN: usize = 200;
/// Time in which a controller that has Jobs to create, or the Job controller that has Jobs to reconcile, writes one.
const SETTLED: Duration = Duration::from_secs(5);

pub(super) struct ForeignJobs {
    jobsets: Api<JobSet>,
    jobs: Api<Job>,
    replicas: usize,
}

impl ForeignJobs {
    /// Creates `count` JobSets of `replicas` suspended Jobs each in a new namespace.
    pub(super) async fn create(handle: &Handle, namespace: &str, count: usize, replicas: usize) -> Result<Self> {
        let client = handle.client();
        install::create_namespace(&client, namespace).await?;
        let jobsets: Api<JobSet> = Api::namespaced(client.clone(), namespace);
        for index in 0..count {
            let jobset = serde_json::from_value(manifest(&format!("many-{index}"), replicas))?;
            jobsets.create(&PostParams::default(), &jobset).await.context("the JobSet was refused")?;
        }
        Ok(Self { jobsets, jobs: Api::namespaced(client, namespace), replicas })
    }

    pub(super) async fn count(&self) -> Result<usize> {
        let page = self.jobs.list_metadata(&ListParams::default().limit(1)).await?;
        Ok(page.items.len() + usize::try_from(page.metadata.remaining_item_count.unwrap_or(0))?)
    }

    /// Waits until so many Jobs exist. Returns how many do.
    pub(super) async fn exist(&self, wanted: usize) -> Result<usize> {
        wait::until_met(limit(wanted), format!("{wanted} Jobs"), || async {
            let found = self.count().await?;
            Ok(if found >= wanted { Check::Met(found) } else { Check::Unmet(found.to_string()) })
        })
        .await
    }

    /// Shrinks the JobSets to the Jobs that they have, and waits until their Jobs stand: none is created any more, and the Job
    /// controller has reconciled all of them. Returns how many Jobs exist.
    pub(super) async fn stop_growing(&self) -> Result<usize> {
        let found = self.by_jobset().await?;
        for (name, jobs) in &found {
            let replicas = json!((jobs + MARGIN).min(self.replicas));
            let mut spec = serde_json::to_value(self.jobsets.get(name).await?.spec)?;
            spec["replicatedJobs"][0]["replicas"] = replicas;
            let patch = json!({"spec": {"replicatedJobs": spec["replicatedJobs"]}});
            self.jobsets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.context(name.clone())?;
        }
        let jobs = limit(found.values().sum());
        wait::until_met(jobs, "no Job to be created or changed", || async {
            let from = self.jobs.list_metadata(&ListParams::default().limit(1)).await?.metadata.resource_version;
            let changes = self.jobs.watch_metadata(&WatchParams::default(), &from.unwrap_or_default()).await?;
            match tokio::time::timeout(SETTLED, pin!(changes).next()).await {
                Ok(_) => Ok(Check::Unmet("Jobs are still changing".to_owned())),
                Err(_elapsed) => Ok(Check::Met(())),
            }
        })
        .await?;
        let jobs = self.count().await?;
        progress(&format!("{jobs} Jobs of {} JobSets", found.len()));
        Ok(jobs)
    }

    async fn by_jobset(&self) -> Result<BTreeMap<String, usize>> {
        let (mut found, mut params) = (BTreeMap::new(), ListParams::default().limit(PAGE));
        loop {
            let page = self.jobs.list_metadata(&params).await?;
            for job in &page.items {
                if let Some(jobset) = job.labels().get(labels::JOBSET_NAME) {
                    *found.entry(jobset.clone()).or_default() += 1;
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }
}

/// The JobSet, as admission would leave it.
fn manifest(name: &str, replicas: usize) -> Value {
    let pod = json!({"spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "worker", "image": install::WORKER_IMAGE, "command": ["/jobset-test-worker"]}],
    }});
    let job = json!({"spec": {"completionMode": "Indexed", "parallelism": 1, "completions": 1, "template": pod}});
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name},
        "spec": {
            "suspend": true,
            "network": {"enableDNSHostnames": true, "publishNotReadyAddresses": true},
            "replicatedJobs": [{"name": "w", "replicas": replicas, "template": job}],
        },
    })
}
