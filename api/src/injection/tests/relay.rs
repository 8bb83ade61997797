//! What an agent gets that speaks with relays: their address, and a token and a CA for them.

use rstest::rstest;
use serde_json::{Value, json};

use super::{injected as without_relay, pod, settings, with_pod};
use crate::agent::uses_relay;
use crate::field::Errors;
use crate::injection::{Settings, inject};

const ADDRESS: &str = "jobset-relay.jobset-system.svc:9443";
const FOLDER: &str = "/var/run/secrets/jobset-relay";

fn with_relay() -> Settings {
    Settings { relay: Some(ADDRESS.to_owned()), ..settings() }
}

fn worker(field: &str, value: &Value) -> Value {
    json!({ "containers": [{ "name": "worker", "image": "worker:1", "command": ["train"] }], field: value })
}

/// A Pod whose agent's container has this field before the injection.
fn agent_with(shape: &str, field: &str, value: &Value) -> Value {
    let mut pod = worker("initContainers", &json!([]));
    match shape {
        "Sidecar" => pod["initContainers"] = json!([{ "name": "jobset-agent", field: value }]),
        _ => pod["containers"][0][field] = value.clone(),
    }
    pod
}

/// The agent's container.
fn agent<'a>(shape: &str, pod: &'a Value) -> &'a Value {
    let list = if shape == "Sidecar" { "initContainers" } else { "containers" };
    &pod[list][0]
}

/// The Pod after two injections, the second of which changes nothing.
fn injected(shape: &str, sent: &Value) -> Value {
    let mut spec = with_pod(sent);
    assert_eq!(inject(&mut spec, shape, &with_relay()), Errors::default());
    let once = pod(&spec);
    assert_eq!(inject(&mut spec, shape, &with_relay()), Errors::default());
    assert_eq!(pod(&spec), once);
    once
}

/// The addresses of the relays in the container's environment.
fn addresses(container: &Value) -> Vec<&Value> {
    let variables = container["env"].as_array().into_iter().flatten();
    variables.filter(|variable| variable["name"] == "JOBSET_RELAY").map(|variable| &variable["value"]).collect()
}

/// The mounts in the relay's folder.
fn mounts(container: &Value) -> Vec<&Value> {
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    mounts.filter(|mount| mount["mountPath"].as_str().is_some_and(|path| path.starts_with(FOLDER))).collect()
}

fn volumes<'a>(pod: &'a Value, name: &str) -> Vec<&'a Value> {
    pod["volumes"].as_array().into_iter().flatten().filter(|volume| volume["name"] == name).collect()
}

#[rstest]
fn agent_gets_address_token_and_ca_of_relay(#[values("Sidecar", "Supervisor")] shape: &str) {
    let pod = injected(shape, &worker("initContainers", &json!([{ "name": "setup" }])));
    let agent = agent(shape, &pod);
    assert_eq!(addresses(agent), [ADDRESS]);
    assert_eq!(mounts(agent), [&json!({ "name": "jobset-relay", "mountPath": FOLDER, "readOnly": true })]);
    let volume = json!({ "name": "jobset-relay", "projected": { "sources": [
        { "serviceAccountToken": { "audience": "jobset-relay", "expirationSeconds": 3607, "path": "token" } },
        { "configMap": { "name": "jobset-relay-ca", "optional": true, "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
    ] } });
    assert_eq!(volumes(&pod, "jobset-relay"), [&volume]);
    assert!(uses_relay(&serde_json::from_value(pod.clone()).unwrap()));
}

#[rstest]
fn containers_beside_agent_get_nothing_of_relay(#[values("Sidecar", "Supervisor")] shape: &str) {
    let pod = injected(shape, &worker("initContainers", &json!([{ "name": "setup" }])));
    let containers = ["initContainers", "containers"].into_iter().flat_map(|list| pod[list].as_array().unwrap());
    let reached = containers.filter(|it| !mounts(it).is_empty() || !addresses(it).is_empty());
    let reached: Vec<_> = reached.map(|it| &it["name"]).collect();
    assert_eq!(reached, [&agent(shape, &pod)["name"]]);
}

#[rstest]
fn injection_without_relay_adds_nothing_of_it(#[values("Sidecar", "Supervisor")] shape: &str) {
    let sent = worker("volumes", &json!([{ "name": "jobset-relay", "emptyDir": {} }]));
    let (pod, errors) = without_relay(shape, &sent);
    assert_eq!(errors, Errors::default());
    assert_eq!(volumes(&pod, "jobset-relay"), [&sent["volumes"][0]]);
    assert!(mounts(agent(shape, &pod)).is_empty() && addresses(agent(shape, &pod)).is_empty());
    assert!(!uses_relay(&serde_json::from_value(pod).unwrap()));
}

#[rstest]
fn address_of_manifest_stays(#[values("Sidecar", "Supervisor")] shape: &str) {
    let own = json!([{ "name": "JOBSET_RELAY", "value": "relay.example:9443" }]);
    let pod = injected(shape, &agent_with(shape, "env", &own));
    assert_eq!(addresses(agent(shape, &pod)), ["relay.example:9443"]);
    assert_eq!(mounts(agent(shape, &pod)).len(), 1);
}

#[rstest]
#[case::own_volume("mine", 0)]
#[case::volume_of_the_injection("jobset-relay", 1)]
fn mount_of_manifest_in_folder_of_relay_stays(
    #[case] volume: &str,
    #[case] added: usize,
    #[values("Sidecar", "Supervisor")] shape: &str,
) {
    let own = json!({ "name": volume, "mountPath": format!("{FOLDER}/") });
    let pod = injected(shape, &agent_with(shape, "volumeMounts", &json!([own])));
    assert_eq!(mounts(agent(shape, &pod)), [&own]);
    assert_eq!(volumes(&pod, "jobset-relay").len(), added, "the volume is added where it is mounted");
    assert_eq!(addresses(agent(shape, &pod)), [ADDRESS]);
}

#[rstest]
fn projected_volume_of_manifest_stays(#[values("Sidecar", "Supervisor")] shape: &str) {
    let own = json!({ "name": "jobset-relay", "projected": { "sources": [] } });
    let pod = injected(shape, &worker("volumes", &json!([own])));
    assert_eq!(volumes(&pod, "jobset-relay"), [&own]);
}

#[rstest]
fn volume_of_relay_not_projected_is_rejected(#[values("Sidecar", "Supervisor")] shape: &str) {
    let mut spec = with_pod(&worker("volumes", &json!([{ "name": "jobset-relay", "emptyDir": {} }])));
    let before = spec.clone();
    let errors = inject(&mut spec, shape, &with_relay());
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let expected = "spec.replicatedJobs[0].template.spec.template.spec.volumes[0].name: Invalid value: \"jobset-relay\": \
                    must not be the name of a volume that is not projected";
    assert!(errors.len() == 1 && errors[0].starts_with(expected), "{errors:?}");
    assert_eq!(spec, before);
}

#[test]
fn pod_with_agent_of_another_name_gets_nothing_of_relay() {
    let sent = json!([{ "name": "agent", "restartPolicy": "Always", "env": [{ "name": "JOBSET_NAME", "value": "train" }],
        "restartPolicyRules": [{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [81] } }] }]);
    let sent = worker("initContainers", &sent);
    assert_eq!(injected("Sidecar", &sent), pod(&with_pod(&sent)));
}
