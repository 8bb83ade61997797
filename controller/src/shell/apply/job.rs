//! Changes and deletes Jobs.

use jobset_rules::build::resume;
use jobset_store::Kind;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, Preconditions};
use serde_json::{Value, json};

use super::objects::Objects;
use super::{Actor, Done, NOTHING};
use crate::shell::error::{ApplyError, code};

impl Actor {
    fn jobs(&self) -> Objects<'_, Job> {
        self.objects(Kind::Job)
    }

    /// Deletes a Job once its Pods are deleted. Until then, the answer is the Job with its deletion timestamp.
    pub(super) async fn delete_job(&self, name: &str, uid: String) -> Result<Done, ApplyError> {
        let preconditions = Preconditions { uid: Some(uid), ..Preconditions::default() };
        let deleted = self.jobs().delete(name, &DeleteParams::foreground().preconditions(preconditions)).await?;
        Ok(self.jobs().written(deleted.as_ref()))
    }

    pub(super) async fn patch_job(&self, name: &str, uid: &str, spec: Value) -> Result<Done, ApplyError> {
        let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "spec": spec}));
        let changed = self.jobs().patch(name, &patch).await?;
        Ok(self.jobs().written(changed.as_ref()))
    }

    /// Resumes a Job, and updates the mutable fields of its template, with or without requests and limits of containers.
    ///
    /// Kubernetes 1.36 lets labels, annotations, nodeSelector, tolerations, schedulingGates and resources of the template
    /// of a suspended Job change once none of its Pods is active, and its condition says that it is suspended or it has
    /// never started; before 1.36, only if `status.startTime` is absent, which the Job controller leaves set. Resources change
    /// only with the feature gate MutablePodResourcesForSuspendedJobs of the API server, on by default since 1.36. A Job is not
    /// resumed with other resources than the JobSet has: a queue may have given it quota for these alone.
    pub(super) async fn resume_job(&self, uid: &str, desired: &Job, with_resources: bool) -> Result<Done, ApplyError> {
        let (jobs, name) = (self.jobs(), desired.name_any());
        let find = async || Ok(jobs.get(&name).await?.filter(|job| job.metadata.uid.as_deref() == Some(uid)));
        let Some(live) = find().await? else { return Ok(NOTHING) };
        let patch = resume(&live, desired, with_resources);
        let resizes = patch.iter().any(|operation| operation.path().as_str().ends_with("/resources"));
        if patch.iter().any(|operation| operation.path().as_str().starts_with("/spec/template")) {
            if !is_suspended(&live) {
                return Err(ApplyError::NotYetSuspended(jobs.path(&name)));
            }
            if live.status.is_some_and(|status| status.start_time.is_some()) {
                let reset = Patch::Merge(json!({"metadata": {"uid": uid}, "status": {"startTime": null}}));
                if jobs.patch_status(&name, &reset).await?.is_none() {
                    return Ok(NOTHING);
                }
            }
        }
        let resumed = jobs.patch(&name, &Patch::<()>::Json(patch)).await;
        // The API server answers a failed test of the UID like an invalid value.
        if resumed.as_ref().is_err_and(|error| error.code() == Some(422)) && find().await?.is_none() {
            return Ok(NOTHING);
        }
        match resumed {
            Err(ApplyError::Api { object, source, .. }) if resizes && code(&source) == Some(422) => {
                Err(ApplyError::ResourcesRefused { object, source })
            }
            resumed => Ok(jobs.written(resumed?.as_ref())),
        }
    }
}

/// Whether the Job controller has carried out the suspension.
fn is_suspended(job: &Job) -> bool {
    let Some(status) = &job.status else { return true };
    let mut conditions = status.conditions.iter().flatten();
    let suspended = conditions.any(|condition| condition.type_ == "Suspended" && condition.status == "True");
    status.active.unwrap_or(0) == 0 && (status.start_time.is_none() || suspended)
}
