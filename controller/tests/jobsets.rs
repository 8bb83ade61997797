//! JobSets to create, as admission leaves them: nothing defaults here.

use anyhow::{Context, Result};
use jobset_harness::paths;
use serde_json::{Value, json};

/// A JobSet of these replicatedJobs.
pub(crate) fn jobset(name: &str, groups: &[Value]) -> Value {
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": {"jobset.sigs.k8s.io/restart-budget": "Shared"}},
        "spec": {"replicatedJobs": groups},
    })
}

/// A replicatedJob of so many Jobs, each of so many Pods.
pub(crate) fn group(name: &str, replicas: usize, pods: usize) -> Value {
    json!({"name": name, "replicas": replicas, "template": {"spec": {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "none"}]}},
    }}})
}

/// The object, changed by a merge patch (RFC 7386).
pub(crate) fn with(mut object: Value, patch: &Value) -> Value {
    json_patch::merge(&mut object, patch);
    object
}

/// The JobSet of a manifest in `e2e/manifests/features`. It has the name of its file.
pub(crate) fn feature(name: &str) -> Result<Value> {
    let file = paths::workspace().join(format!("e2e/manifests/features/{name}.yaml"));
    let manifest = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(serde_yaml_ng::from_str(&manifest.replace("WORKER_IMAGE", "none"))?)
}
