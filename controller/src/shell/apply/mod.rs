//! Sends the requests of a work: the actions, then the status.

mod agent_policy;
mod create;
mod job;
mod jobset;
mod objects;
mod pod;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use jobset_api::{JobSet, JobSetStatus};
use kube::Client;
use serde_json::json;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit, watch};

use super::client::Workers;
use super::error::ApplyError;
use crate::build;
use crate::engine::{Key, Kind, Outcome, Request, Urgency, Versions, version};
use crate::plan::{Action, ENDED_JOB_DEADLINE};
use create::not_headless;

/// Most requests under way at once for one JobSet.
const CONCURRENCY: usize = 32;
/// Most requests under way at once for all JobSets. Each has a connection of its own.
const CONNECTIONS: usize = 64;
/// Most bulk requests under way at once, so that urgent requests always find a connection.
const BULK_CONNECTIONS: usize = 48;
/// Most bulk requests under way at once while a JobSet has urgent work. An API server with many requests answers each of them
/// late, those of agents too, and a restart takes several requests one after the other.
const BULK_BESIDE_URGENT: usize = 4;
/// Time after an urgent request in which more of them are expected: agents report, and their reports are reconciled.
const URGENT_FOR: Duration = Duration::from_secs(1);

/// The answers to the requests of a work.
pub(super) struct Answers {
    /// For the engine.
    pub(super) outcome: Outcome,
    /// The JobSet with the status that was written.
    pub(super) stored: Option<JobSet>,
    /// Number of Pods that were released.
    pub(super) released: u32,
    /// The errors, for the log.
    pub(super) errors: Vec<ApplyError>,
}

/// The outcome of an action that did not fail.
enum Done {
    /// These versions were written.
    Written(Versions),
    /// The object exists and belongs to another owner, which serves as well.
    Provided,
}

/// The outcome of an action that has nothing left to do.
const NOTHING: Done = Done::Written(Versions::NONE);

/// Sends requests. All clones share the limits of connections.
#[derive(Clone)]
pub(super) struct Applier {
    workers: Workers,
    connections: Arc<Semaphore>,
    bulk_connections: Arc<Semaphore>,
    bulk_beside_urgent: Arc<Semaphore>,
    last_urgent: watch::Sender<Option<Instant>>,
}

impl Applier {
    pub(super) fn new(workers: Workers) -> Self {
        let semaphore = |connections| Arc::new(Semaphore::new(connections));
        Self {
            workers,
            connections: semaphore(CONNECTIONS),
            bulk_connections: semaphore(BULK_CONNECTIONS),
            bulk_beside_urgent: semaphore(BULK_BESIDE_URGENT),
            last_urgent: watch::Sender::default(),
        }
    }

    /// Waits until one more bulk request may be sent, and holds its place until it is answered.
    async fn bulk_connection(&self) -> [Option<SemaphorePermit<'_>>; 2] {
        // Nobody closes the semaphores.
        let connection = self.bulk_connections.acquire().await.ok();
        let is_beside_urgent = self.last_urgent.borrow().is_some_and(|last| last.elapsed() < URGENT_FOR);
        [connection, if is_beside_urgent { self.bulk_beside_urgent.acquire().await.ok() } else { None }]
    }

    /// Sends the actions for a JobSet, and writes its status if there is one to write.
    pub(super) async fn apply(
        &self,
        jobset: &JobSet,
        actions: Vec<Action>,
        status: Option<JobSetStatus>,
        urgency: Urgency,
    ) -> Answers {
        let client = match urgency {
            Urgency::Urgent => &self.workers.urgent,
            Urgency::Bulk => &self.workers.bulk,
        };
        if urgency == Urgency::Urgent {
            self.last_urgent.send_replace(Some(Instant::now()));
        }
        let actor = Actor { client, key: &Key::of(jobset), jobset };
        let mut outcome = Outcome {
            written: Versions::NONE,
            failures: Vec::new(),
            provided: Vec::new(),
            accepted: HashSet::new(),
            status: Ok(false),
        };
        let (mut errors, mut stored, mut released) = (Vec::new(), None, 0);
        // The requests of which one is refused are not sent, unless they are under way.
        let refused = Mutex::new(HashSet::new());
        let mut answers = stream::iter(actions.into_iter().map(|action| async {
            let _bulk_connection = match urgency {
                Urgency::Urgent => [None, None],
                Urgency::Bulk => self.bulk_connection().await,
            };
            let _connection = self.connections.acquire().await;
            let (own, shared) = (Request::of(&action), Request::shared(&action));
            if let Some(shared) = &shared
                && refused.lock().await.contains(shared)
            {
                return None;
            }
            let is_release = matches!(action, Action::ReleasePod { .. });
            let answer = actor.carry_out(action).await;
            if let Some(shared) = &shared
                && answer.as_ref().is_err_and(ApplyError::refuses_shared)
            {
                refused.lock().await.insert(shared.clone());
            }
            Some((own, shared, is_release, answer))
        }))
        .buffered(CONCURRENCY);
        while let Some(answer) = answers.next().await {
            let Some((own, shared, is_release, answer)) = answer else { continue };
            match answer {
                Ok(Done::Written(versions)) => {
                    released += u32::from(is_release && versions != Versions::NONE);
                    outcome.written.raise(versions);
                    outcome.accepted.insert(own);
                    outcome.accepted.extend(shared);
                }
                Ok(Done::Provided) => outcome.provided.push(own),
                Err(error) => {
                    let refused = shared.clone().filter(|_| error.refuses_shared()).unwrap_or(own);
                    outcome.failures.push((refused, error.reduced()));
                    outcome.accepted.extend(shared.filter(|_| matches!(error, ApplyError::Taken { .. })));
                    errors.push(error);
                }
            }
        }
        drop(answers);
        // The status does not depend on the actions: a refused Job does not hold up the epochs of the others.
        if let Some(status) = status {
            outcome.status = match actor.write_status(status).await {
                Ok(jobset) => {
                    outcome.written.raise(Versions::of(Kind::JobSet, version(&jobset)));
                    stored = Some(jobset);
                    Ok(true)
                }
                Err(error) => {
                    let reduced = error.reduced();
                    errors.push(error);
                    Err(reduced)
                }
            };
        }
        Answers { outcome, stored, released, errors }
    }
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
            Action::CreateJob(job) => self.create(Kind::Job, &build::job(self.jobset, &job), |_| None).await,
            Action::DeleteJob { name, uid } => self.delete_job(&name, uid).await,
            Action::SuspendJob { name, uid } => self.patch_job(&name, &uid, json!({"suspend": true})).await,
            // The Job controller deletes the active Pods of a Job whose deadline has passed, and keeps those that have ended.
            Action::EndJob { name, uid } => {
                self.patch_job(&name, &uid, json!({"activeDeadlineSeconds": ENDED_JOB_DEADLINE})).await
            }
            Action::ResumeJob { uid, with_resources, desired } => {
                self.resume_job(&uid, &build::job(self.jobset, &desired), with_resources).await
            }
            Action::ResizeJob { name, uid, parallelism, completions } => {
                self.patch_job(&name, &uid, json!({"parallelism": parallelism, "completions": completions})).await
            }
            Action::DeletePod { name, uid, reason } => self.delete_pod(&name, uid, reason).await,
            Action::ReleasePod { name, uid } => self.release_pod(&name, &uid).await,
            Action::CreateService { .. } => {
                self.create(Kind::Service, &build::service(self.jobset), not_headless).await
            }
            Action::CreateClaim { place, .. } => {
                self.create(Kind::Claim, &build::claim(self.jobset, place), |_| None).await
            }
            Action::CreateRoleBinding { cluster_role, .. } => {
                self.require_agent_policy().await?;
                self.create(Kind::RoleBinding, &build::role_binding(self.jobset, &cluster_role), |_| None).await
            }
            Action::DeleteJobSet => self.delete_jobset().await,
            Action::DisableInPlaceRestart(cause) => self.disable_in_place_restart(cause).await,
            Action::AnnotateRestartBudget(budget) => self.annotate_restart_budget(budget).await,
        }
    }
}
