//! Injects the agent into an update as admission did at creation, in the shape of the stored Pods.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, PodSpec};

use crate::injection::relay;
use crate::{JobSetSpec, JobTemplateSpec, agent, injection};

/// The stored Job specifications, by the name of their replicatedJob.
pub(super) type Stored<'a> = HashMap<&'a str, &'a JobTemplateSpec>;

const SIDECAR: &str = "Sidecar";
const SUPERVISOR: &str = "Supervisor";

/// How the agent of a stored Pod may have been injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoredAgent {
    shape: &'static str,
    /// False if the Pod has a volume with which admission injects no relay.
    may_have_relay: bool,
}

impl StoredAgent {
    const ALL: [Self; 4] = [
        Self { shape: SIDECAR, may_have_relay: true },
        Self { shape: SIDECAR, may_have_relay: false },
        Self { shape: SUPERVISOR, may_have_relay: true },
        Self { shape: SUPERVISOR, may_have_relay: false },
    ];

    fn of(pod: &PodSpec) -> Option<Self> {
        Some(Self { shape: shape(pod)?, may_have_relay: relay::other_volume(pod).is_none() })
    }

    /// Image, pull policy and address of the relays do not matter, because the stored ones are restored.
    fn settings(self) -> injection::Settings {
        injection::Settings {
            agent_image: Some(String::new()),
            pull_policy: Some(String::new()),
            relay: self.may_have_relay.then(String::new),
            ..injection::Settings::default()
        }
    }
}

/// Injects the agent into each Pod whose stored Pod has one, in the stored shape. The annotation is not read: it only
/// counts when the JobSet is created.
pub(super) fn inject(full: &mut JobSetSpec, stored: &Stored<'_>) {
    let agent_of = |name: &str| StoredAgent::of(stored.get(name)?.template.spec.as_ref()?);
    let agents: Vec<_> = full.replicated_jobs.iter().map(|job| agent_of(&job.name)).collect();
    for agent in StoredAgent::ALL {
        if !agents.contains(&Some(agent)) {
            continue;
        }
        let mut injected = full.clone();
        injected
            .replicated_jobs
            .iter_mut()
            .filter_map(|job| job.template.spec.template.spec.as_mut())
            .for_each(remove_empty_epoch);
        // Errors are dropped: validation compares the result with the stored object and reports differences.
        let _ = injection::inject(&mut injected, agent.shape, &agent.settings());
        let jobs = full.replicated_jobs.iter_mut().zip(injected.replicated_jobs).zip(&agents);
        for ((job, injected), _) in jobs.filter(|(_, it)| **it == Some(agent)) {
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
