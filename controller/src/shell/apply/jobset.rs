//! Requests on the JobSet itself.

use jobset_api::{JobSet, JobSetStatus, RestartBudget, labels};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::{Done, NOTHING, Of};
use crate::engine::{Kind, Versions, version};
use crate::shell::error::{Error, is_gone};

impl Of<'_> {
    pub(super) async fn delete_jobset(&self) -> Result<Done, Error> {
        let api: Api<JobSet> = self.api();
        let uid = self.jobset.metadata.uid.clone();
        let params = DeleteParams::foreground().preconditions(Preconditions { uid, ..Preconditions::default() });
        match api.delete(&self.key.name, &params).await {
            Ok(_) => Ok(NOTHING),
            Err(error) if is_gone(&error) => Ok(NOTHING),
            Err(error) => Err(Error::DeleteJobSet(self.key.clone(), error)),
        }
    }

    pub(super) async fn disable_in_place_restart(&self, cause: &str) -> Result<Done, Error> {
        let annotations = json!({labels::DISABLE_IN_PLACE_RESTART: cause});
        self.annotate(json!({"uid": self.jobset.metadata.uid, "annotations": annotations})).await
    }

    /// With the version that was seen: another status may say another budget.
    pub(super) async fn annotate_restart_budget(&self, budget: RestartBudget) -> Result<Done, Error> {
        let (uid, version) = (&self.jobset.metadata.uid, &self.jobset.metadata.resource_version);
        let annotations = json!({labels::RESTART_BUDGET: budget.word()});
        self.annotate(json!({"uid": uid, "resourceVersion": version, "annotations": annotations})).await
    }

    async fn annotate(&self, metadata: Value) -> Result<Done, Error> {
        let api: Api<JobSet> = self.api();
        let patch = json!({"metadata": metadata});
        match api.patch_metadata(&self.key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(jobset) => Ok(Done::Written(Versions::of(Kind::JobSet, version(&jobset)))),
            Err(error) if is_gone(&error) => Ok(NOTHING),
            Err(error) => Err(Error::AnnotateJobSet(self.key.clone(), error)),
        }
    }

    /// Whether the API server holds the version of the JobSet that the plan was made from.
    pub(super) async fn is_up_to_date(&self) -> Result<bool, Error> {
        let api: Api<JobSet> = self.api();
        let live = api.get_metadata_opt(&self.key.name).await;
        let live = live.map_err(|error| Error::ReadJobSet(self.key.clone(), error))?;
        Ok(live.is_some_and(|live| live.metadata.resource_version == self.jobset.metadata.resource_version))
    }

    /// Writes the status against the version that the plan was made from: a plan made from an outdated view is refused
    /// by the API server instead of counting something twice. The version that was written.
    pub(super) async fn write_status(&self, status: JobSetStatus) -> Result<u64, Error> {
        let api: Api<JobSet> = self.api();
        let (metadata, spec) = (self.jobset.metadata.clone(), self.jobset.spec.clone());
        let jobset = JobSet { metadata, spec, status: Some(status) };
        match api.replace_status(&self.key.name, &PostParams::default(), &jobset).await {
            Ok(jobset) => Ok(version(&jobset)),
            Err(error) => Err(Error::WriteStatus(self.key.clone(), error)),
        }
    }
}
