//! Carries out a plan: the actions in order, then the status.

use futures::stream::{self, StreamExt};
use jobset_api::{JobSet, JobSetStatus};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};

use super::error::{Error, code};
use crate::plan::{Action, Plan};
use crate::store::{Key, Versions, version};

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
    let mut answers = stream::iter(plan.actions.into_iter().map(|action| carry_out(client, key, action)))
        .buffer_unordered(CONCURRENCY);
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
    if let Some(error) = failure {
        return Err(error);
    }
    if jobset.status.as_ref() != Some(&plan.status) {
        written.jobsets = version(&write_status(client, key, jobset, plan.status).await?);
    }
    Ok(())
}

/// Carries out one action; the version of what it wrote.
async fn carry_out(client: &Client, key: &Key, action: Action) -> Result<Versions, Error> {
    let child = |name: Option<&str>| Key { name: name.unwrap_or_default().to_owned(), ..key.clone() };
    match action {
        Action::CreateJob(job) => {
            let api: Api<Job> = Api::namespaced(client.clone(), &key.namespace);
            let created = api.create(&PostParams::default(), &job).await;
            created
                .map(|job| Versions { jobs: version(&job), ..Versions::default() })
                .map_err(|error| Error::CreateJob(child(job.metadata.name.as_deref()), error))
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

/// Writes the status against the version that the plan was made from: a plan made from an outdated view is refused by
/// the API server instead of counting something twice.
async fn write_status(client: &Client, key: &Key, seen: &JobSet, status: JobSetStatus) -> Result<JobSet, Error> {
    let api: Api<JobSet> = Api::namespaced(client.clone(), &key.namespace);
    let jobset = JobSet { metadata: seen.metadata.clone(), spec: seen.spec.clone(), status: Some(status) };
    api.replace_status(&key.name, &PostParams::default(), &jobset)
        .await
        .map_err(|error| Error::WriteStatus(key.clone(), error))
}
