//! Persistent volume claims that the JobSet creates and its Pods share.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::subject::{JobSetName, Subject};
use crate::ReplicatedJob;
use crate::field::{Errors, Path};
use crate::syntax;

/// Maximum number of policies, and of templates of one policy.
const LIMIT: usize = 50;
const TOO_MANY: &str = "must have at most 50 items";
const UNIQUE: &str = "must be unique in all of spec.volumeClaimPolicies: it is the name of a volume";
const NAMESPACE: &str = "must not be set: claims are created in the namespace of the JobSet";
const MOUNTED: &str = "must be mounted: add a volumeMount of this name to a container, or remove the template";

/// Rejects claims that no Pod mounts, and claims whose volume name is not unique.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let policies = &subject.spec.volume_claim_policies;
    if policies.is_empty() {
        return;
    }
    let path = spec.child("volumeClaimPolicies");
    if policies.len() > LIMIT {
        errors.too_many(&path, policies.len(), TOO_MANY);
    }
    let pod_volumes = PodVolumes::of(&subject.spec.replicated_jobs);
    let mut names = HashSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("templates");
        if policy.templates.len() > LIMIT {
            errors.too_many(&path, policy.templates.len(), TOO_MANY);
        }
        for (index, template) in policy.templates.iter().enumerate() {
            let path = path.index(index);
            let path = path.child("metadata");
            if let Some(name) = claim(template, subject.name, &path, errors) {
                used(name, &mut names, &pod_volumes, &path.child("name"), errors);
            }
        }
    }
}

/// Rejects names that are not valid names of volumes: the API server would refuse the Jobs.
pub(super) fn check_names(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let path = spec.child("volumeClaimPolicies");
    for (index, policy) in subject.spec.volume_claim_policies.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("templates");
        for (index, template) in policy.templates.iter().enumerate() {
            let path = path.index(index);
            volume_name(template, &path.child("metadata.name"), errors);
        }
    }
}

/// The name of the claim's volume. `None`, with an error, if it is not a valid name of a volume: it must have no dots.
fn volume_name<'a>(template: &'a PersistentVolumeClaim, path: &Path<'_>, errors: &mut Errors) -> Option<&'a str> {
    let name = template.metadata.name.as_deref().unwrap_or_default();
    if syntax::is_dns1123_label(name) {
        return Some(name);
    }
    errors.invalid(path, name, syntax::DNS_1123_LABEL);
    None
}

/// Checks the claim itself. Returns its name if it is valid.
fn claim<'a>(
    template: &'a PersistentVolumeClaim,
    jobset: JobSetName<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<&'a str> {
    if let Some(namespace) = template.metadata.namespace.as_deref().filter(|it| !it.is_empty()) {
        errors.invalid(&path.child("namespace"), namespace, NAMESPACE);
    }
    let field = path.child("name");
    let name = volume_name(template, &field, errors)?;
    let length = name.len() + 1 + jobset.len();
    if length > syntax::LABEL_LENGTH {
        let required = format_args!(
            "the claim would be named \"{name}-{jobset}\", {length} characters of at most 63: shorten this name or that \
             of the JobSet"
        );
        errors.invalid(&field, name, required);
    }
    Some(name)
}

/// Checks the claim against the volumes of the Pods.
fn used<'a>(
    name: &'a str,
    names: &mut HashSet<&'a str>,
    pod_volumes: &PodVolumes<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !names.insert(name) {
        errors.duplicate(path, name, UNIQUE);
    } else if let Some((job, volume)) = pod_volumes.volumes.get(name) {
        let volume = format!("spec.replicatedJobs[{job}].template.spec.template.spec.volumes[{volume}]");
        errors.duplicate(path, name, format_args!("must not be the name of {volume}: rename one of them"));
    } else if !pod_volumes.mounted.contains(name) {
        errors.invalid(path, name, MOUNTED);
    }
}

/// Volumes and mounts of the Pod templates.
struct PodVolumes<'a> {
    /// Indexes of the replicatedJob and of the volume, by the name of the volume.
    volumes: HashMap<&'a str, (usize, usize)>,
    mounted: HashSet<&'a str>,
}

impl<'a> PodVolumes<'a> {
    fn of(replicated_jobs: &'a [ReplicatedJob]) -> Self {
        let mut found = Self { volumes: HashMap::new(), mounted: HashSet::new() };
        for (job, replicated_job) in replicated_jobs.iter().enumerate() {
            let Some(pod) = &replicated_job.template.spec.template.spec else { continue };
            for (place, volume) in pod.volumes.iter().flatten().enumerate() {
                found.volumes.entry(&volume.name).or_insert((job, place));
            }
            let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
            let mounts = containers.flat_map(|container| container.volume_mounts.iter().flatten());
            found.mounted.extend(mounts.map(|mount| mount.name.as_str()));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::rejects;

    #[test]
    fn claims_above_limits_are_rejected() {
        let policies = |value: Value| ("/spec/volumeClaimPolicies", value);
        let many = policies(json!(vec![json!({ "templates": [] }); 51]));
        rejects(&[many], "spec.volumeClaimPolicies: Too many: 51: must have at most 50 items");
        let names: Vec<_> = (0..51).map(|index| format!("c{index}")).collect();
        let claims: Vec<_> = names.iter().map(|name| json!({ "metadata": { "name": name }, "spec": {} })).collect();
        let mounts = names.iter().map(|name| json!({ "name": name, "mountPath": format!("/{name}") })).collect();
        let mounted = ("/spec/replicatedJobs/1/template/spec/template/spec/containers/0/volumeMounts", mounts);
        let expected = "spec.volumeClaimPolicies[0].templates: Too many: 51: must have at most 50 items";
        rejects(&[policies(json!([{ "templates": claims }])), mounted], expected);
    }
}
