//! The JobSet under review: 20 replicatedJobs with 20 environment variables each, 42 kB as JSON. Pure.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use jobset_harness::workload::{STORY_1, Workload};

/// Size that the values of the variables fill, in bytes.
const SIZE: usize = 42_000;
const REPLICATED_JOBS: usize = 20;
const VARIABLES: usize = 20;

/// A JobSet that restarts by recreation, which the Go JobSet's service can review as well.
pub(super) fn plain() -> Value {
    let worker = json!({
        "name": "worker",
        "image": "registry.example/team/train:1.2.3",
        "command": ["python", "-m", "train", "--config=/config/train.yaml"],
        "resources": { "limits": { "cpu": "8", "memory": "64Gi", "example.com/accelerator": "4" } },
    });
    let group = json!({
        "replicas": 1,
        "template": { "spec": { "parallelism": 8, "completions": 8, "backoffLimit": 0,
            "template": { "spec": { "containers": [worker] } } } },
    });
    filled(&json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": { "name": "bench", "namespace": "default" },
        "spec": { "failurePolicy": { "maxRestarts": 3 }, "replicatedJobs": [group] },
    }))
}

/// A JobSet that restarts in place, with an agent in each replicatedJob: story 1 of KEP-467.
pub(super) fn in_place() -> Result<Value> {
    let story = serde_yaml_ng::from_str(STORY_1).context("the manifest of story 1 is not YAML")?;
    let mut jobset = Workload(story).named("bench-in-place").0;
    jobset["metadata"]["namespace"] = json!("default");
    Ok(filled(&jobset))
}

/// The JobSet with copies of its first replicatedJob, and with variables that fill it to its size.
fn filled(jobset: &Value) -> Value {
    let bare = with_variables(jobset, "").to_string().len();
    let length = SIZE.saturating_sub(bare) / (REPLICATED_JOBS * VARIABLES);
    with_variables(jobset, &"x".repeat(length))
}

fn with_variables(jobset: &Value, value: &str) -> Value {
    let mut group = jobset["spec"]["replicatedJobs"][0].clone();
    let variable = |index: usize| json!({ "name": format!("TRAINING_SETTING_{index:02}"), "value": value });
    let worker = &mut group["template"]["spec"]["template"]["spec"]["containers"][0];
    worker["env"] = (0..VARIABLES).map(variable).collect();
    let mut jobset = jobset.clone();
    let groups = (0..REPLICATED_JOBS).map(|index| {
        let mut group = group.clone();
        group["name"] = json!(format!("workers-{index:02}"));
        group
    });
    jobset["spec"]["replicatedJobs"] = groups.collect();
    jobset
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain(plain())]
    #[case::in_place(in_place().unwrap())]
    fn jobset_has_its_size_and_shape(#[case] jobset: Value) {
        let size = jobset.to_string().len();
        assert!(size <= SIZE && size > SIZE - 1000, "{size} bytes");
        let groups = jobset["spec"]["replicatedJobs"].as_array().unwrap();
        assert_eq!(groups.len(), 20);
        for group in groups {
            let containers = &group["template"]["spec"]["template"]["spec"]["containers"];
            assert_eq!(containers[0]["env"].as_array().unwrap().len(), 20);
        }
    }
}
