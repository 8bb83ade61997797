//! JobSets with one long list, map or text each.
#![expect(clippy::needless_pass_by_value, reason = "values are made where they are passed")]

use serde_json::{Map, Value, json};

/// A JobSet with a list of so many entries.
pub(crate) type LongJobSet = fn(usize) -> Value;

/// Long in each part in turn, with values that rules accept and values that they reject.
pub(crate) const ALL: [(&str, LongJobSet); 40] = [
    ("replicatedJobs", |count| replicated_jobs(list(count, |index| job(&format!("w{index}"), json!({}))))),
    ("replicatedJobs of one name", |count| replicated_jobs(list(count, |_| job("w", json!({}))))),
    ("replicatedJobs of the largest size", |count| {
        let sizes = json!({ "spec": { "parallelism": i32::MAX, "completions": i32::MAX } });
        replicated_jobs(list(
            count,
            |index| json!({ "name": format!("w{index}"), "replicas": i32::MAX, "template": sizes }),
        ))
    }),
    ("replicatedJobs of the smallest size", |count| {
        let sizes = json!({ "spec": { "parallelism": i32::MIN, "completions": i32::MIN, "backoffLimit": i32::MIN } });
        replicated_jobs(list(
            count,
            |index| json!({ "name": format!("w{index}"), "replicas": i32::MIN, "template": sizes }),
        ))
    }),
    ("chain of dependsOn", |count| {
        replicated_jobs(list(count, |index| {
            let before = format!("w{}", index.saturating_sub(1));
            json!({ "name": format!("w{index}"), "template": {}, "dependsOn": [{ "name": before, "status": "Ready" }] })
        }))
    }),
    ("dependsOn", |count| {
        let all = list(count, |index| json!({ "name": format!("w{index}"), "status": "Complete" }));
        replicated_jobs(json!([{ "name": "w", "template": {}, "dependsOn": all }]))
    }),
    ("names that are too long", |count| replicated_jobs(list(count, |index| job(&format!("{index:060}"), json!({}))))),
    ("labels of JobSet", |count| metadata("labels", map(count))),
    ("annotations of JobSet", |count| metadata("annotations", map(count))),
    ("annotations with the prefix of JobSet", |count| {
        let keys = (0..count).map(|index| (format!("jobset.sigs.k8s.io/inject-{index}"), json!("")));
        metadata("annotations", Value::Object(keys.collect()))
    }),
    ("annotations of exclusive placement", |count| {
        let key = json!({ "metadata": { "annotations": { "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack" } } });
        let template = json!({ "metadata": key["metadata"], "spec": { "template": key } });
        replicated_jobs(list(count, |index| json!({ "name": format!("w{index}"), "template": template })))
    }),
    ("rules", |count| policy("rules", list(count, |_| json!({ "action": "FailJobSet" })))),
    ("rules of one name", |count| policy("rules", list(count, |_| json!({ "name": "a", "action": "FailJobSet" })))),
    ("rules and replicatedJobs", |count| {
        let mut jobset = policy(
            "rules",
            list(
                count,
                |index| json!({ "action": "RestartJob", "targetReplicatedJobs": [format!("w{index}")], "onJobFailureReasons": ["A"] }),
            ),
        );
        jobset["spec"]["replicatedJobs"] =
            list(count, |index| json!({ "name": format!("w{index}"), "replicas": 2000, "template": {} }));
        jobset
    }),
    ("rules that name one replicatedJob with many reasons", |count| {
        let mut jobset = policy(
            "rules",
            list(
                count,
                |index| json!({ "action": "FailJobSet", "targetReplicatedJobs": ["w"], "onJobFailureReasons": [format!("A{index}"), "B"] }),
            ),
        );
        let reasons = list(count, |index| json!({ "action": "FailJob", "setConditionReason": format!("A{index}") }));
        jobset["spec"]["replicatedJobs"] = json!([job("w", json!({ "podFailurePolicy": { "rules": reasons } }))]);
        jobset
    }),
    ("reasons and targets of one rule", |count| {
        let reasons = list(count, |index| json!(format!("A{index}")));
        let targets = list(count, |index| json!(format!("w{index}")));
        let rule = json!({ "action": "FailJobSet", "targetReplicatedJobs": targets, "onJobFailureReasons": reasons });
        let mut jobset = policy("rules", json!([rule]));
        jobset["spec"]["replicatedJobs"] = list(count, |index| {
            let rule = json!({ "action": "FailJob", "setConditionReason": format!("A{index}") });
            job(&format!("w{index}"), json!({ "podFailurePolicy": { "rules": [rule] } }))
        });
        jobset
    }),
    ("patterns", |count| rule("onJobFailureMessagePatterns", list(count, |_| json!("a")))),
    ("long patterns", |count| rule("onJobFailureMessagePatterns", list(count / 250, |_| json!("(".repeat(250))))),
    ("targets of success policy", |count| {
        let mut jobset = replicated_jobs(json!([job("w", json!({}))]));
        jobset["spec"]["successPolicy"] =
            json!({ "operator": "All", "targetReplicatedJobs": list(count, |_| json!("w")) });
        jobset
    }),
    ("targets that do not exist", |count| rule("targetReplicatedJobs", list(count, |index| json!(format!("{index}"))))),
    ("claims", |count| {
        let claims = list(count, |index| json!({ "metadata": { "name": format!("c{index}") }, "spec": {} }));
        let mounts = list(count, |index| json!({ "name": format!("c{index}"), "mountPath": "/" }));
        let mut jobset = pod(json!({ "containers": [{ "name": "c", "volumeMounts": mounts }] }));
        jobset["spec"]["volumeClaimPolicies"] = json!([{ "templates": claims }]);
        jobset
    }),
    ("policies of claims", |count| {
        let mut jobset = replicated_jobs(json!([job("w", json!({}))]));
        jobset["spec"]["volumeClaimPolicies"] = list(count, |_| json!({}));
        jobset
    }),
    ("volumes", |count| pod(json!({ "containers": [], "volumes": list(count, |_| json!({ "name": "v" })) }))),
    ("containers", |count| pod(json!({ "containers": list(count, |_| json!({ "name": "c" })) }))),
    ("init containers", |count| {
        pod(json!({ "containers": [], "initContainers": list(count, |_| json!({ "name": "c" })) }))
    }),
    ("agents", |count| {
        let rules = json!([{ "action": "RestartPod", "exitCodes": { "operator": "In", "values": [81] } }]);
        let agent = json!({ "name": "a", "restartPolicy": "Always", "restartPolicyRules": rules });
        in_place(pod(json!({ "containers": [], "initContainers": list(count, |_| agent.clone()) })))
    }),
    ("replicatedJobs without an agent", |count| {
        in_place(replicated_jobs(list(count, |index| job(&format!("w{index}"), json!({ "completions": 2 })))))
    }),
    ("containers that get an agent", |count| {
        let containers = list(count, |_| json!({ "name": "c", "command": ["run"] }));
        injected("Sidecar", json!({}), containers)
    }),
    ("codes that containers respect", |count| {
        let containers = list(count, |_| json!({ "name": "c", "command": ["run"] }));
        let codes = list(count, |index| json!(index));
        let rule = json!({ "action": "FailJob", "onExitCodes": { "operator": "NotIn", "values": codes } });
        injected("Sidecar", json!({ "rules": vec![rule; 2] }), containers)
    }),
    ("restart rules", |count| {
        let rules = list(count, |index| {
            let action = if index % 2 == 0 { "Terminate" } else { "RestartPod" };
            json!({ "action": action, "exitCodes": { "operator": "NotIn", "values": [index] } })
        });
        let env = json!([{ "name": "FATAL_EXIT_CODES", "value": "3" }]);
        let worker =
            json!({ "name": "c", "command": ["jobset-agent", "supervise"], "restartPolicyRules": rules, "env": env });
        in_place(pod(json!({ "containers": [worker] })))
    }),
    ("codes of restart rules", |count| {
        let codes = list(count, |index| json!(index));
        let rule = |action: &str| json!({ "action": action, "exitCodes": { "operator": "NotIn", "values": codes } });
        let rules: Vec<Value> =
            ["Terminate", "RestartPod"].iter().cycle().take(20).map(|action| rule(action)).collect();
        in_place(pod(json!({ "containers": [{ "name": "c", "restartPolicy": "Never", "restartPolicyRules": rules }] })))
    }),
    ("variables", |count| {
        in_place(pod(json!({ "containers": [{ "name": "c", "env": list(count, |_| json!({ "name": "A" })) }] })))
    }),
    ("mounts", |count| {
        let mounts = list(count, |index| json!({ "name": format!("{index}"), "mountPath": "/" }));
        pod(json!({ "containers": [{ "name": "c", "volumeMounts": mounts }] }))
    }),
    ("ports", |count| {
        injected(
            "Supervisor",
            json!({}),
            json!([{ "name": "c", "command": ["run"],
            "ports": list(count, |index| json!({ "containerPort": index })) }]),
        )
    }),
    ("words of a command", |count| {
        injected("Supervisor", json!({}), json!([{ "name": "c", "command": list(count, |_| json!("a")) }]))
    }),
    ("labels of Pods", |count| {
        let mut jobset = pod(json!({ "containers": [] }));
        jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] =
            json!({ "labels": map(count) });
        jobset
    }),
    ("tolerations", |count| pod(json!({ "containers": [], "tolerations": list(count, |_| json!({ "key": "a" })) }))),
    ("name of JobSet", |count| {
        let mut jobset = replicated_jobs(list(9, |index| job(&format!("w{index}"), json!({}))));
        jobset["metadata"]["name"] = json!("a".repeat(count));
        jobset
    }),
    ("names in a network", |count| {
        let mut jobset = replicated_jobs(json!([job(&"b".repeat(count), json!({}))]));
        jobset["spec"]["network"] = json!({ "subdomain": "a".repeat(count) });
        jobset["spec"]["coordinator"] =
            json!({ "replicatedJob": "b".repeat(count), "jobIndex": i32::MIN, "podIndex": i32::MAX });
        jobset
    }),
    ("other texts", |count| {
        let text = "a".repeat(count);
        let mut jobset =
            policy("rules", json!([{ "name": text, "action": "FailJobSet", "onJobFailureReasons": [text] }]));
        jobset["spec"]["managedBy"] = json!(text);
        jobset["metadata"]["annotations"] = json!({ "jobset.sigs.k8s.io/inject-agent": text,
            "jobset.sigs.k8s.io/additional-restarts": text, "jobset.sigs.k8s.io/restart-budget": text });
        jobset
    }),
];

fn list(count: usize, entry: impl Fn(usize) -> Value) -> Value {
    (0..count).map(entry).collect()
}

fn map(count: usize) -> Value {
    Value::Object((0..count).map(|index| (format!("k{index}"), json!(""))).collect::<Map<_, _>>())
}

fn job(name: &str, spec: Value) -> Value {
    json!({ "name": name, "template": { "spec": spec } })
}

fn replicated_jobs(jobs: Value) -> Value {
    json!({ "metadata": { "name": "train" }, "spec": { "replicatedJobs": jobs } })
}

fn pod(spec: Value) -> Value {
    replicated_jobs(json!([job("w", json!({ "template": { "spec": spec } }))]))
}

fn metadata(field: &str, value: Value) -> Value {
    let mut jobset = replicated_jobs(json!([job("w", json!({}))]));
    jobset["metadata"][field] = value;
    jobset
}

fn policy(field: &str, value: Value) -> Value {
    let mut jobset = replicated_jobs(json!([job("w", json!({}))]));
    jobset["spec"]["failurePolicy"] = json!({ (field): value });
    jobset
}

fn rule(field: &str, value: Value) -> Value {
    policy("rules", json!([{ "action": "FailJobSet", (field): value }]))
}

fn in_place(mut jobset: Value) -> Value {
    jobset["spec"]["failurePolicy"] = json!({ "restartStrategy": "InPlaceRestart", "maxRestarts": i32::MAX });
    jobset
}

fn injected(shape: &str, policy: Value, containers: Value) -> Value {
    let mut jobset = in_place(pod(json!({ "containers": containers })));
    jobset["metadata"]["annotations"] = json!({ "jobset.sigs.k8s.io/inject-agent": shape,
        "kubectl.kubernetes.io/default-container": "c" });
    if policy != json!({}) {
        jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"] = policy;
    }
    jobset
}
