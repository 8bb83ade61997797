//! The JobSets under review: one of 20 replicatedJobs with 20 environment variables each, 42 kB as JSON; and one that is small and
//! takes long to check. Pure.

use serde_json::{Value, json};

/// Size that the values of the variables fill, in bytes.
const SIZE: usize = 42_000;
const REPLICATED_JOBS: usize = 20;
const VARIABLES: usize = 20;
/// As many patterns as a JobSet may have.
const PATTERNS: usize = 256;

/// A JobSet that restarts by recreation, which the Go JobSet's service can review as well.
pub(super) fn jobset() -> Value {
    let length = SIZE.saturating_sub(with_variables("").to_string().len()) / (REPLICATED_JOBS * VARIABLES);
    with_variables(&"x".repeat(length))
}

/// A JobSet of another namespace, with patterns that take long to compile.
pub(super) fn heavy() -> Value {
    let patterns: Vec<_> = (0..PATTERNS).map(|index| format!(r"{index}(\pL{{20}})")).collect();
    let mut jobset = with_variables("");
    jobset["metadata"]["namespace"] = json!("heavy");
    jobset["spec"]["failurePolicy"]["rules"] =
        json!([{ "name": "heavy", "action": "FailJobSet", "onJobFailureMessagePatterns": patterns }]);
    jobset
}

fn with_variables(value: &str) -> Value {
    let variable = |index: usize| json!({ "name": format!("TRAINING_SETTING_{index:02}"), "value": value });
    let worker = json!({
        "name": "worker",
        "image": "registry.example/team/train:1.2.3",
        "command": ["python", "-m", "train", "--config=/config/train.yaml"],
        "resources": { "limits": { "cpu": "8", "memory": "64Gi", "example.com/accelerator": "4" } },
        "env": (0..VARIABLES).map(variable).collect::<Value>(),
    });
    let group = |index: usize| {
        json!({
            "name": format!("workers-{index:02}"),
            "replicas": 1,
            "template": { "spec": { "parallelism": 8, "completions": 8, "backoffLimit": 0,
                "template": { "spec": { "containers": [worker] } } } },
        })
    };
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": { "name": "bench", "namespace": "default" },
        "spec": {
            "failurePolicy": { "maxRestarts": 3 },
            "replicatedJobs": (0..REPLICATED_JOBS).map(group).collect::<Value>(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobset_has_its_size() {
        let size = jobset().to_string().len();
        assert!(size <= SIZE && size > SIZE - 1000, "{size} bytes");
    }
}
