//! JobSets for the tests of the rules. Each case changes a complete JobSet, so that a rule that rejects too much fails
//! every test.

use serde_json::{Value, json};

use super::validate_create;
use crate::JobSet;
use crate::gates::Gates;

/// Changes of a JobSet: JSON pointers and new values. Null removes a value.
pub(super) type Changes<'a> = &'a [(&'a str, Value)];

/// A JobSet with one Job `driver` and two Jobs of four `workers` each, and these changes.
pub(super) fn jobset(changes: Changes<'_>) -> Value {
    let job = |pods: i32| {
        json!({ "spec": {
            "completionMode": "Indexed", "completions": pods, "parallelism": pods,
            "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "main:1" }] } },
        } })
    };
    let object = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "train", "namespace": "ml" },
        "spec": {
            "successPolicy": { "operator": "All" },
            "failurePolicy": { "maxRestarts": 3, "rules": [{ "name": "a", "action": "FailJobSet" }] },
            "replicatedJobs": [
                { "name": "driver", "replicas": 1, "template": job(1) },
                { "name": "workers", "replicas": 2, "template": job(4) },
            ],
        },
    });
    changed(object, changes)
}

/// The same JobSet with the requirements of InPlaceRestart, and these changes.
pub(super) fn in_place(changes: Changes<'_>) -> Value {
    let agent = json!({ "name": "agent", "restartPolicy": "Always", "restartPolicyRules": [
        { "action": "RestartPod", "exitCodes": { "operator": "In", "values": [81] } }],
        "startupProbe": { "httpGet": { "path": "/barrier-is-lifted", "port": 8080 }, "failureThreshold": i32::MAX } });
    let restart = json!([{ "action": "RestartPod", "exitCodes": { "operator": "NotIn", "values": [0] } }]);
    let mut object = jobset(&[("/spec/failurePolicy/restartStrategy", json!("InPlaceRestart"))]);
    for job in object["spec"]["replicatedJobs"].as_array_mut().unwrap() {
        let job = &mut job["template"]["spec"];
        job["backoffLimit"] = json!(i32::MAX);
        job["podReplacementPolicy"] = json!("Failed");
        let pod = &mut job["template"]["spec"];
        pod["initContainers"] = json!([agent]);
        pod["containers"][0]["restartPolicy"] = json!("Never");
        pod["containers"][0]["restartPolicyRules"] = restart.clone();
        pod["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    }
    changed(object, changes)
}

pub(super) fn changed(mut object: Value, changes: Changes<'_>) -> Value {
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("there is no {parent}"));
        match (parent, value) {
            (Value::Object(parent), Value::Null) => drop(parent.remove(field)),
            (Value::Object(parent), value) => drop(parent.insert(field.to_owned(), value.clone())),
            (parent, value) => parent[field.parse::<usize>().unwrap()] = value.clone(),
        }
    }
    object
}

/// The JobSet. Containers without an image get one, so that tests can leave it out.
pub(super) fn read(object: &Value) -> JobSet {
    let mut jobset: JobSet = serde_json::from_value(object.clone()).unwrap();
    for pod in jobset.spec.replicated_jobs.iter_mut().filter_map(|job| job.template.spec.template.spec.as_mut()) {
        for container in pod.init_containers.iter_mut().flatten().chain(&mut pod.containers) {
            container.image.get_or_insert_with(|| "main:1".to_owned());
        }
    }
    jobset
}

pub(super) fn admission_errors(object: &Value) -> Vec<String> {
    validate_create(&read(object), Gates::default()).iter().map(ToString::to_string).collect()
}

/// Asserts that admission accepts the JobSet with these changes.
#[track_caller]
pub(super) fn accepts(changes: Changes<'_>) {
    assert_eq!(admission_errors(&jobset(changes)), Vec::<String>::new());
}

/// Asserts that admission rejects the JobSet with these changes, with one error that contains this text.
#[track_caller]
pub(super) fn rejects(changes: Changes<'_>, expected: &str) {
    assert_one(&admission_errors(&jobset(changes)), expected);
}

/// Asserts that there is one error that contains this text.
#[track_caller]
pub(super) fn assert_one(errors: &[String], expected: &str) {
    assert!(errors.len() == 1 && errors[0].contains(expected), "expected\n{expected}\nfound\n{}", errors.join("\n"));
}
