//! Carries out a plan: the actions, then the status.

mod job;
mod jobset;
mod named;
mod pod;
mod refusals;

use std::collections::HashSet;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use jobset_api::{JobSet, JobSetStatus};
use kube::{Api, Client, Resource};
use tokio::sync::Semaphore;

use super::client::Workers;
use super::error::Error;
use crate::engine::{Key, Kind, Outcome, Request, Urgency, Versions};
use crate::plan::Action;
use refusals::Refusals;

/// Requests under way at once for one JobSet.
const CONCURRENCY: usize = 32;
/// The same for all JobSets: each is a connection of its own.
const CONNECTIONS: usize = 64;
/// The same for bulk work. More of them make each request slower, urgent ones too, and not more requests a second: 16 keep the
/// API server busy.
const BULK_CONNECTIONS: usize = 16;

/// How the requests of a work ended.
pub(super) struct Answers {
    /// For the engine.
    pub(super) outcome: Outcome,
    /// The errors, for the log.
    pub(super) errors: Vec<Error>,
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
const NOTHING: Done = Done::Written(Versions::NONE);

/// Sends the requests.
#[derive(Clone)]
pub(super) struct Applier {
    workers: Workers,
    connections: Arc<Semaphore>,
    bulk_connections: Arc<Semaphore>,
}

impl Applier {
    pub(super) fn new(workers: Workers) -> Self {
        let semaphore = |connections| Arc::new(Semaphore::new(connections));
        Self { workers, connections: semaphore(CONNECTIONS), bulk_connections: semaphore(BULK_CONNECTIONS) }
    }

    /// Carries out the actions for a JobSet, and stores its status if there is one to store.
    pub(super) async fn apply(
        &self,
        jobset: &JobSet,
        actions: Vec<Action>,
        status: Option<JobSetStatus>,
        urgency: Urgency,
    ) -> Answers {
        let (client, bulk) = match urgency {
            Urgency::Urgent => (&self.workers.urgent, None),
            Urgency::Bulk => (&self.workers.bulk, Some(&self.bulk_connections)),
        };
        let of = Of { client, key: &Key::of(jobset), jobset };
        let mut written = Versions::default();
        let (mut failures, mut errors) = (Vec::new(), Vec::new());
        let (mut provided, mut accepted) = (Vec::new(), HashSet::new());
        let refusals = Refusals::default();
        let mut answers = stream::iter(actions.into_iter().map(|action| async {
            // Nobody closes the semaphores.
            let _bulk_connection = match bulk {
                Some(bulk) => bulk.acquire().await.ok(),
                None => None,
            };
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
                    written.raise(versions);
                    accepted.insert(own);
                    accepted.extend(shared);
                }
                Ok(Done::Provided) => provided.push(own),
                Err(error) => {
                    let request = if error.refuses_jobs() {
                        shared.unwrap_or(own)
                    } else {
                        if matches!(error, Error::JobTaken { .. }) {
                            accepted.extend(shared);
                        }
                        own
                    };
                    failures.push((request, error.reduced()));
                    errors.push(error);
                }
            }
        }
        drop(answers);
        // What the status says does not depend on the actions: a Job that is refused does not hold up the others' epochs.
        let status = match status {
            None => Ok(false),
            Some(status) => match of.write_status(status).await {
                Ok(version) => {
                    written.raise(Versions::of(Kind::JobSet, version));
                    Ok(true)
                }
                Err(error) => {
                    let reduced = error.reduced();
                    errors.push(error);
                    Err(reduced)
                }
            },
        };
        Answers { outcome: Outcome { written, failures, provided, accepted, status }, errors }
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
            Action::AnnotateRestartBudget(budget) => self.annotate_restart_budget(budget).await,
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
