//! Tests of the injection: golden cases (`cases/injection`), rejected Pods, and properties of every Pod.

mod golden;
pub(crate) mod pods;
mod properties;
mod registry;
mod rejections;
mod relay;

use serde_json::{Value, json};

use super::{Settings, inject};
use crate::JobSetSpec;
use crate::field::Errors;

pub(crate) fn settings() -> Settings {
    Settings { agent_image: Some("registry.example/jobset-agent:1".to_owned()), ..Settings::default() }
}

/// A specification with restartStrategy InPlaceRestart and one replicatedJob with this Pod.
pub(crate) fn with_pod(pod: &Value) -> JobSetSpec {
    let spec = json!({
        "failurePolicy": { "restartStrategy": "InPlaceRestart" },
        "replicatedJobs": [{ "name": "w", "template": { "spec": { "template": { "spec": pod } } } }],
    });
    serde_json::from_value(spec).unwrap()
}

pub(crate) fn pod(spec: &JobSetSpec) -> Value {
    serde_json::to_value(&spec.replicated_jobs[0].template.spec.template.spec).unwrap()
}

/// The Pod after the injection, and the errors.
fn injected(shape: &str, sent: &Value) -> (Value, Errors) {
    let mut spec = with_pod(sent);
    let errors = inject(&mut spec, shape, &settings());
    (pod(&spec), errors)
}
