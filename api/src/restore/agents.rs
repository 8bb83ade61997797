//! Injects the agent into an update as admission did at creation, in the shape of the stored Pods.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, PodSpec};

use crate::field::{Errors, Path};
use crate::injection::projected::RELAY_CREDENTIALS;
use crate::injection::{AgentResources, Settings, Shape, StallSettings, inject_job, progress};
use crate::{JobSetSpec, JobTemplateSpec, RestartStrategy, agent};

/// The stored Job specifications, by the name of their replicatedJob.
pub(super) type Stored<'a> = HashMap<&'a str, &'a JobTemplateSpec>;

/// Injects the agent into each Pod whose stored Pod has one, in the stored shape. The annotation is not read: it only
/// counts when the JobSet is created.
pub(super) fn inject(full: &mut JobSetSpec, stored: &Stored<'_>) {
    let in_place = full.restart_strategy() == RestartStrategy::InPlaceRestart;
    for job in &mut full.replicated_jobs {
        let stored = stored.get(job.name.as_str()).and_then(|job| job.template.spec.as_ref());
        let Some((stored, shape)) = stored.and_then(|pod| Some((pod, shape(pod)?))) else { continue };
        let job = &mut job.template.spec;
        job.template.spec.iter_mut().for_each(remove_empty_epoch);
        if in_place {
            // Errors are dropped: validation compares the result with the stored object and reports differences.
            inject_job(job, shape, &settings(stored), &Path::root("spec"), &mut Errors::default());
        }
        job.template.spec.iter_mut().for_each(|pod| add_stored_pull_secrets(pod, stored));
    }
}

/// Image, pull policy, address of the relays and resources do not matter, because the stored ones are restored, and what is not stored
/// is not added. Admission injects no relay into a Pod with another volume of the name, and no file for progress.
fn settings(stored: &PodSpec) -> Settings {
    Settings {
        agent_image: Some(String::new()),
        pull_policy: Some(String::new()),
        agent_resources: AgentResources::of_all(),
        relay: RELAY_CREDENTIALS.other(stored).is_none().then(String::new),
        stalls: progress::other_volume(stored).is_none().then(StallSettings::any),
        ..Settings::default()
    }
}

/// Adds the stored pull secrets that follow those of the Pod: the injection adds its own at the end.
fn add_stored_pull_secrets(pod: &mut PodSpec, stored: &PodSpec) {
    let stored = stored.image_pull_secrets.as_deref().unwrap_or_default();
    if let Some(added) = stored.strip_prefix(pod.image_pull_secrets.as_deref().unwrap_or_default())
        && !added.is_empty()
    {
        pod.image_pull_secrets.get_or_insert_default().extend_from_slice(added);
    }
}

/// The shape of the Pod's agent. A Pod with a supervisor has no injected sidecar.
fn shape(pod: &PodSpec) -> Option<Shape> {
    let mut init = pod.init_containers.iter().flatten();
    if pod.containers.iter().any(agent::is_supervised_by_command) {
        Some(Shape::Supervisor)
    } else {
        init.any(|container| container.name == agent::NAME).then_some(Shape::Sidecar)
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
