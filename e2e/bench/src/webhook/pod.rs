//! The Pod under review: a worker of some 10 kB whose JobSet avoids two nodes. Pure.

use serde_json::{Value, json};

const VARIABLES: usize = 60;
const VOLUMES: usize = 12;

/// A Pod of the JobSet with this UID, as the Job controller creates it.
pub(super) fn pod(jobset_uid: &str) -> Value {
    let variable = |index: usize| json!({ "name": format!("TRAINING_SETTING_{index:02}"), "value": "x".repeat(60) });
    let volume = |index: usize| json!({ "name": format!("data-{index:02}"), "emptyDir": {} });
    let mount = |index: usize| json!({ "name": format!("data-{index:02}"), "mountPath": format!("/data/{index:02}") });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "generateName": "bench-workers-00-0-0-", "namespace": "default", "labels": {
            "jobset.sigs.k8s.io/avoids-nodes": "true",
            "jobset.sigs.k8s.io/jobset-name": "bench",
            "jobset.sigs.k8s.io/jobset-uid": jobset_uid,
            "batch.kubernetes.io/job-name": "bench-workers-00-0",
            "batch.kubernetes.io/job-completion-index": "0",
        } },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "worker",
                "image": "registry.example/team/train:1.2.3",
                "command": ["python", "-m", "train", "--config=/config/train.yaml"],
                "env": (0..VARIABLES).map(variable).collect::<Value>(),
                "volumeMounts": (0..VOLUMES).map(mount).collect::<Value>(),
            }],
            "volumes": (0..VOLUMES).map(volume).collect::<Value>(),
        },
    })
}

/// A status that avoids two nodes.
pub(super) fn avoiding() -> Value {
    let node = |name: &str| json!({ "node": name, "since": "2026-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z", "failures": 2, "reason": "Failures" });
    json!({ "status": { "avoidedNodes": [node("node-1"), node("node-2")] } })
}
