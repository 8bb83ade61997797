//! The JobSets of tests and demo: manifests of the KEPs, filled in with images and with what the test worker needs.

use std::path::Path;

use anyhow::{Context, Result};
use jobset_api::labels;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::images::Repository;
use crate::journal;

/// Story 1 of KEP-467: two Jobs of two workers that restart in place.
pub const STORY_1: &str = include_str!("../../manifests/story-1.yaml");
/// Story 2 of KEP-467: some exit codes fail the Pod or the JobSet.
pub const STORY_2: &str = include_str!("../../manifests/story-2.yaml");
/// Workers below an injected supervisor; exit code 42 is fatal.
pub const SUPERVISED: &str = include_str!("../../manifests/supervised.yaml");
/// The same workers, restarted by recreating all Pods.
pub const RECREATE: &str = include_str!("../../manifests/recreate.yaml");

pub const WORKER_PORT: u16 = 9000;

/// A JobSet to apply, as JSON.
#[derive(Clone, Debug)]
pub struct Workload(pub Value);

impl Workload {
    /// Reads a manifest, gives it images, and gives its workers a journal below `journals`, a folder that every node
    /// sees at the same path.
    pub fn new(manifest: &str, namespace: &str, journals: &Path) -> Result<Self> {
        let mut workload = Self::without_journal(manifest, namespace, &Repository::default())?;
        workload.each_pod(|pod| equip(pod, &journal::dir(journals, namespace)));
        Ok(workload)
    }

    /// Reads a manifest, and gives it images of a repository; its workers write to their logs alone.
    pub fn without_journal(manifest: &str, namespace: &str, images: &Repository) -> Result<Self> {
        let image = |text: &str, word: &str, program| text.replace(word, &images.name(program));
        let text = image(&image(manifest, "AGENT_IMAGE", "jobset-agent"), "WORKER_IMAGE", "jobset-test-worker");
        let mut jobset: Value = serde_yaml_ng::from_str(&text).context("the manifest is not YAML")?;
        jobset["metadata"]["namespace"] = json!(namespace);
        if let Some(policy) = jobset["spec"]["failurePolicy"].as_object_mut() {
            policy.entry("restartBackoff").or_insert_with(|| json!({"initialSeconds": 0, "stableSeconds": 0}));
        }
        let mut workload = Self(jobset);
        workload.each_pod(introduce);
        Ok(workload)
    }

    pub fn named(mut self, name: &str) -> Self {
        self.0["metadata"]["name"] = json!(name);
        self
    }

    /// Sets the shape of every replicatedJob: Jobs, and Pods of each.
    pub fn of_shape(mut self, replicas: usize, parallelism: usize) -> Self {
        for group in self.groups() {
            group["replicas"] = json!(replicas);
            group["template"]["spec"]["parallelism"] = json!(parallelism);
            group["template"]["spec"]["completions"] = json!(parallelism);
        }
        self
    }

    /// Asks admission for this kind of agent, `Sidecar` or `Supervisor`.
    pub fn injected(mut self, shape: &str) -> Self {
        self.0["metadata"]["annotations"][labels::INJECT_AGENT] = json!(shape);
        self
    }

    /// Sets how often the group may restart.
    pub fn with_max_restarts(mut self, most: u32) -> Self {
        self.0["spec"]["failurePolicy"]["maxRestarts"] = json!(most);
        self
    }

    /// Sets the back-off between restarts. Without this, a workload restarts without waits, and each restart has its Events,
    /// unless its manifest says otherwise.
    pub fn with_backoff(mut self, backoff: Value) -> Self {
        self.0["spec"]["failurePolicy"]["restartBackoff"] = backoff;
        self
    }

    /// Changes the specification of the Pods of every replicatedJob.
    pub fn each_pod(&mut self, mut change: impl FnMut(&mut Value)) {
        for group in self.groups() {
            change(&mut group["template"]["spec"]["template"]["spec"]);
        }
    }

    /// Sets a variable in the environment of every worker.
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.each_pod(|pod| {
            if let Some(env) = pod["containers"][0]["env"].as_array_mut() {
                env.retain(|variable| variable["name"] != name);
                env.push(json!({"name": name, "value": value}));
            }
        });
        self
    }

    /// Has each worker ask for this much CPU.
    pub fn requesting_cpu(mut self, quantity: &str) -> Self {
        self.each_pod(|pod| pod["containers"][0]["resources"] = json!({"requests": {"cpu": quantity}}));
        self
    }

    /// Adds a label to the JobSet.
    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = json!(value);
        self
    }

    pub fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub fn pods(&self) -> usize {
        let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(1);
        let groups = self.0["spec"]["replicatedJobs"].as_array();
        groups
            .into_iter()
            .flatten()
            .map(|group| number(&group["replicas"]) * number(&group["template"]["spec"]["parallelism"]))
            .sum()
    }

    fn groups(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0["spec"]["replicatedJobs"].as_array_mut().into_iter().flatten()
    }
}

/// Whether a Pod is ready, and stays.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What the test worker wants to know.
fn introduce(pod: &mut Value) {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    pod["containers"][0]["env"] = json!([
        field("POD_NAME", "metadata.name"),
        field("POD_UID", "metadata.uid"),
        field("POD_IP", "status.podIP"),
        field("NODE_NAME", "spec.nodeName"),
        {"name": "WORKER_PORT", "value": WORKER_PORT.to_string()},
    ]);
}

/// A journal, and a scratch folder that lives as long as its Pod.
fn equip(pod: &mut Value, journals: &Path) {
    let worker = &mut pod["containers"][0];
    if let Some(env) = worker["env"].as_array_mut() {
        env.push(json!({"name": "JOURNAL_DIR", "value": "/journal"}));
        env.push(json!({"name": "SCRATCH_DIR", "value": "/scratch"}));
    }
    worker["volumeMounts"] =
        json!([{"name": "journal", "mountPath": "/journal"}, {"name": "scratch", "mountPath": "/scratch"}]);
    pod["volumes"] = json!([
        {"name": "journal", "hostPath": {"path": journals, "type": "DirectoryOrCreate"}},
        {"name": "scratch", "emptyDir": {}},
    ]);
}
