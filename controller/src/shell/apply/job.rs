//! Requests on Jobs.

use jobset_api::labels;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{Done, NOTHING, Of};
use crate::build::resume;
use crate::engine::{Key, Kind, Versions, controller, version};
use crate::shell::error::{Error, code, is_gone};

impl Of<'_> {
    pub(super) async fn create_job(&self, job: &Job) -> Result<Done, Error> {
        let api: Api<Job> = self.api();
        match api.create(&PostParams::default(), job).await {
            Ok(job) => Ok(written(&job)),
            Err(error) if code(&error) == Some(409) => self.existing_job(job, error).await,
            Err(error) => Err(Error::CreateJob(Key::of(job), error)),
        }
    }

    /// A Job of this name is there, and the engine does not hold it: it has just been created, or it does not carry the
    /// label by which the JobSet's children are watched.
    async fn existing_job(&self, job: &Job, conflict: kube::Error) -> Result<Done, Error> {
        let (api, key): (Api<Job>, _) = (self.api(), Key::of(job));
        let found = match api.get_opt(&key.name).await {
            Ok(Some(found)) => found,
            // Gone again.
            Ok(None) => return Err(Error::CreateJob(key, conflict)),
            Err(error) => return Err(Error::CreateJob(key, error)),
        };
        if found.labels().get(labels::JOBSET_NAME) == self.jobset.metadata.name.as_ref() {
            return Ok(written(&found));
        }
        let reason = match controller(&found) {
            Some(owner) if self.jobset.metadata.uid.as_ref() == Some(&owner.uid) => {
                format!("but without the label {}", labels::JOBSET_NAME)
            }
            Some(owner) => format!("controlled by {} {}", owner.kind, owner.name),
            None => "controlled by nobody".to_owned(),
        };
        Err(Error::JobTaken { job: key, reason })
    }

    /// Deletes a Job, and its Pods before it.
    pub(super) async fn delete_job(&self, name: &str, uid: String) -> Result<Done, Error> {
        let api: Api<Job> = self.api();
        let preconditions = Preconditions { uid: Some(uid), ..Preconditions::default() };
        match api.delete(name, &DeleteParams::foreground().preconditions(preconditions)).await {
            // While it goes, the answer is the Job as it was marked; once it is gone, it has no version.
            Ok(deleted) => Ok(deleted.left().map_or(NOTHING, |job| written(&job))),
            Err(error) if is_gone(&error) => Ok(NOTHING),
            Err(error) => Err(Error::DeleteJob(self.child(name), error)),
        }
    }

    pub(super) async fn suspend_job(&self, name: &str, uid: &str) -> Result<Done, Error> {
        self.patch_job(name, uid, json!({"suspend": true})).await
    }

    pub(super) async fn resize_job(
        &self,
        name: &str,
        uid: &str,
        parallelism: i32,
        completions: Option<i32>,
    ) -> Result<Done, Error> {
        self.patch_job(name, uid, json!({"parallelism": parallelism, "completions": completions})).await
    }

    async fn patch_job(&self, name: &str, uid: &str, spec: Value) -> Result<Done, Error> {
        let api: Api<Job> = self.api();
        let patch = json!({"metadata": {"uid": uid}, "spec": spec});
        match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(job) => Ok(written(&job)),
            Err(error) if is_gone(&error) => Ok(NOTHING),
            Err(error) => Err(Error::ChangeJob(self.child(name), error)),
        }
    }

    /// Resumes a Job, and replaces what may change in its template.
    ///
    /// Kubernetes 1.36 lets labels, annotations, nodeSelector, tolerations, schedulingGates and resources of the template
    /// of a suspended Job change once none of its Pods is active, and its condition says that it is suspended or it has
    /// never started; before 1.36, only if `status.startTime` is absent, which the Job controller leaves set.
    pub(super) async fn resume_job(&self, uid: &str, desired: &Job) -> Result<Done, Error> {
        let (api, key): (Api<Job>, _) = (self.api(), Key::of(desired));
        let live = match api.get_opt(&key.name).await {
            Ok(Some(live)) if live.metadata.uid.as_deref() == Some(uid) => live,
            Ok(_) => return Ok(NOTHING),
            Err(error) => return Err(Error::ReadJob(key, error)),
        };
        let patch = resume(&live, desired);
        let changes_template = patch.iter().any(|operation| operation.path().as_str().starts_with("/spec/template"));
        if changes_template {
            if !is_at_rest(&live) {
                return Err(Error::JobNotAtRest(key));
            }
            if live.status.as_ref().is_some_and(|status| status.start_time.is_some()) {
                let reset = json!({"metadata": {"uid": uid}, "status": {"startTime": null}});
                match api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(reset)).await {
                    Ok(_) => {}
                    Err(error) if is_gone(&error) => return Ok(NOTHING),
                    Err(error) => return Err(Error::ChangeJob(key, error)),
                }
            }
        }
        match api.patch(&key.name, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
            Ok(job) => Ok(written(&job)),
            Err(error) if is_gone(&error) => Ok(NOTHING),
            // A JSON Patch whose test of the UID fails has the same code as a value that is not allowed.
            Err(error) if code(&error) == Some(422) => match api.get_opt(&key.name).await {
                Ok(Some(found)) if found.metadata.uid.as_deref() == Some(uid) => Err(Error::ChangeJob(key, error)),
                Ok(_) => Ok(NOTHING),
                Err(error) => Err(Error::ReadJob(key, error)),
            },
            Err(error) => Err(Error::ChangeJob(key, error)),
        }
    }
}

/// Whether the Job controller has carried out the suspension.
fn is_at_rest(job: &Job) -> bool {
    let Some(status) = &job.status else { return true };
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let suspended = conditions.iter().any(|condition| condition.type_ == "Suspended" && condition.status == "True");
    status.active.unwrap_or(0) == 0 && (status.start_time.is_none() || suspended)
}

fn written(job: &Job) -> Done {
    Done::Written(Versions::of(Kind::Job, version(job)))
}
