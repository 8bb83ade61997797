//! JobSets of every kind, in the words that the Go JobSet's admission accepts.

use std::path::Path;

use jobset_e2e::go_jobset;
use jobset_harness::images;
use serde_json::{Value, json};

/// Image of the Go JobSet's agent as a supervisor, with a shell for the worker's command.
pub(super) const SUPERVISOR_IMAGE: &str = "localhost/go-jobset-supervisor:test";

pub(super) const NAMESPACE: &str = "swap";

/// Jobs that run one Pod each, that are suspended, and whose Pod no node can take.
const RUNNING: usize = 34;
const SUSPENDED: usize = 114;
const PENDING: usize = 46;

/// Ends with code 1 when a file of the Pod's name appears, and removes it.
const WORKER: &str = "while :; do if [ -f /flags/$POD_NAME ]; then rm /flags/$POD_NAME; exit 1; fi; sleep 0.3; done";

fn jobset(name: &str, groups: &Value, rest: &Value) -> Value {
    let mut jobset = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicatedJobs": groups},
    });
    json_patch::merge(&mut jobset, rest);
    jobset
}

/// A replicatedJob of Indexed Jobs whose container runs this script.
fn group(name: &str, replicas: usize, parallelism: usize, flags: &Path, script: &str) -> Value {
    json!({"name": name, "replicas": replicas, "template": {"spec": {
        "backoffLimit": 0, "completionMode": "Indexed", "parallelism": parallelism, "completions": parallelism,
        "template": {"spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "worker", "image": images::BUSYBOX, "command": ["sh", "-c", script], "env": [pod_name()],
                "volumeMounts": [{"name": "flags", "mountPath": "/flags"}],
            }],
            "volumes": [{"name": "flags", "hostPath": {"path": flags, "type": "Directory"}}],
        }},
    }}})
}

fn pod_name() -> Value {
    json!({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
}

/// The environment of the Go JobSet's agent.
fn agent_env() -> Value {
    let path = "metadata.labels['jobset.sigs.k8s.io/jobset-name']";
    json!([pod_name(), {"name": "JOBSET_NAME", "valueFrom": {"fieldRef": {"fieldPath": path}}}])
}

/// Two workers that restart in place, beside or below the Go JobSet's agent.
fn in_place(name: &str, flags: &Path, supervised: bool) -> Value {
    let mut workers = group("w", 1, 2, flags, WORKER);
    let job = &mut workers["template"]["spec"];
    job["backoffLimit"] = json!(i32::MAX);
    job["podReplacementPolicy"] = json!("Failed");
    let pod = &mut job["template"]["spec"];
    let worker = &mut pod["containers"][0];
    worker["restartPolicy"] = json!("Never");
    let rules = |action: &str, operator: &str, code: i32| json!([{"action": action, "exitCodes": {"operator": operator, "values": [code]}}]);
    if supervised {
        worker["image"] = json!(SUPERVISOR_IMAGE);
        worker["env"] = agent_env();
        for (name, value) in [("WORKER_COMMAND", WORKER), ("SHELL", "/bin/sh")] {
            worker["env"].as_array_mut().into_iter().for_each(|env| env.push(json!({"name": name, "value": value})));
        }
        if let Some(worker) = worker.as_object_mut() {
            worker.remove("command");
        }
        worker["restartPolicyRules"] = rules("Restart", "NotIn", 0);
    } else {
        worker["restartPolicyRules"] = rules("RestartAllContainers", "NotIn", 0);
        pod["initContainers"] = json!([{
            "name": "agent", "image": go_jobset::AGENT_IMAGE, "env": agent_env(), "restartPolicy": "Always",
            "restartPolicyRules": rules("RestartAllContainers", "In", 1),
            "startupProbe": {
                "httpGet": {"path": "/barrier-is-down", "port": 8081}, "periodSeconds": 1, "failureThreshold": 10000},
        }]);
    }
    let policy = json!({"maxRestarts": 30, "restartStrategy": "InPlaceRestart"});
    jobset(name, &json!([workers]), &json!({"spec": {"failurePolicy": policy}}))
}

/// The JobSets, those first whose Pods need a node.
pub(super) fn all(flags: &Path) -> Vec<Value> {
    let runs = |name: &str, replicas: usize| group(name, replicas, 1, flags, WORKER);
    let policy = |policy: &Value| json!({"spec": {"failurePolicy": policy}});
    let restart_job = json!({"maxRestarts": 6, "rules": [{"action": "RestartJob"}]});
    let exclusive = json!({"metadata": {"namespace": EXCLUSIVE, "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}}});
    let claims = json!({"spec": {"volumeClaimPolicies": [{
        "templates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "nobody",
            "resources": {"requests": {"storage": "1Mi"}}}}],
        "retentionPolicy": {"whenDeleted": "Delete"},
    }]}});
    let mut claimed = runs("w", 1);
    let worker = &mut claimed["template"]["spec"]["template"]["spec"]["containers"][0];
    worker["volumeMounts"]
        .as_array_mut()
        .into_iter()
        .for_each(|it| it.push(json!({"name": "data", "mountPath": "/d"})));
    let driver = group("driver", 1, 1, flags, "until [ -f /flags/go ]; do sleep 0.3; done");
    let mut workers = runs("w", 1);
    workers["dependsOn"] = json!([{"name": "driver", "status": "Complete"}]);
    // One Job fails at once, the other needs its grace to end.
    let mut stubborn = group("w", 2, 1, flags, &format!("trap '' TERM; {WORKER}"));
    stubborn["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(40);
    let mut nowhere = runs("w", PENDING);
    nowhere["template"]["spec"]["template"]["spec"]["nodeSelector"] = json!({"no": "where"});
    let six = json!({"maxRestarts": 6});
    vec![
        jobset("plain", &json!([runs("w", RUNNING)]), &policy(&six)),
        in_place("side", flags, false),
        in_place("super", flags, true),
        jobset("elastic", &json!([runs("w", 1)]), &json!({})),
        jobset("counters", &json!([runs("w", 2)]), &policy(&restart_job)),
        jobset("exclusive", &json!([runs("w", 2)]), &exclusive),
        jobset("depends", &json!([driver, workers]), &json!({})),
        jobset(RECREATING, &json!([stubborn]), &policy(&six)),
        jobset("claims", &json!([claimed]), &claims),
        jobset("resumed", &json!([runs("w", 1)]), &json!({"spec": {"suspend": true}})),
        jobset("suspended", &json!([runs("w", SUSPENDED)]), &json!({"spec": {"suspend": true}})),
        jobset("pending", &json!([nowhere]), &json!({})),
    ]
}

/// The JobSet that is taken over in the middle of a recreation.
pub(super) const RECREATING: &str = "recreating";

/// A JobSet that ends soon. It is complete: one that is created while no admission service is registered gets no defaults,
/// and the Go manager panics on what it misses.
pub(super) fn short(name: &str) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [
        {"name": "worker", "image": images::BUSYBOX, "command": ["sleep", "1"]}]});
    let groups = json!([{"name": "w", "replicas": 1, "groupName": "default", "template": {"spec": {
        "completionMode": "Indexed", "completions": 1, "parallelism": 1, "template": {"spec": pod}}}}]);
    jobset(
        name,
        &groups,
        &json!({"metadata": {"namespace": LOAD}, "spec": {
            "suspend": false, "failurePolicy": {"maxRestarts": 1, "restartStrategy": "Recreate"},
            "successPolicy": {"operator": "All"}, "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            "network": {"enableDNSHostnames": true, "publishNotReadyAddresses": true},
        }}),
    )
}

/// The namespace of the JobSet that is placed exclusively: its Pods keep away from other JobSets' in it.
pub(super) const EXCLUSIVE: &str = "exclusive";

/// The namespace of the JobSets that come and go.
pub(super) const LOAD: &str = "load";

/// Permissions of the Go JobSet's agents.
pub(super) fn permissions() -> [Value; 2] {
    let metadata = json!({"name": "go-agent", "namespace": NAMESPACE});
    [
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]},
            {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list", "watch"]},
        ]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "go-agent"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}]}),
    ]
}
