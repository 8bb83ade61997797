//! Carries out a plan: the actions in order, then the status.

use futures::stream::{self, StreamExt};
use jobset_api::{JobSet, JobSetStatus};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};

use super::error::{Error, code};
use crate::plan::{Action, Plan};
use crate::store::Key;

/// Requests under way at once for one JobSet.
const CONCURRENCY: usize = 32;

/// What the API server answered to the writes of one pass.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) jobs: Vec<Job>,
    pub(super) services: Vec<Service>,
    pub(super) jobset: Option<JobSet>,
}

enum Answer {
    Job(Box<Job>),
    Service(Box<Service>),
    Nothing,
}

/// Carries out the plan. What was written before a failure is in `written` all the same.
pub(super) async fn apply(
    client: &Client,
    key: &Key,
    jobset: &JobSet,
    plan: Plan,
    written: &mut Written,
) -> Result<(), Error> {
    let mut answers = stream::iter(plan.actions.into_iter().map(|action| carry_out(client, key, action)))
        .buffer_unordered(CONCURRENCY);
    let mut failure = None;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(Answer::Job(job)) => written.jobs.push(*job),
            Ok(Answer::Service(service)) => written.services.push(*service),
            Ok(Answer::Nothing) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    if jobset.status.as_ref() != Some(&plan.status) {
        written.jobset = Some(write_status(client, key, jobset, plan.status).await?);
    }
    Ok(())
}

async fn carry_out(client: &Client, key: &Key, action: Action) -> Result<Answer, Error> {
    let child = |name: Option<&str>| Key { name: name.unwrap_or_default().to_owned(), ..key.clone() };
    match action {
        Action::CreateJob(job) => {
            let api: Api<Job> = Api::namespaced(client.clone(), &key.namespace);
            let created = api.create(&PostParams::default(), &job).await;
            created
                .map(|job| Answer::Job(Box::new(job)))
                .map_err(|error| Error::CreateJob(child(job.metadata.name.as_deref()), error))
        }
        Action::DeleteJob { name, uid } => {
            let api: Api<Job> = Api::namespaced(client.clone(), &key.namespace);
            let params =
                DeleteParams::foreground().preconditions(Preconditions { uid: Some(uid), ..Preconditions::default() });
            match api.delete(&name, &params).await {
                Ok(deleted) => Ok(deleted.left().map_or(Answer::Nothing, |job| Answer::Job(Box::new(job)))),
                Err(error) if code(&error) == Some(404) => Ok(Answer::Nothing),
                Err(error) => Err(Error::DeleteJob(child(Some(&name)), error)),
            }
        }
        Action::CreateService(service) => {
            let api: Api<Service> = Api::namespaced(client.clone(), &key.namespace);
            match api.create(&PostParams::default(), &service).await {
                Ok(service) => Ok(Answer::Service(Box::new(service))),
                // Several JobSets may share one subdomain, and with it one Service.
                Err(error) if code(&error) == Some(409) => Ok(Answer::Nothing),
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
