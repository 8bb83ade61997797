//! Pods that the injection rejects, with field and remedy, and Pods that it ignores.

use rstest::rstest;
use serde_json::{Value, json};

use super::{injected, pod, with_pod};
use crate::field::Errors;
use crate::injection::{Settings, inject};

const POD: &str = "spec.replicatedJobs[0].template.spec.template.spec";

/// A Pod with one worker, and these changes.
fn with(changes: &Value) -> Value {
    let mut pod = json!({ "containers": [{ "name": "worker", "image": "worker:1", "command": ["run"] }] });
    for (field, value) in changes.as_object().unwrap() {
        pod[field] = value.clone();
    }
    pod
}

fn worker(changes: &Value) -> Value {
    let mut pod = with(&json!({}));
    for (field, value) in changes.as_object().unwrap() {
        pod["containers"][0][field] = value.clone();
    }
    pod
}

#[track_caller]
fn assert_one(errors: &Errors, expected: &str) {
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(texts.len() == 1 && texts[0].contains(expected), "expected\n{expected}\nfound\n{}", texts.join("\n"));
}

#[rstest]
#[case::no_command(worker(&json!({ "command": null })), ".containers[0].command: Required value: must be set to the worker's program")]
#[case::liveness(
    worker(&json!({ "livenessProbe": {} })),
    ".containers[0].livenessProbe: Forbidden: must not be set on a supervised container"
)]
#[case::startup(worker(&json!({ "startupProbe": {} })), ".containers[0].startupProbe: Forbidden: must not be set")]
#[case::shared_processes(
    with(&json!({ "shareProcessNamespace": true })),
    ".shareProcessNamespace: Invalid value: true: must not be true where the agent is the supervisor"
)]
#[case::processes_of_the_node(with(&json!({ "hostPID": true })), ".hostPID: Invalid value: true: must not be true")]
#[case::several(
    with(&json!({ "containers": [{ "name": "a", "command": ["a"] }, { "name": "b", "command": ["b"] }] })),
    ".containers: Invalid value: [\"a\",\"b\"]: must be the one container that is supervised"
)]
fn supervisor_for_unfit_worker_is_rejected(#[case] sent: Value, #[case] expected: &str) {
    let (_, errors) = injected("Supervisor", &sent);
    assert_one(&errors, &format!("{POD}{expected}"));
    // A sidecar accepts all of them.
    let (_, errors) = injected("Sidecar", &sent);
    assert_eq!(errors, Errors::default());
}

#[rstest]
#[case::other_system(with(&json!({ "os": { "name": "windows" } })), ".os.name: Invalid value: \"windows\": must be linux")]
#[case::folder(
    with(&json!({ "volumes": [{ "name": "jobset-agent", "configMap": { "name": "a" } }] })),
    ".volumes[0].name: Invalid value: \"jobset-agent\": must not be the name of a volume that is no emptyDir"
)]
#[case::token(
    with(&json!({ "volumes": [{ "name": "jobset-agent-token", "emptyDir": {} }] })),
    ".volumes[0].name: Invalid value: \"jobset-agent-token\": must not be the name of a volume that is not projected"
)]
fn injection_into_unfit_pod_is_rejected(#[case] sent: Value, #[case] expected: &str) {
    for shape in ["Sidecar", "Supervisor"] {
        let (_, errors) = injected(shape, &sent);
        assert_one(&errors, &format!("{POD}{expected}"));
    }
}

/// A sidecar that checks the node, and a worker with a variable of the Go JobSet's agent.
#[rstest]
#[case::sidecar(with(&json!({ "initContainers": [{ "name": "check", "restartPolicy": "Always", "restartPolicyRules": [
    { "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [9] } }] }] })))]
#[case::variable(worker(&json!({ "env": [{ "name": "WORKER_COMMAND", "value": "x" }] })))]
fn injection_ignores_containers_that_resemble_an_agent(#[case] sent: Value) {
    for shape in ["Sidecar", "Supervisor"] {
        let (pod, errors) = injected(shape, &sent);
        assert_eq!((errors, pod != sent), (Errors::default(), true));
        let pod = serde_json::from_value(pod).unwrap();
        assert_eq!(crate::agent::Agent::all_of(&pod).len(), 1, "{shape}");
    }
}

#[test]
fn injection_reports_all_errors_of_pod() {
    let sent = worker(&json!({ "command": [], "livenessProbe": {}, "startupProbe": {} }));
    assert_eq!(injected("Supervisor", &sent).1.iter().count(), 3);
}

#[rstest]
#[case::sidecar("Sidecar", "jobset-agent")]
#[case::supervisor("Supervisor", "jobset-agent-install")]
fn worker_with_name_of_agent_is_rejected(#[case] shape: &str, #[case] name: &str) {
    let (_, errors) = injected(shape, &worker(&json!({ "name": name })));
    assert_one(&errors, ".containers[0].name: Invalid value: \"jobset-agent");
}

#[rstest]
#[case::of_another(
    json!({ "name": "BARRIER_PORT", "value": "9000" }),
    ".initContainers[0].env[0].value: Invalid value: \"9000\": must be a port that no other container"
)]
#[case::no_number(json!({ "name": "BARRIER_PORT", "value": "http" }), "\"http\": must be a number from 1 to 65535")]
#[case::from_elsewhere(
    json!({ "name": "BARRIER_PORT", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }),
    "null: must be a number from 1 to 65535"
)]
fn barrier_port_that_is_unusable_is_rejected(#[case] variable: Value, #[case] expected: &str) {
    let mut sent = worker(&json!({ "ports": [{ "containerPort": 9000 }] }));
    sent["initContainers"] = json!([{ "name": "jobset-agent", "env": [variable] }]);
    assert_one(&injected("Sidecar", &sent).1, expected);
}

#[test]
fn injection_without_image_needs_image_of_container() {
    let none = Settings::default();
    for shape in ["Sidecar", "Supervisor"] {
        let mut spec = with_pod(&with(&json!({})));
        let two = spec.replicated_jobs[0].clone();
        spec.replicated_jobs.push(two);
        let expected = "metadata.annotations[jobset.sigs.k8s.io/inject-agent]: Forbidden: no image of the agent is known: \
                        start the webhook with --agent-image";
        assert_one(&inject(&mut spec, shape, &none), expected);
    }
    let mut spec = with_pod(&with(&json!({ "initContainers": [{ "name": "jobset-agent", "image": "mine" }] })));
    assert_eq!(inject(&mut spec, "Sidecar", &none), Errors::default());
    assert_eq!(pod(&spec)["initContainers"][0]["restartPolicy"], "Always");
}

#[rstest]
#[case::another_strategy("Recreate", "Sidecar")]
#[case::another_word("InPlaceRestart", "sidecar")]
#[case::no_word("InPlaceRestart", "")]
fn injection_without_strategy_or_shape_changes_nothing(#[case] strategy: &str, #[case] value: &str) {
    let mut spec = with_pod(&with(&json!({})));
    spec.failure_policy = serde_json::from_value(json!({ "restartStrategy": strategy })).unwrap();
    let before = spec.clone();
    assert_eq!(inject(&mut spec, value, &Settings::default()), Errors::default());
    assert_eq!(spec, before);
}
