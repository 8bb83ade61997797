//! Sends the requests of a work: the actions, then the status.

mod create;
mod job;
mod jobset;
mod objects;
mod pod;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::{self, StreamExt};
use jobset_api::{JobSet, JobSetStatus};
use kube::Client;
use serde_json::json;
use tokio::sync::Semaphore;

use super::client::Workers;
use super::error::ApplyError;
use crate::engine::{Key, Kind, Outcome, Request, Urgency, Versions};
use crate::plan::Action;
use create::not_headless;

/// Most requests under way at once for one JobSet.
const CONCURRENCY: usize = 32;
/// Most requests under way at once for all JobSets. Each has a connection of its own.
const CONNECTIONS: usize = 64;
/// Most bulk requests under way at once. More of them make each request slower, urgent ones too, and are not more requests a
/// second: 16 keep the API server busy.
const BULK_CONNECTIONS: usize = 16;

/// The answers to the requests of a work.
pub(super) struct Answers {
    /// For the engine.
    pub(super) outcome: Outcome,
    /// The errors, for the log.
    pub(super) errors: Vec<ApplyError>,
}

/// The outcome of an action that did not fail.
enum Done {
    /// These versions were written.
    Written(Versions),
    /// The object exists and belongs to another owner, which serves as well.
    Provided,
    /// The request was not sent, because the API server has just refused another one that shares it.
    Unsent,
}

/// The outcome of an action that has nothing left to do.
const NOTHING: Done = Done::Written(Versions::NONE);

/// Sends requests. All clones share the limits of connections.
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

    /// Sends the actions for a JobSet, and writes its status if there is one to write.
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
        let actor = Actor { client, key: &Key::of(jobset), jobset };
        let mut outcome = Outcome {
            written: Versions::NONE,
            failures: Vec::new(),
            provided: Vec::new(),
            accepted: HashSet::new(),
            status: Ok(false),
        };
        let mut errors = Vec::new();
        let refused = Mutex::default();
        let mut answers = stream::iter(actions.into_iter().map(|action| async {
            // Nobody closes the semaphores.
            let _bulk_connection = match bulk {
                Some(bulk) => bulk.acquire().await.ok(),
                None => None,
            };
            let _connection = self.connections.acquire().await;
            let (own, shared) = (Request::of(&action), Request::shared(&action));
            let answer = unless_refused(&refused, shared.as_ref(), actor.carry_out(action)).await;
            (own, shared, answer)
        }))
        .buffered(CONCURRENCY);
        while let Some((own, shared, answer)) = answers.next().await {
            match answer {
                Ok(Done::Unsent) => {}
                Ok(Done::Written(versions)) => {
                    outcome.written.raise(versions);
                    outcome.accepted.insert(own);
                    outcome.accepted.extend(shared);
                }
                Ok(Done::Provided) => outcome.provided.push(own),
                Err(error) => {
                    let refused = shared.clone().filter(|_| error.refuses_jobs());
                    outcome.failures.push((refused.unwrap_or(own), error.reduced()));
                    outcome.accepted.extend(shared.filter(|_| matches!(error, ApplyError::Taken { .. })));
                    errors.push(error);
                }
            }
        }
        drop(answers);
        // The status does not depend on the actions: a refused Job does not hold up the epochs of the others.
        if let Some(status) = status {
            outcome.status = match actor.write_status(status).await {
                Ok(version) => {
                    outcome.written.raise(Versions::of(Kind::JobSet, version));
                    Ok(true)
                }
                Err(error) => {
                    let reduced = error.reduced();
                    errors.push(error);
                    Err(reduced)
                }
            };
        }
        Answers { outcome, errors }
    }
}

/// Sends a request, unless the API server has refused another one that shares it. Requests that are under way at the first
/// refusal are refused as well.
async fn unless_refused(
    refused: &Mutex<HashSet<Request>>,
    shared: Option<&Request>,
    send: impl Future<Output = Result<Done, ApplyError>>,
) -> Result<Done, ApplyError> {
    let refused = || refused.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.is_some_and(|shared| refused().contains(shared)) {
        return Ok(Done::Unsent);
    }
    let answer = send.await;
    if let Some(shared) = shared.filter(|_| answer.as_ref().is_err_and(ApplyError::refuses_jobs)) {
        refused().insert(shared.clone());
    }
    answer
}

/// Acts for one JobSet.
#[derive(Clone, Copy)]
struct Actor<'a> {
    client: &'a Client,
    key: &'a Key,
    jobset: &'a JobSet,
}

impl Actor<'_> {
    async fn carry_out(&self, action: Action) -> Result<Done, ApplyError> {
        match action {
            Action::CreateJob(job) => self.create(Kind::Job, &*job, |_| None).await,
            Action::DeleteJob { name, uid } => self.delete_job(&name, uid).await,
            Action::SuspendJob { name, uid } => self.patch_job(&name, &uid, json!({"suspend": true})).await,
            Action::ResumeJob { uid, desired } => self.resume_job(&uid, &desired).await,
            Action::ResizeJob { name, uid, parallelism, completions } => {
                self.patch_job(&name, &uid, json!({"parallelism": parallelism, "completions": completions})).await
            }
            Action::DeletePod { name, uid, reason } => self.delete_pod(&name, uid, reason).await,
            Action::CreateService(service) => self.create(Kind::Service, &*service, not_headless).await,
            Action::CreateClaim(claim) => self.create(Kind::Claim, &*claim, |_| None).await,
            Action::CreateRoleBinding(binding) => self.create(Kind::RoleBinding, &*binding, |_| None).await,
            Action::DeleteJobSet => self.delete_jobset().await,
            Action::DisableInPlaceRestart(cause) => self.disable_in_place_restart(cause).await,
            Action::AnnotateRestartBudget(budget) => self.annotate_restart_budget(budget).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rstest::rstest;

    use super::*;
    use crate::shell::error::tests::api;

    #[rstest]
    #[case::refused(Some("w"), 422, 10)]
    #[case::not_refused(Some("w"), 503, 100)]
    #[case::not_shared(None, 422, 100)]
    #[tokio::test]
    async fn shared_request_is_not_sent_after_a_refusal_unless_it_is_under_way(
        #[case] group: Option<&str>,
        #[case] code: u16,
        #[case] expected: usize,
    ) {
        let (refused, shared) = (Mutex::default(), group.map(|group| Request::Jobs(group.to_owned())));
        let count = Cell::new(0);
        let send = || async {
            count.set(count.get() + 1);
            tokio::task::yield_now().await;
            Err(api("create", Kind::Job, code))
        };
        let requests = stream::iter((0..100).map(|_| unless_refused(&refused, shared.as_ref(), send())));
        requests.buffered(10).for_each(|_| async {}).await;
        assert_eq!(count.get(), expected);
        let other = unless_refused(&refused, Some(&Request::Jobs("driver".to_owned())), async { Ok(NOTHING) }).await;
        assert!(matches!(other, Ok(Done::Written(_))), "another replicatedJob");
    }
}
