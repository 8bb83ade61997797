//! Random Pods for properties: with parts of the agent, with ports and probes of their own, and with fields that
//! prevent an injection.

use proptest::prelude::*;
use serde_json::{Value, json};

/// An optional field.
fn maybe(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![3 => Just(None), 1 => value.prop_map(Some)]
}

fn object(fields: Vec<(&str, Option<Value>)>) -> Value {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn one_of(values: &[Value]) -> impl Strategy<Value = Value> + use<> {
    prop::sample::select(values.to_vec())
}

fn container(names: &[&str]) -> impl Strategy<Value = Value> + use<> {
    let names: Vec<Value> = names.iter().map(|name| json!(name)).collect();
    let env = prop::collection::vec(
        one_of(&[
            json!({ "name": "NAMESPACE", "value": "mine" }),
            json!({ "name": "BARRIER_PORT", "value": "8085" }),
            json!({ "name": "BARRIER_PORT", "value": "many" }),
            json!({ "name": "BARRIER_PATH", "value": "/mine" }),
            json!({ "name": "JOBSET_EPOCH", "value": "7" }),
            json!({ "name": "IN_PLACE_RESTART_EXIT_CODE", "value": "9" }),
            json!({ "name": "MINE", "value": "1" }),
            json!({ "name": "JOBSET_RELAY", "value": "mine:9443" }),
        ]),
        0..3,
    );
    let ports = prop::collection::vec(
        one_of(&[
            json!({ "containerPort": 8080 }),
            json!({ "containerPort": 8080, "protocol": "UDP" }),
            json!({ "containerPort": 8081, "name": "barrier" }),
            json!({ "containerPort": 9000, "hostPort": 8082 }),
        ]),
        0..3,
    );
    let rules = one_of(&[
        json!([]),
        json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [81] } }]),
        json!([{ "action": "Restart", "exitCodes": { "operator": "NotIn", "values": [0] } }]),
    ]);
    let commands =
        one_of(&[json!([]), json!(["run", "--all"]), json!(["/bin/jobset-agent", "supervise", "--", "run"])]);
    let probe = || maybe(one_of(&[json!({ "exec": { "command": ["true"] } })]));
    let mounts = one_of(&[
        json!([]),
        json!([{ "name": "mine", "mountPath": "/mine" }]),
        json!([{ "name": "mine", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }]),
        json!([{ "name": "mine", "mountPath": "/var/run/secrets/jobset-relay" }]),
    ]);
    let list = |list: Vec<Value>| json!(list);
    let what = (one_of(&names), maybe(Just(json!("image:1"))), maybe(commands), maybe(mounts));
    let how = (maybe(one_of(&[json!("Always"), json!("Never"), json!("OnFailure")])), maybe(rules));
    let where_ = (maybe(env.prop_map(list)), maybe(ports.prop_map(list)));
    let probes = (probe(), probe(), probe());
    let resources = maybe(one_of(&[
        json!({ "limits": { "cpu": "1", "memory": "1Gi" } }),
        json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "2", "memory": "1Gi" } }),
    ]));
    let security = maybe(Just(json!({ "runAsUser": 7 })));
    (what, how, where_, probes, resources, security).prop_map(|(what, how, where_, probes, resources, security)| {
        object(vec![
            ("name", Some(what.0)),
            ("image", what.1),
            ("command", what.2),
            ("volumeMounts", what.3),
            ("restartPolicy", how.0),
            ("restartPolicyRules", how.1),
            ("env", where_.0),
            ("ports", where_.1),
            ("readinessProbe", probes.0),
            ("startupProbe", probes.1),
            ("livenessProbe", probes.2),
            ("resources", resources),
            ("securityContext", security),
        ])
    })
}

/// A random Pod specification.
pub(crate) fn pod() -> impl Strategy<Value = Value> {
    let init = prop::collection::vec(container(&["jobset-agent", "jobset-agent-install", "setup", "agent"]), 0..3);
    let main = prop_oneof![
        3 => prop::collection::vec(container(&["worker"]), 1),
        1 => prop::collection::vec(container(&["worker", "helper", "jobset-agent"]), 0..3),
    ];
    let volumes = one_of(&[
        json!([]),
        json!([{ "name": "mine", "emptyDir": {} }]),
        json!([{ "name": "jobset-agent-token", "emptyDir": {} }, { "name": "jobset-agent", "emptyDir": {} }]),
        json!([{ "name": "jobset-relay", "emptyDir": {} }]),
        json!([{ "name": "jobset-relay", "projected": {} }]),
    ]);
    let list = |list: Vec<Value>| json!(list);
    let flag = || maybe(one_of(&[json!(true), json!(false)]));
    let whole = maybe(Just(json!({ "limits": { "cpu": "1" } })));
    (maybe(init.prop_map(list)), main.prop_map(list), maybe(volumes), flag(), flag(), whole).prop_map(
        |(init, main, volumes, shared, automount, resources)| {
            object(vec![
                ("initContainers", init),
                ("containers", Some(main)),
                ("volumes", volumes),
                ("shareProcessNamespace", shared),
                ("automountServiceAccountToken", automount),
                ("resources", resources),
            ])
        },
    )
}
