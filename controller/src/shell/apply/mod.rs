//! Sends the requests of a work.

mod agent_policy;
mod connections;
mod create;
mod job;
mod jobset;
mod objects;
mod pod;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use futures::join;
use futures::stream::{self, StreamExt};
use jobset_api::{JobSet, JobSetStatus};
use kube::Client;
use serde_json::json;
use tokio::sync::Mutex;

use super::client::Workers;
use super::error::ApplyError;
use crate::build;
use crate::engine::{Key, Kind, Outcome, Request, Urgency, Versions, version};
use crate::plan::{Action, ENDED_JOB_DEADLINE};
use connections::Connections;
use create::not_headless;

/// Most actions under way at once for one JobSet.
const CONCURRENCY: usize = 32;

/// The answers to the requests of a work.
pub(super) struct Answers {
    /// For the engine.
    pub(super) outcome: Outcome,
    /// The JobSet with the status that was written.
    pub(super) stored: Option<JobSet>,
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

/// Sends requests. All clones share the connections.
#[derive(Clone)]
pub(super) struct Applier {
    workers: Workers,
    connections: Arc<Connections>,
}

impl Applier {
    pub(super) fn new(workers: Workers) -> Self {
        Self { workers, connections: Arc::new(Connections::new()) }
    }

    /// Sends the actions for a JobSet, and writes its status if there is one to write, in the order that
    /// [`Plan`](crate::plan::Plan) has.
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
            self.connections.expect_urgent();
        }
        let actor = Actor { client, key: &Key::of(jobset), jobset };
        let mut outcome = Outcome {
            written: Versions::NONE,
            failures: Vec::new(),
            provided: Vec::new(),
            accepted: HashSet::new(),
            status: Ok(false),
        };
        let (mut errors, mut stored) = (Vec::new(), None);
        // The requests of which one is refused are not sent, unless they are under way.
        let refused = Mutex::new(HashSet::new());
        let send = async |action| {
            let _connection = self.connections.acquire(&actor.key.namespace, urgency).await;
            let (own, shared) = (Request::of(&action), Request::shared(&action));
            if let Some(shared) = &shared
                && refused.lock().await.contains(shared)
            {
                return None;
            }
            let answer = actor.carry_out(action).await;
            if let Some(shared) = &shared
                && answer.as_ref().is_err_and(ApplyError::refuses_jobs)
            {
                refused.lock().await.insert(shared.clone());
            }
            Some((own, shared, answer))
        };
        let (on_jobset, others): (Vec<_>, Vec<_>) = actions.into_iter().partition(Action::is_on_jobset);
        let mut answers: Vec<_> = stream::iter(on_jobset.into_iter().map(&send)).buffered(1).collect().await;
        let written = async {
            match status {
                Some(status) => Some(actor.write_status(status).await),
                None => None,
            }
        };
        let others = stream::iter(others.into_iter().map(&send)).buffered(CONCURRENCY).collect::<Vec<_>>();
        let (others, written) = join!(others, written);
        answers.extend(others);
        for (own, shared, answer) in answers.into_iter().flatten() {
            match answer {
                Ok(Done::Written(versions)) => {
                    outcome.written.raise(versions);
                    outcome.accepted.insert(own);
                    outcome.accepted.extend(shared);
                }
                Ok(Done::Provided) => outcome.provided.push(own),
                Err(error) => {
                    let refused = shared.clone().filter(|_| error.refuses_jobs()).unwrap_or(own);
                    outcome.failures.push((refused, error.reduced()));
                    outcome.accepted.extend(shared.filter(|_| matches!(error, ApplyError::Taken { .. })));
                    errors.push(error);
                }
            }
        }
        if let Some(written) = written {
            outcome.status = match written {
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
        Answers { outcome, stored, errors }
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
