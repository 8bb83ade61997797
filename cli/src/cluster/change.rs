//! Changes JobSets, and reads what that needs.

use jobset_api::{JobSet, labels};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::connect::Cluster;
use crate::error::Error;

impl Cluster {
    /// Merges a patch into the JobSet, if it is still the version that was read. `verb` says what for.
    ///
    /// # Errors
    /// If the request fails; [`Error::is_conflict`] if there is another version.
    pub async fn change(&self, jobset: &JobSet, mut patch: Value, verb: &str) -> Result<(), Error> {
        let name = jobset.name_any();
        patch["metadata"]["uid"] = json!(jobset.metadata.uid);
        patch["metadata"]["resourceVersion"] = json!(jobset.metadata.resource_version);
        let api: Api<JobSet> = self.api();
        let changed = api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        changed.map(drop).map_err(|error| Error::request(format!("{verb} JobSet {}/{name}", self.namespace), error))
    }

    /// Whether the JobSet has this Pod, or may have it: the user may not read it.
    pub async fn may_have_pod(&self, jobset: &str, pod: &str) -> bool {
        let api: Api<Pod> = self.api();
        match api.get_metadata_opt(pod).await {
            Ok(Some(pod)) => pod.labels().get(labels::JOBSET_NAME).is_some_and(|name| name == jobset),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// The name of the user, if the API server tells it.
    pub async fn user(&self) -> Option<String> {
        let api: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await.ok()?;
        review.status?.user_info?.username.filter(|user| !user.is_empty())
    }
}
