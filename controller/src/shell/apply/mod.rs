//! Carries out a plan: the actions, then the status.

mod job;
mod jobset;
mod named;
mod pod;
mod refusals;

use std::collections::HashSet;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use jobset_api::JobSet;
use kube::{Api, Client, Resource};
use tokio::sync::Semaphore;

use super::error::Error;
use super::postponed::Request;
use crate::plan::{Action, Plan};
use crate::store::{Key, Versions};
use refusals::Refusals;

/// Requests under way at once for one JobSet.
const CONCURRENCY: usize = 32;
/// The same for all JobSets: each is a connection of its own.
const CONNECTIONS: usize = 64;

/// How a plan was carried out.
#[derive(Debug)]
pub(super) struct Applied {
    /// Versions of what was written.
    pub(super) written: Versions,
    /// What failed, in the order of the plan.
    pub(super) failures: Vec<(Request, Error)>,
    /// What need not be created: something else provides it.
    pub(super) provided: Vec<Request>,
    /// What was not refused, or not in every case.
    pub(super) accepted: HashSet<Request>,
    /// Whether the status was written; `false` if it is as it was.
    pub(super) status: Result<bool, Error>,
}

/// How a request ended well.
enum Done {
    /// These versions were written; none where there was nothing left to do.
    Written(Versions),
    /// What should be created is there, and somebody else's.
    Provided,
    /// It was not sent: another that shares the request has just been refused.
    Unsent,
}

/// Nothing was left to do.
const NOTHING: Done = Done::Written(Versions { jobsets: 0, jobs: 0, services: 0, claims: 0, role_bindings: 0 });

/// Makes the requests.
#[derive(Clone)]
pub(super) struct Applier {
    client: Client,
    connections: Arc<Semaphore>,
}

impl Applier {
    pub(super) fn new(client: Client) -> Self {
        Self { client, connections: Arc::new(Semaphore::new(CONNECTIONS)) }
    }

    /// Carries out the plan of a JobSet.
    pub(super) async fn apply(&self, jobset: &JobSet, plan: Plan) -> Applied {
        let of = Of { client: &self.client, key: &Key::of(jobset), jobset };
        let mut written = Versions::default();
        let (mut failures, mut provided, mut accepted) = (Vec::new(), Vec::new(), HashSet::new());
        let refusals = Refusals::default();
        let mut answers = stream::iter(plan.actions.into_iter().map(|action| async {
            // Nobody closes it.
            let _connection = self.connections.acquire().await;
            let (own, shared) = (Request::of(&action), Request::shared(&action));
            let answer = refusals.unless_refused(shared.as_ref(), || of.carry_out(action)).await;
            (own, shared, answer)
        }))
        .buffered(CONCURRENCY);
        while let Some((own, shared, answer)) = answers.next().await {
            match answer {
                Ok(Done::Unsent) => {}
                Ok(Done::Written(versions)) => {
                    written.jobsets = written.jobsets.max(versions.jobsets);
                    written.jobs = written.jobs.max(versions.jobs);
                    written.services = written.services.max(versions.services);
                    written.claims = written.claims.max(versions.claims);
                    written.role_bindings = written.role_bindings.max(versions.role_bindings);
                    accepted.insert(own);
                    accepted.extend(shared);
                }
                Ok(Done::Provided) => provided.push(own),
                Err(error) if error.refuses_jobs() => failures.push((shared.unwrap_or(own), error)),
                Err(error) => {
                    if matches!(error, Error::JobTaken { .. }) {
                        accepted.extend(shared);
                    }
                    failures.push((own, error));
                }
            }
        }
        drop(answers);
        // What the status says does not depend on the actions: a Job that is refused does not hold up the others' epochs.
        let status = if jobset.status.clone().unwrap_or_default() == plan.status {
            Ok(false)
        } else {
            of.write_status(plan.status).await.map(|version| {
                written.jobsets = version;
                true
            })
        };
        Applied { written, failures, provided, accepted, status }
    }
}

/// The requests of one JobSet.
#[derive(Clone, Copy)]
struct Of<'a> {
    client: &'a Client,
    key: &'a Key,
    jobset: &'a JobSet,
}

impl Of<'_> {
    async fn carry_out(&self, action: Action) -> Result<Done, Error> {
        match action {
            Action::CreateJob(job) => self.create_job(&job).await,
            Action::DeleteJob { name, uid } => self.delete_job(&name, uid).await,
            Action::SuspendJob { name, uid } => self.suspend_job(&name, &uid).await,
            Action::ResumeJob { uid, desired } => self.resume_job(&uid, &desired).await,
            Action::ResizeJob { name, uid, parallelism, completions } => {
                self.resize_job(&name, &uid, parallelism, completions).await
            }
            Action::DeletePod { name, uid, reason } => self.delete_pod(&name, uid, reason).await,
            Action::CreateService(service) => self.create_service(&service).await,
            Action::CreateClaim(claim) => self.create_claim(&claim).await,
            Action::CreateRoleBinding(binding) => self.create_role_binding(&binding).await,
            Action::DeleteJobSet => self.delete_jobset().await,
            Action::DisableInPlaceRestart(cause) => self.disable_in_place_restart(cause).await,
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.key.namespace)
    }

    fn child(&self, name: &str) -> Key {
        Key { namespace: self.key.namespace.clone(), name: name.to_owned() }
    }
}
