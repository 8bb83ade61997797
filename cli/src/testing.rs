//! Objects for tests, as the API server would send them.

use jobset_api::JobSet;
use jobset_objects::{PartialJob, PartialPod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::output::{Report, View};

/// The current time of reports.
pub(crate) fn now() -> Timestamp {
    "2026-11-22T10:00:00Z".parse().unwrap()
}

pub(crate) fn view() -> View {
    View { now: now(), wide: false, pods: false }
}

/// The text without its colours.
pub(crate) fn plain(report: &impl Report, view: &View) -> String {
    anstream::adapter::strip_str(&report.text(view)).to_string()
}

/// The JobSet `ml/train` with in-place restart, one Job `driver` and two Jobs `workers`. The patch is merged into it.
pub(crate) fn jobset(status: Value, patch: &Value) -> JobSet {
    let mut object = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "ml", "uid": "u1", "creationTimestamp": "2026-11-22T07:00:00Z"},
        "spec": {
            "failurePolicy": {"maxRestarts": 5, "restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [group("driver", 1, 1), group("workers", 2, 2)],
        },
    });
    merge(&mut object, patch);
    object["status"] = status;
    serde_json::from_value(object).unwrap()
}

pub(crate) fn group(name: &str, replicas: i32, pods: i32) -> Value {
    json!({"name": name, "replicas": replicas, "template": {"spec": {"parallelism": pods, "completions": pods}}})
}

/// `replicatedJobsStatus` with these counts of ready Jobs.
pub(crate) fn ready(driver: i32, workers: i32) -> Value {
    json!([{"name": "driver", "ready": driver}, {"name": "workers", "ready": workers}])
}

pub(crate) fn condition(type_: &str, is_true: bool, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": if is_true { "True" } else { "False" }, "reason": reason, "message": message,
           "lastTransitionTime": "2026-11-22T09:58:00Z"})
}

pub(crate) fn job(group: &str, index: i32, pods: i32, ready: i32) -> PartialJob {
    serde_json::from_value(json!({
        "metadata": {"name": format!("train-{group}-{index}"), "namespace": "ml", "creationTimestamp": "2026-11-22T07:00:01Z",
                     "labels": {"jobset.sigs.k8s.io/replicatedjob-name": group, "jobset.sigs.k8s.io/job-index": index.to_string(),
                                "jobset.sigs.k8s.io/restart-attempt": "0"},
                     "managedFields": [{"manager": "nobody reads this"}]},
        "spec": {"parallelism": pods, "completions": pods}, "status": {"ready": ready},
    }))
    .unwrap()
}

/// A Pod of the Job. It reports the epoch; the patch is merged into it.
pub(crate) fn pod(job: &str, index: usize, epoch: Option<&str>, status: &Value, patch: &Value) -> PartialPod {
    let mut annotations = json!({"batch.kubernetes.io/job-completion-index": index.to_string()});
    if let Some(epoch) = epoch {
        annotations["jobset.sigs.k8s.io/epoch"] = json!(epoch);
    }
    let mut object = json!({
        "metadata": {"name": format!("{job}-{index}-x7k2m"), "namespace": "ml", "creationTimestamp": "2026-11-22T07:00:02Z",
                     "labels": {"batch.kubernetes.io/job-name": job, "jobset.sigs.k8s.io/jobset-uid": "u1"},
                     "annotations": annotations},
        "spec": {"nodeName": format!("node-{}", index % 2 + 1), "containers": [{"name": "worker"}],
                 "initContainers": [{"name": "agent", "restartPolicy": "Always"}]},
        "status": status,
    });
    merge(&mut object, patch);
    serde_json::from_value(object).unwrap()
}

/// All containers run, and the Pod is ready.
pub(crate) fn running() -> Value {
    let container = |name: &str| json!({"name": name, "ready": true, "started": true, "state": {"running": {}}});
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
           "initContainerStatuses": [container("agent")], "containerStatuses": [container("worker")]})
}

/// The Pod waits at the barrier: the agent runs, and the worker has not started.
pub(crate) fn held() -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}],
           "initContainerStatuses": [{"name": "agent", "ready": false, "started": false, "restartCount": 1, "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "RestartingAllContainers"}}}],
           "containerStatuses": [{"name": "worker", "restartCount": 1, "state": {"waiting": {"reason": "PodInitializing"}},
                "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-11-22T09:59:00Z"}}}]})
}

/// The scheduler found no node for the Pod.
pub(crate) fn unschedulable(message: &str) -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]})
}

/// An Event of the controller, `millis` milliseconds after 09:30.
pub(crate) fn event(reason: &str, millis: i64, annotations: &Value, note: &str) -> Event {
    let start: Timestamp = "2026-11-22T09:30:00Z".parse().unwrap();
    let at = Timestamp::from_millisecond(start.as_millisecond() + millis).unwrap();
    serde_json::from_value(json!({
        "metadata": {"name": format!("train-{millis}"), "annotations": annotations},
        "eventTime": format!("{at:.6}"), "reason": reason, "note": note, "type": "Normal", "action": "Reconcile",
        "reportingController": "jobset-controller", "reportingInstance": "jobset-controller",
        "regarding": {"kind": "JobSet", "name": "train", "namespace": "ml", "uid": "u1"},
    }))
    .unwrap()
}

/// The annotations that the controller gives its Events.
pub(crate) fn numbers(restart: i32, counted: i32, synced: i32) -> Value {
    json!({"jobset.sigs.k8s.io/group-restarts": restart.to_string(),
           "jobset.sigs.k8s.io/restarts-count-towards-max": counted.to_string(),
           "jobset.sigs.k8s.io/synced-epoch": synced.to_string()})
}

/// Applies a JSON merge patch (RFC 7386).
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    match patch {
        // A patch of null changes nothing here, so that callers need no empty object.
        Value::Null => {}
        Value::Object(fields) => {
            if !object.is_object() {
                *object = json!({});
            }
            for (key, value) in fields {
                if value.is_null() {
                    object.as_object_mut().unwrap().remove(key);
                } else {
                    merge(&mut object[key.as_str()], value);
                }
            }
        }
        value => *object = value.clone(),
    }
}
