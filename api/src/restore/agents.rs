//! Which agent an update would have been given when its JobSet was created: that of the Pods that are stored.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, PodSpec};

use crate::{JobSetSpec, JobTemplateSpec, agent, injection};

/// The Jobs that are stored, by the name of their replicatedJob.
pub(super) type Stored<'a> = HashMap<&'a str, &'a JobTemplateSpec>;

const SIDECAR: &str = "Sidecar";
const SUPERVISOR: &str = "Supervisor";

/// Injects the agent where one is stored, in its shape. What the annotation says now is no matter: it was read when the
/// JobSet was created.
pub(super) fn inject(full: &mut JobSetSpec, stored: &Stored<'_>) {
    let shape_of = |name: &str| shape(stored.get(name)?.template.spec.as_ref()?);
    let shapes: Vec<_> = full.replicated_jobs.iter().map(|job| shape_of(&job.name)).collect();
    // Any image will do: the one that is restored is that which is stored. What stands against an injection is
    // reported by those who compare the outcome.
    let settings = injection::Settings { agent_image: Some(String::new()) };
    for shape in [SIDECAR, SUPERVISOR] {
        if !shapes.contains(&Some(shape)) {
            continue;
        }
        let mut injected = full.clone();
        injected.replicated_jobs.iter_mut().filter_map(|job| job.template.spec.template.spec.as_mut()).for_each(forget);
        let _ = injection::inject(&mut injected, shape, &settings);
        let jobs = full.replicated_jobs.iter_mut().zip(injected.replicated_jobs).zip(&shapes);
        for ((job, injected), _) in jobs.filter(|(_, it)| **it == Some(shape)) {
            *job = injected;
        }
    }
}

/// The shape of a Pod's agent, as the annotation names it. No sidecar is injected beside a supervisor.
fn shape(pod: &PodSpec) -> Option<&'static str> {
    let mut init = pod.init_containers.iter().flatten();
    if pod.containers.iter().any(agent::is_supervised_by_command) {
        Some(SUPERVISOR)
    } else {
        init.any(|container| container.name == agent::NAME).then_some(SIDECAR)
    }
}

/// Takes out the epoch of workers as a client writes it whose types know no `fileKeyRef`: from nowhere.
fn forget(pod: &mut PodSpec) {
    let nowhere = Some(EnvVarSource::default());
    let is_empty = |it: &EnvVar| it.name == agent::EPOCH && it.value.is_none() && it.value_from == nowhere;
    for env in pod.containers.iter_mut().filter_map(|container| container.env.as_mut()) {
        env.retain(|variable| !is_empty(variable));
    }
}
