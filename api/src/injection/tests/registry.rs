//! What a registry asks for: the pull policy and the Secrets of the agent's image.

use rstest::rstest;
use serde_json::{Value, json};

use super::{pod, with_pod};
use crate::field::Errors;
use crate::injection::{Settings, inject};

fn private() -> Settings {
    Settings {
        agent_image: Some("registry.example/agent:1".to_owned()),
        pull_policy: Some("Always".to_owned()),
        pull_secrets: vec!["registry".to_owned()],
        ..Settings::default()
    }
}

fn worker(field: &str, value: &Value) -> Value {
    json!({ "containers": [{ "name": "worker", "image": "worker:1", "command": ["train"] }], field: value })
}

/// The Pod after two injections, the second of which changes nothing.
fn injected(shape: &str, sent: &Value) -> Value {
    let mut spec = with_pod(sent);
    assert_eq!(inject(&mut spec, shape, &private()), Errors::default());
    let once = pod(&spec);
    assert_eq!(inject(&mut spec, shape, &private()), Errors::default());
    assert_eq!(pod(&spec), once);
    once
}

#[rstest]
fn settings_pull_policy_and_secrets_reach_agent_and_pod(#[values("Sidecar", "Supervisor")] shape: &str) {
    let plain = injected(shape, &worker("initContainers", &json!([])));
    assert_eq!(plain["initContainers"][0]["imagePullPolicy"], "Always");
    assert_eq!(plain["containers"][0]["imagePullPolicy"], Value::Null, "the worker's image is not the agent's");
    assert_eq!(plain["imagePullSecrets"], json!([{ "name": "registry" }]));
    for own in [json!([{ "name": "mine" }]), json!([{ "name": "registry" }, { "name": "mine" }])] {
        let kept = injected(shape, &worker("imagePullSecrets", &own))["imagePullSecrets"].clone();
        let expected = if own[0]["name"] == "mine" { json!([{ "name": "mine" }, { "name": "registry" }]) } else { own };
        assert_eq!(kept, expected);
    }
}

#[rstest]
#[case::sidecar("Sidecar", "jobset-agent")]
#[case::supervisor("Supervisor", "jobset-agent-install")]
fn agent_with_image_of_its_own_keeps_its_registry(#[case] shape: &str, #[case] name: &str) {
    let sent = worker("initContainers", &json!([{ "name": name, "image": "mine" }]));
    let pod = injected(shape, &sent);
    assert_eq!((&pod["initContainers"][0]["imagePullPolicy"], &pod["imagePullSecrets"]), (&Value::Null, &Value::Null));
}

#[rstest]
fn pull_policy_of_the_manifest_stays(#[values("Sidecar", "Supervisor")] shape: &str) {
    let name = if shape == "Sidecar" { "jobset-agent" } else { "jobset-agent-install" };
    let pod = injected(shape, &worker("initContainers", &json!([{ "name": name, "imagePullPolicy": "Never" }])));
    assert_eq!(pod["initContainers"][0]["imagePullPolicy"], "Never");
}
