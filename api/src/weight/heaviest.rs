//! The part of a specification that is to blame for its weight.

use k8s_openapi::api::core::v1::Container;

use crate::JobSetSpec;
use crate::field::Path;

/// The list that takes the most memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaviestPart {
    pub field: String,
    pub entries: usize,
    /// The memory that the entries take, in bytes, without what is inside of them.
    pub weight: usize,
}

/// The heaviest list of a specification, of those that can be long.
pub fn heaviest_part(spec: &JobSetSpec) -> HeaviestPart {
    let root = Path::root("spec");
    let replicated_jobs = root.child("replicatedJobs");
    let mut part = HeaviestPart { field: replicated_jobs.to_string(), entries: 0, weight: 0 };
    part.consider(&spec.replicated_jobs, &replicated_jobs);
    part.consider(spec.failure_rules(), &root.child("failurePolicy.rules"));
    let claims = root.child("volumeClaimPolicies");
    for (index, policy) in spec.volume_claim_policies.iter().enumerate() {
        part.consider(&policy.templates, &claims.index(index).child("templates"));
    }
    for (index, replicated_job) in spec.replicated_jobs.iter().enumerate() {
        let path = replicated_jobs.index(index);
        let (job, path) = (&replicated_job.template.spec, path.child("template.spec"));
        if let Some(policy) = &job.pod_failure_policy {
            part.consider(&policy.rules, &path.child("podFailurePolicy.rules"));
        }
        let Some(pod) = &job.template.spec else { continue };
        let path = path.child("template.spec");
        part.consider_optional(pod.volumes.as_ref(), &path.child("volumes"));
        part.consider_optional(pod.tolerations.as_ref(), &path.child("tolerations"));
        part.consider_optional(pod.host_aliases.as_ref(), &path.child("hostAliases"));
        part.consider_optional(pod.topology_spread_constraints.as_ref(), &path.child("topologySpreadConstraints"));
        part.consider_optional(pod.ephemeral_containers.as_ref(), &path.child("ephemeralContainers"));
        part.consider_optional(pod.init_containers.as_ref(), &path.child("initContainers"));
        part.consider(&pod.containers, &path.child("containers"));
        let init = pod.init_containers.as_deref().unwrap_or_default();
        for (field, containers) in [("initContainers", init), ("containers", &pod.containers)] {
            let list = path.child(field);
            for (index, container) in containers.iter().enumerate() {
                part.consider_container(container, &list.index(index));
            }
        }
    }
    part
}

impl HeaviestPart {
    fn consider<T>(&mut self, list: &[T], path: &Path<'_>) {
        let weight = size_of_val(list);
        if weight > self.weight {
            *self = Self { field: path.to_string(), entries: list.len(), weight };
        }
    }

    fn consider_optional<T>(&mut self, list: Option<&Vec<T>>, path: &Path<'_>) {
        if let Some(list) = list {
            self.consider(list, path);
        }
    }

    fn consider_container(&mut self, container: &Container, path: &Path<'_>) {
        self.consider_optional(container.env.as_ref(), &path.child("env"));
        self.consider_optional(container.env_from.as_ref(), &path.child("envFrom"));
        self.consider_optional(container.ports.as_ref(), &path.child("ports"));
        self.consider_optional(container.volume_mounts.as_ref(), &path.child("volumeMounts"));
    }
}
