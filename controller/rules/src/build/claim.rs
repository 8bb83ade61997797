//! The PersistentVolumeClaims of a JobSet, and the volumes by which its Pods mount them.

use std::collections::HashSet;

use jobset_api::{JobSet, RetentionPolicy, VolumeClaimPolicy, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodSpec, Volume};
use kube::ResourceExt;
use kube::api::ObjectMeta;

/// The position of a claim in its JobSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimPlace {
    /// Index of its policy in the specification.
    pub policy: usize,
    /// Index of its template in that policy.
    pub template: usize,
}

/// The specified claims of a JobSet: each template of each policy. [`names::claim`] gives the name, [`claim`] builds the object.
pub fn claims(jobset: &JobSet) -> impl Iterator<Item = (ClaimPlace, &PersistentVolumeClaim)> {
    let policies = jobset.spec.volume_claim_policies.iter().enumerate();
    policies.flat_map(|(policy, VolumeClaimPolicy { templates, .. })| {
        templates.iter().enumerate().map(move |(template, claim)| (ClaimPlace { policy, template }, claim))
    })
}

/// Builds the claim of a template. A claim has the JobSet as its owner only if the policy deletes it with the JobSet.
///
/// # Panics
/// If the place is that of another JobSet.
pub fn claim(jobset: &JobSet, place: ClaimPlace) -> PersistentVolumeClaim {
    let policy = &jobset.spec.volume_claim_policies[place.policy];
    let template = &policy.templates[place.template];
    let when_deleted =
        policy.retention_policy.as_ref().and_then(|retention| retention.when_deleted).unwrap_or_default();
    let mut metadata = super::metadata(jobset, names::claim(&template.name_any(), &jobset.name_any()));
    let own = metadata.labels.take().into_iter().flatten();
    let labels = template.labels().clone().into_iter().chain(own).collect();
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            labels: Some(labels),
            annotations: template.metadata.annotations.clone(),
            owner_references: metadata.owner_references.filter(|_| when_deleted == RetentionPolicy::Delete),
            ..metadata
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Adds a volume for each claim that a container mounts by the name of the claim template. A volume of that name in the Pod
/// template has precedence.
pub(super) fn add_volumes(jobset: &JobSet, pod: &mut PodSpec) {
    let volumes: HashSet<&str> = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
    let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
    let mounts = containers.flat_map(|container| container.volume_mounts.iter().flatten());
    let mut unfilled: HashSet<&str> = mounts.map(|mount| mount.name.as_str()).collect();
    unfilled.retain(|name| !volumes.contains(name));
    let mut added = Vec::new();
    for (_, template) in claims(jobset) {
        let name = template.name_any();
        if unfilled.remove(name.as_str()) {
            let claim_name = names::claim(&name, &jobset.name_any());
            let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
            added.push(Volume { name, persistent_volume_claim: Some(source), ..Volume::default() });
        }
    }
    if !added.is_empty() {
        pod.volumes.get_or_insert_default().extend(added);
    }
}
