//! The PersistentVolumeClaims of a JobSet, and the volumes by which its Pods mount them.

use jobset_api::{JobSet, RetentionPolicy, VolumeClaimPolicy, labels, names};
use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodSpec, Volume,
};
use kube::ResourceExt;
use kube::api::ObjectMeta;

/// The specified claims of a JobSet: each policy with each of its templates. [`names::claim`] gives the name, [`claim`] builds
/// the object.
pub fn claims(jobset: &JobSet) -> impl Iterator<Item = (&VolumeClaimPolicy, &PersistentVolumeClaim)> {
    let policies = jobset.spec.volume_claim_policies.iter();
    policies.flat_map(|policy| policy.templates.iter().map(move |template| (policy, template)))
}

/// Builds the claim of a template. A claim has the JobSet as its owner only if the policy deletes it with the JobSet.
pub fn claim(jobset: &JobSet, policy: &VolumeClaimPolicy, template: &PersistentVolumeClaim) -> PersistentVolumeClaim {
    let mut labels = template.labels().clone();
    labels.insert(labels::JOBSET_NAME.to_owned(), jobset.name_any());
    let retained = when_deleted(policy) == RetentionPolicy::Retain;
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(names::claim(&template.name_any(), &jobset.name_any())),
            namespace: jobset.namespace(),
            labels: Some(labels),
            annotations: template.metadata.annotations.clone(),
            owner_references: (!retained).then(|| vec![super::owner_reference(jobset)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

fn when_deleted(policy: &VolumeClaimPolicy) -> RetentionPolicy {
    policy.retention_policy.as_ref().and_then(|retention| retention.when_deleted).unwrap_or_default()
}

/// Adds a volume for each claim that a container mounts by the name of the claim template. A volume of that name in the Pod
/// template has precedence.
pub(super) fn add_volumes(jobset: &JobSet, pod: &mut PodSpec) {
    for (_, template) in claims(jobset) {
        let name = template.name_any();
        let has_volume = pod.volumes.iter().flatten().any(|volume| volume.name == name);
        if !has_volume && is_mounted(pod, &name) {
            let claim_name = names::claim(&name, &jobset.name_any());
            let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
            let volume = Volume { name, persistent_volume_claim: Some(source), ..Volume::default() };
            pod.volumes.get_or_insert_default().push(volume);
        }
    }
}

fn is_mounted(pod: &PodSpec, volume: &str) -> bool {
    let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
    let mounts = |container: &Container| container.volume_mounts.iter().flatten().any(|mount| mount.name == volume);
    containers.into_iter().any(mounts)
}
