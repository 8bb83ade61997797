//! Carries out a plan: the actions in order, then the status.

use futures::stream::{self, StreamExt};
use jobset_api::{JobSet, JobSetStatus, labels};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::error::{Error, code};
use crate::plan::{Action, Plan, PodDeletion};
use crate::store::{Key, Versions, controller, version};

/// Requests under way at once for one JobSet.
const CONCURRENCY: usize = 32;

/// Carries out the plan; the versions of what was written are in `written`, also after a failure.
pub(super) async fn apply(
    client: &Client,
    key: &Key,
    jobset: &JobSet,
    plan: Plan,
    written: &mut Versions,
) -> Result<(), Error> {
    // In order, so that of several failures always the same one is reported.
    let mut answers = stream::iter(plan.actions.into_iter().map(|action| carry_out(client, key, jobset, action)))
        .buffered(CONCURRENCY);
    let mut failure = None;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(versions) => {
                written.jobs = written.jobs.max(versions.jobs);
                written.services = written.services.max(versions.services);
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    // What the status says does not depend on the actions: a Job that is refused does not hold up the others' epochs.
    if jobset.status.as_ref() != Some(&plan.status) {
        written.jobsets = version(&write_status(client, key, jobset, plan.status).await?);
    }
    failure.map_or(Ok(()), Err)
}

/// Carries out one action; the version of what it wrote.
async fn carry_out(client: &Client, key: &Key, jobset: &JobSet, action: Action) -> Result<Versions, Error> {
    let child = |name: Option<&str>| Key { name: name.unwrap_or_default().to_owned(), ..key.clone() };
    match action {
        Action::CreateJob(job) => {
            let api: Api<Job> = Api::namespaced(client.clone(), &key.namespace);
            match api.create(&PostParams::default(), &job).await {
                Ok(job) => Ok(Versions { jobs: version(&job), ..Versions::default() }),
                Err(error) if code(&error) == Some(409) => existing_job(&api, &job, jobset, error).await,
                Err(error) => Err(Error::CreateJob(Key::of(job.as_ref()), error)),
            }
        }
        Action::DeleteJob { name, uid } => {
            let api: Api<Job> = Api::namespaced(client.clone(), &key.namespace);
            let params =
                DeleteParams::foreground().preconditions(Preconditions { uid: Some(uid), ..Preconditions::default() });
            match api.delete(&name, &params).await {
                // While it goes, the answer is the Job as it was marked; once it is gone, it has no version.
                Ok(deleted) => {
                    let jobs = deleted.left().map_or(0, |job| version(&job));
                    Ok(Versions { jobs, ..Versions::default() })
                }
                Err(error) if code(&error) == Some(404) => Ok(Versions::default()),
                Err(error) => Err(Error::DeleteJob(child(Some(&name)), error)),
            }
        }
        Action::SuspendJob { name, uid } => {
            patch_job(client, &child(Some(&name)), &uid, json!({"suspend": true})).await
        }
        Action::ResumeJob { uid, desired } => {
            patch_job(client, &Key::of(desired.as_ref()), &uid, json!({"suspend": false})).await
        }
        Action::ResizeJob { name, uid, parallelism, completions } => {
            let spec = json!({"parallelism": parallelism, "completions": completions});
            patch_job(client, &child(Some(&name)), &uid, spec).await
        }
        Action::DeletePod { name, uid, reason } => {
            let api: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
            let preconditions = Some(Preconditions { uid: Some(uid), ..Preconditions::default() });
            let grace_period_seconds = (reason == PodDeletion::Unreachable).then_some(0);
            let params = DeleteParams { preconditions, grace_period_seconds, ..DeleteParams::default() };
            match api.delete(&name, &params).await {
                Ok(_) => Ok(Versions::default()),
                Err(error) if code(&error) == Some(404) => Ok(Versions::default()),
                Err(error) => Err(Error::DeletePod(child(Some(&name)), error)),
            }
        }
        Action::DeleteJobSet => {
            let api: Api<JobSet> = Api::namespaced(client.clone(), &key.namespace);
            let uid = jobset.metadata.uid.clone();
            let params = DeleteParams::foreground().preconditions(Preconditions { uid, ..Preconditions::default() });
            match api.delete(&key.name, &params).await {
                Ok(_) => Ok(Versions::default()),
                Err(error) if code(&error) == Some(404) => Ok(Versions::default()),
                Err(error) => Err(Error::DeleteJobSet(key.clone(), error)),
            }
        }
        Action::DisableInPlaceRestart => {
            let api: Api<JobSet> = Api::namespaced(client.clone(), &key.namespace);
            let patch = json!({"metadata": {"annotations": {labels::DISABLE_IN_PLACE_RESTART: "feature gate is off"}}});
            match api.patch_metadata(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => Ok(Versions::default()),
                Err(error) => Err(Error::AnnotateJobSet(key.clone(), error)),
            }
        }
        Action::CreateClaim(claim) => {
            let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &key.namespace);
            match api.create(&PostParams::default(), &claim).await {
                Ok(_) => Ok(Versions::default()),
                Err(error) if code(&error) == Some(409) => Ok(Versions::default()),
                Err(error) => Err(Error::CreateClaim(child(claim.metadata.name.as_deref()), error)),
            }
        }
        Action::CreateService(service) => {
            let api: Api<Service> = Api::namespaced(client.clone(), &key.namespace);
            match api.create(&PostParams::default(), &service).await {
                Ok(service) => Ok(Versions { services: version(&service), ..Versions::default() }),
                // Several JobSets may share one subdomain, and with it one Service.
                Err(error) if code(&error) == Some(409) => Ok(Versions::default()),
                Err(error) => Err(Error::CreateService(child(service.metadata.name.as_deref()), error)),
            }
        }
    }
}

/// Changes the specification of the Job with this UID.
async fn patch_job(client: &Client, key: &Key, uid: &str, spec: Value) -> Result<Versions, Error> {
    let api: Api<Job> = Api::namespaced(client.clone(), &key.namespace);
    let patch = json!({"metadata": {"uid": uid}, "spec": spec});
    match api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(job) => Ok(Versions { jobs: version(&job), ..Versions::default() }),
        Err(error) if code(&error) == Some(404) => Ok(Versions::default()),
        Err(error) => Err(Error::ChangeJob(key.clone(), error)),
    }
}

/// A Job of this name is there, and the store does not hold it: it has just been created, or it does not carry the label
/// by which the JobSet's children are watched.
async fn existing_job(api: &Api<Job>, job: &Job, jobset: &JobSet, conflict: kube::Error) -> Result<Versions, Error> {
    let key = Key::of(job);
    let found = match api.get_opt(&key.name).await {
        Ok(Some(found)) => found,
        // Gone again.
        Ok(None) => return Err(Error::CreateJob(key, conflict)),
        Err(error) => return Err(Error::CreateJob(key, error)),
    };
    if found.labels().get(labels::JOBSET_NAME) == jobset.metadata.name.as_ref() {
        return Ok(Versions { jobs: version(&found), ..Versions::default() });
    }
    let reason = match controller(&found) {
        Some(owner) if jobset.metadata.uid.as_ref() == Some(&owner.uid) => {
            format!("but without the label {}", labels::JOBSET_NAME)
        }
        Some(owner) => format!("controlled by {} {}", owner.kind, owner.name),
        None => "controlled by nobody".to_owned(),
    };
    Err(Error::JobTaken { job: key, reason })
}

/// Writes the status against the version that the plan was made from: a plan made from an outdated view is refused by
/// the API server instead of counting something twice.
async fn write_status(client: &Client, key: &Key, seen: &JobSet, status: JobSetStatus) -> Result<JobSet, Error> {
    let api: Api<JobSet> = Api::namespaced(client.clone(), &key.namespace);
    let jobset = JobSet { metadata: seen.metadata.clone(), spec: seen.spec.clone(), status: Some(status) };
    api.replace_status(&key.name, &PostParams::default(), &jobset)
        .await
        .map_err(|error| Error::WriteStatus(key.clone(), error))
}
