//! Default objects of a case. `cases/plan/README.md` lists them.

use jobset_api::{JobSet, RestartStrategy, labels};
use jobset_store::PriorityClasses;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::merge::merge;
use crate::build;

pub(super) const JOBSET: &str = "train";
pub(super) const NAMESPACE: &str = "ml";
const NODE: &str = "node-1";

/// Time of the first step.
pub(super) fn beginning() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub(super) fn jobset() -> Value {
    let annotations = json!({(labels::RESTART_BUDGET): "Shared"});
    let metadata = json!({"name": JOBSET, "namespace": NAMESPACE, "uid": uid(JOBSET), "annotations": annotations});
    json!({"metadata": metadata, "spec": {}, "status": {"restartRequests": []}})
}

/// A Service, claim or RoleBinding of the JobSet.
pub(super) fn child(name: &str) -> Value {
    json!({"metadata": {
        "name": name, "namespace": NAMESPACE, "uid": uid(name), "labels": {(labels::JOBSET_NAME): JOBSET},
        "ownerReferences": [{
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": JOBSET, "uid": uid(JOBSET), "controller": true}],
    }})
}

/// The Job `<jobset>-<replicatedJob>-<index>` as the controller creates it in the current attempt.
pub(super) fn job(jobset: &JobSet, name: &str) -> Value {
    let group_and_index = name.strip_prefix(JOBSET).and_then(|rest| rest.strip_prefix('-')?.rsplit_once('-'));
    let (group, index) = group_and_index.unwrap_or_else(|| panic!("{name} is no name of a Job"));
    let group_index = jobset.spec.replicated_jobs.iter().position(|it| it.name == group);
    let place = build::JobPlace { group_index: group_index.unwrap_or_default(), job_index: index.parse().unwrap() };
    let attempt = build::Attempt::current(&jobset.status.clone().unwrap_or_default(), group, place.job_index);
    let strategy = jobset.spec.restart_strategy();
    let desired = build::DesiredJob::of(jobset, place, attempt, strategy, &PriorityClasses::default());
    let avoids_nodes = strategy == RestartStrategy::InPlaceRestart && jobset.move_after_failures() > Some(0);
    let job = build::job(jobset, &build::DesiredJob { avoids_nodes, ..desired });
    let mut job = serde_json::to_value(job).unwrap();
    merge(&mut job, json!({"metadata": {"uid": uid(name)}}));
    job
}

/// The Pod `<job>-<index>-<suffix>` of this Job: bound, with all containers running, and with the synced epoch reported.
pub(super) fn pod(jobset: &JobSet, job: &Value, name: &str, now: Timestamp) -> Value {
    let template = &job["spec"]["template"];
    let owner = &job["metadata"];
    let mut annotations = template["metadata"]["annotations"].clone();
    if job["spec"]["completionMode"] == "Indexed" {
        let index = name.rsplit('-').nth(1).unwrap();
        annotations[labels::COMPLETION_INDEX] = json!(index);
    }
    let synced = jobset.status.as_ref().map_or(0, |status| status.synced_epoch);
    if synced > 0 {
        annotations[labels::EPOCH] = json!(synced.to_string());
    }
    let running = |containers: &Value| -> Value {
        let containers = containers.as_array().into_iter().flatten();
        containers.map(|it| json!({"name": it["name"], "state": {"running": {}}})).collect()
    };
    let mut spec = template["spec"].clone();
    merge(&mut spec, json!({"nodeName": NODE}));
    if spec["restartPolicy"].is_null() {
        spec["restartPolicy"] = json!("Never");
    }
    json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": uid(name), "creationTimestamp": now,
            "labels": template["metadata"]["labels"], "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": owner["name"], "uid": owner["uid"], "controller": true}],
        },
        "status": {
            "phase": "Running",
            "initContainerStatuses": running(&spec["initContainers"]),
            "containerStatuses": running(&spec["containers"]),
        },
        "spec": spec,
    })
}

/// Names of the replicatedJobs of a JobSet, which a step before has completed.
pub(super) fn replicated_jobs(jobset: &Value) -> Vec<Value> {
    jobset["spec"]["replicatedJobs"].as_array().into_iter().flatten().map(|it| it["name"].clone()).collect()
}

/// Adds the fields that admission and the writers of a status always set. The replicatedJobs in `known` are complete.
pub(super) fn complete(object: &mut Value, known: &[Value], now: Timestamp) {
    if object["metadata"]["name"] == JOBSET && object["spec"].is_object() {
        complete_spec(&mut object["spec"], known);
        record_members(object);
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let given = std::mem::take(condition);
        *condition = json!({"status": "True", "reason": "Given", "message": "given", "lastTransitionTime": now});
        merge(condition, given);
    }
    for list in ["initContainerStatuses", "containerStatuses"] {
        let statuses = object.pointer_mut(&format!("/status/{list}")).and_then(Value::as_array_mut);
        for status in statuses.into_iter().flatten() {
            complete_container_status(status, now);
        }
    }
}

/// Records the Pods of the specification as the members of the synced epoch, unless the case does.
fn record_members(jobset: &mut Value) {
    let in_place = jobset["spec"]["failurePolicy"]["restartStrategy"] == "InPlaceRestart";
    if !in_place || jobset["status"]["syncedEpoch"].as_i64().is_none_or(|synced| synced == 0) {
        return;
    }
    let groups = jobset["spec"]["replicatedJobs"].as_array().cloned().unwrap_or_default();
    let status = jobset["status"].as_object_mut().unwrap().entry("replicatedJobsStatus").or_insert_with(|| json!([]));
    for group in groups {
        let (name, parallelism) = (&group["name"], group["template"]["spec"]["parallelism"].as_i64().unwrap_or(1));
        let last = group["replicas"].as_i64().unwrap_or(1) * parallelism - 1;
        let pods = if last == 0 { "0".to_owned() } else { format!("0-{last}") };
        let recorded = json!({"name": name, "syncedPods": pods, "syncedParallelism": parallelism});
        match status.as_array_mut().unwrap().iter_mut().find(|status| status["name"] == *name) {
            Some(status) if status.get("syncedPods").is_none() => merge(status, recorded),
            Some(_) => {}
            None => status.as_array_mut().unwrap().push(recorded),
        }
    }
}

/// Gives a restarted container a new ID, unless the case has one.
fn complete_container_status(status: &mut Value, now: Timestamp) {
    let restarts = status["restartCount"].as_i64().unwrap_or(0);
    let prefix = format!("{}-", status["name"].as_str().unwrap_or_default());
    status["restartCount"] = json!(restarts);
    if status["containerID"].as_str().is_none_or(|id| id.starts_with(&prefix)) {
        status["containerID"] = json!(format!("{prefix}{restarts}"));
    }
    for (state, time) in [("running", "startedAt"), ("terminated", "finishedAt")] {
        if let Some(state) = status["state"].get_mut(state).and_then(Value::as_object_mut) {
            state.entry(time).or_insert_with(|| json!(now));
        }
    }
}

fn complete_spec(spec: &mut Value, known: &[Value]) {
    let in_place = spec["failurePolicy"]["restartStrategy"] == "InPlaceRestart";
    let groups = spec.as_object_mut().unwrap().entry("replicatedJobs").or_insert_with(|| json!([{"name": "w"}]));
    for group in groups.as_array_mut().unwrap().iter_mut().filter(|group| !known.contains(&group["name"])) {
        let given = std::mem::take(group);
        let parallelism = given.pointer("/template/spec/parallelism").cloned().unwrap_or(json!(1));
        *group = json!({"replicas": 1, "template": {"spec": {
            "completionMode": "Indexed", "parallelism": parallelism, "completions": parallelism,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "worker"}]}},
        }}});
        if in_place {
            merge(group, json!({"template": {"spec": in_place_template()}}));
        }
        merge(group, given);
    }
}

/// What KEP-467 adds to a Job that restarts in place.
fn in_place_template() -> Value {
    let restart = |operator: &str, code: i32| json!([{"action": "RestartAllContainers", "exitCodes": {"operator": operator, "values": [code]}}]);
    json!({
        "backoffLimit": i32::MAX,
        "podReplacementPolicy": "Failed",
        "template": {"spec": {
            "initContainers": [{
                "name": "agent", "image": "agent", "restartPolicy": "Always", "restartPolicyRules": restart("In", 81)}],
            "containers": [{
                "name": "worker", "image": "worker", "restartPolicy": "Never", "restartPolicyRules": restart("NotIn", 0)}],
        }},
    })
}

pub(super) fn uid(name: &str) -> String {
    format!("uid-of-{name}")
}
