//! Volumes that containers mount: volumes of the Pod, or claims of the JobSet.

use std::collections::HashSet;

use super::subject::{Subject, for_each_container};
use crate::field::{Errors, Path};

const EXISTS: &str = "must be the name of one of the Pod's volumes, or of a claim of spec.volumeClaimPolicies";

/// Rejects mounts of volumes that do not exist: the API server would refuse the Jobs.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let templates = subject.spec.volume_claim_policies.iter().flat_map(|policy| &policy.templates);
    let claims: HashSet<_> = templates.filter_map(|template| template.metadata.name.as_deref()).collect();
    subject.for_each_pod(spec, |pod, path| {
        let volumes: HashSet<_> = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
        for_each_container(pod, path, |container, path| {
            let mounts = path.child("volumeMounts");
            for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
                if !volumes.contains(mount.name.as_str()) && !claims.contains(mount.name.as_str()) {
                    errors.not_found(&mounts.index(index).child("name"), &mount.name, EXISTS);
                }
            }
        });
    });
}
