//! Changes the JobSet itself.

use jobset_api::{JobSet, JobSetStatus, RestartBudget, labels};
use jobset_store::{JobSetHead, Kind};
use kube::Resource as _;
use kube::api::{DeleteParams, Patch, Preconditions};
use serde_json::{Value, json};

use super::objects::Objects;
use super::{Actor, Done, NOTHING};
use crate::shell::error::ApplyError;

impl Actor {
    fn jobsets(&self) -> Objects<'_, JobSet> {
        self.objects(Kind::JobSet)
    }

    /// The same without their specifications, which may take much memory.
    fn heads(&self) -> Objects<'_, JobSetHead> {
        self.objects(Kind::JobSet)
    }

    pub(super) async fn delete_jobset(&self) -> Result<Done, ApplyError> {
        let uid = self.jobset.metadata.uid.clone();
        let params = DeleteParams::foreground().preconditions(Preconditions { uid, ..Preconditions::default() });
        self.heads().delete(&self.key.name, &params).await?;
        Ok(NOTHING)
    }

    pub(super) async fn disable_in_place_restart(&self, cause: &str) -> Result<Done, ApplyError> {
        let annotations = json!({labels::DISABLE_IN_PLACE_RESTART: cause});
        self.annotate(json!({"uid": self.jobset.metadata.uid, "annotations": annotations})).await
    }

    /// The request names the observed version, because another status may show another budget.
    pub(super) async fn annotate_restart_budget(&self, budget: RestartBudget) -> Result<Done, ApplyError> {
        let (uid, version) = (&self.jobset.metadata.uid, &self.jobset.metadata.resource_version);
        let annotations = json!({labels::RESTART_BUDGET: budget.word()});
        self.annotate(json!({"uid": uid, "resourceVersion": version, "annotations": annotations})).await
    }

    async fn annotate(&self, metadata: Value) -> Result<Done, ApplyError> {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let annotated = self.heads().patch(&self.key.name, &patch).await?;
        Ok(self.heads().written(annotated.as_ref()))
    }

    /// Whether the API server still has the version of the JobSet that the plan is based on.
    pub(super) async fn is_up_to_date(&self) -> Result<bool, ApplyError> {
        let live = self.heads().get(&self.key.name).await?;
        Ok(live.is_some_and(|live| live.meta().resource_version == self.jobset.metadata.resource_version))
    }

    /// Writes the status with the resource version that the plan is based on. The API server refuses a plan that is based on an
    /// outdated version, so that nothing is counted twice. Returns the JobSet as it is stored.
    pub(super) async fn write_status(&self, status: JobSetStatus) -> Result<JobSet, ApplyError> {
        // What was not read of a specification need not be read now. The API server keeps what is stored.
        if self.jobset.spec.replicated_jobs.is_empty() {
            let written = self.heads().replace_status(&JobSetHead::of(&self.jobset, status)).await?;
            return Ok(written.into_jobset());
        }
        let (metadata, spec) = (self.jobset.metadata.clone(), self.jobset.spec.clone());
        self.jobsets().replace_status(&JobSet { metadata, spec, status: Some(status) }).await
    }
}
