//! The children that a JobSet should have. Pure: a JobSet in, objects out.

mod job;
mod service;

pub use job::{Place, job};
pub use service::service;

use jobset_api::JobSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};

/// The reference by which a child belongs to its JobSet.
fn owner_reference(jobset: &JobSet) -> OwnerReference {
    OwnerReference {
        api_version: JobSet::api_version(&()).into_owned(),
        kind: JobSet::kind(&()).into_owned(),
        name: jobset.name_any(),
        uid: jobset.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The claims of a JobSet.
pub fn claims(_: &JobSet) -> std::iter::Empty<k8s_openapi::api::core::v1::PersistentVolumeClaim> {
    std::iter::empty()
}
