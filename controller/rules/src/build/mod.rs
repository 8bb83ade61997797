//! Builds the children of a JobSet, with the names, labels and annotations of the Go JobSet. Pure: a JobSet in, objects out.
//!
//! A reconciliation compares names, and builds only the children that are missing or resumed.

mod claim;
mod job;
mod labels;
mod owned;
mod placement;
mod resume;
mod role_binding;
mod service;
#[cfg(test)]
mod tests;

pub use claim::{ClaimPlace, claim, claims};
pub use job::{Attempt, DesiredJob, JobPlace, job};
pub use resume::resume;
pub use role_binding::role_binding;
pub use service::service;

use jobset_api::JobSet;
use jobset_api::labels::JOBSET_NAME;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};

/// The metadata of a child of this name: it carries the label of its JobSet, which controls it.
fn metadata(jobset: &JobSet, name: String) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: JobSet::api_version(&()).into_owned(),
        kind: JobSet::kind(&()).into_owned(),
        name: jobset.name_any(),
        uid: jobset.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    ObjectMeta {
        name: Some(name),
        namespace: jobset.namespace(),
        labels: Some([(JOBSET_NAME.to_owned(), jobset.name_any())].into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}
