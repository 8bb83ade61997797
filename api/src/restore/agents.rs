//! Injects the agent into an update as admission did at creation, in the shape of the stored Pods.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, PodSpec};

use crate::{JobSetSpec, JobTemplateSpec, agent, injection};

/// The stored Job specifications, by the name of their replicatedJob.
pub(super) type Stored<'a> = HashMap<&'a str, &'a JobTemplateSpec>;

const SIDECAR: &str = "Sidecar";
const SUPERVISOR: &str = "Supervisor";

/// Injects the agent into each Pod whose stored Pod has one, in the stored shape. The annotation is not read: it only
/// counts when the JobSet is created.
pub(super) fn inject(full: &mut JobSetSpec, stored: &Stored<'_>) {
    let shape_of = |name: &str| shape(stored.get(name)?.template.spec.as_ref()?);
    let shapes: Vec<_> = full.replicated_jobs.iter().map(|job| shape_of(&job.name)).collect();
    // The image and its pull policy do not matter, because the stored ones are restored. Errors are dropped: validation
    // compares the result with the stored object and reports differences.
    let settings = injection::Settings {
        agent_image: Some(String::new()),
        pull_policy: Some(String::new()),
        ..injection::Settings::default()
    };
    for shape in [SIDECAR, SUPERVISOR] {
        if !shapes.contains(&Some(shape)) {
            continue;
        }
        let mut injected = full.clone();
        injected
            .replicated_jobs
            .iter_mut()
            .filter_map(|job| job.template.spec.template.spec.as_mut())
            .for_each(remove_empty_epoch);
        let _ = injection::inject(&mut injected, shape, &settings);
        let jobs = full.replicated_jobs.iter_mut().zip(injected.replicated_jobs).zip(&shapes);
        for ((job, injected), _) in jobs.filter(|(_, it)| **it == Some(shape)) {
            *job = injected;
            if let (Some(pod), Some(stored)) = (&mut job.template.spec.template.spec, stored.get(job.name.as_str())) {
                add_stored_pull_secrets(pod, stored.template.spec.as_ref());
            }
        }
    }
}

/// Adds the stored pull secrets that follow those of the Pod: the injection adds its own at the end.
fn add_stored_pull_secrets(pod: &mut PodSpec, stored: Option<&PodSpec>) {
    let stored = stored.and_then(|it| it.image_pull_secrets.as_deref()).unwrap_or_default();
    if let Some(added) = stored.strip_prefix(pod.image_pull_secrets.as_deref().unwrap_or_default())
        && !added.is_empty()
    {
        pod.image_pull_secrets.get_or_insert_default().extend_from_slice(added);
    }
}

/// The shape of the Pod's agent, by its name in the annotation. A Pod with a supervisor has no injected sidecar.
fn shape(pod: &PodSpec) -> Option<&'static str> {
    let mut init = pod.init_containers.iter().flatten();
    if pod.containers.iter().any(agent::is_supervised_by_command) {
        Some(SUPERVISOR)
    } else {
        init.any(|container| container.name == agent::NAME).then_some(SIDECAR)
    }
}

/// Removes the epoch variable if it has an empty `valueFrom`. A client whose types lack `fileKeyRef` writes it so.
fn remove_empty_epoch(pod: &mut PodSpec) {
    let empty_source = Some(EnvVarSource::default());
    let is_empty = |it: &EnvVar| it.name == agent::EPOCH && it.value.is_none() && it.value_from == empty_source;
    for env in pod.containers.iter_mut().filter_map(|container| container.env.as_mut()) {
        env.retain(|variable| !is_empty(variable));
    }
}
