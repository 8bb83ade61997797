//! Sends the requests of a work.
//!
//! A work ends when each of its requests is answered or slow: it has had no answer for [`SLOW`]. A slow request gives its connection
//! back and goes on beside the works ([`slow`]).

mod agent_policy;
mod answers;
mod connections;
mod create;
mod events;
mod job;
mod jobset;
mod objects;
mod pod;
mod refusal;
mod slow;
#[cfg(test)]
mod tests;
mod warning;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::join;
use futures::stream::{self, StreamExt};
use jobset_api::JobSet;
use jobset_program::lock;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use serde_json::json;
use tokio::select;
use tokio_util::sync::CancellationToken;

use super::client::{Workers, watched};
use super::error::ApplyError;
pub(super) use answers::Answers;
use jobset_engine::{Request, SLOW, Urgency, Work};
use jobset_rules::{Action, ENDED_JOB_DEADLINE, build};
use jobset_store::{Key, Kind, PodWarning, Versions};

use connections::Connections;
use create::gives_no_names;
pub(super) use slow::{LateAnswer, LateAnswers, SlowRequests};

/// Most actions under way at once for one JobSet.
const CONCURRENCY: usize = 32;

/// The outcome of an action that did not fail.
enum Done {
    Written(Versions),
    /// The object exists and belongs to another owner, which serves as well.
    Provided,
    Warned(PodWarning),
}

/// The outcome of an action that has nothing left to do.
const NOTHING: Done = Done::Written(Versions::NONE);

/// What has become of a request.
enum Sent<T> {
    Answered(T),
    /// It has no answer yet.
    Slow(BoxFuture<'static, T>),
}

/// Waits for the answer to a request until it is slow.
async fn sent<T>(request: impl Future<Output = T> + Send + 'static) -> Sent<T> {
    let (mut request, unanswered) = watched(request);
    select! {
        biased;
        answer = &mut request => Sent::Answered(answer),
        () = unanswered.lasts(SLOW) => Sent::Slow(request),
    }
}

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

    fn client(&self, urgency: Urgency) -> &Client {
        match urgency {
            Urgency::Urgent => &self.workers.urgent,
            Urgency::Bulk => &self.workers.bulk,
        }
    }

    /// Sends the requests of a work, in the order that [`Plan`](jobset_rules::Plan) has.
    pub(super) async fn apply(&self, work: Work) -> Answers {
        let Work { jobset, actions, status, status_urgency, urgency, .. } = work;
        if urgency == Urgency::Urgent {
            self.connections.expect_urgent();
        }
        let actor = |urgency| Arc::new(Actor::new(self.client(urgency), &jobset));
        let sender = actor(urgency);
        let mut answers = Answers::default();
        let (on_jobset, others): (Vec<_>, Vec<_>) = actions.into_iter().partition(Action::is_on_jobset);
        for action in on_jobset {
            self.send_all(&sender, vec![action], urgency, &mut answers).await;
        }
        let writer = actor(status_urgency);
        let written = async {
            match status {
                Some(status) => Some(sent(async move { writer.write_status(status).await }).await),
                None => None,
            }
        };
        let ((), written) = join!(self.send_all(&sender, others, urgency, &mut answers), written);
        match written {
            None => answers.outcome.status = Some(Ok(false)),
            Some(Sent::Answered(answer)) => answers.take_status(answer),
            Some(Sent::Slow(answer)) => answers.slow.push_status(&sender.key.name, answer),
        }
        answers.outcome.unanswered = answers.slow.parts();
        answers
    }

    /// Sends actions in order, several at a time, until one is slow. What comes after it would wait as long, and the engine may
    /// have something better to do by then.
    async fn send_all(&self, actor: &Arc<Actor>, actions: Vec<Action>, urgency: Urgency, answers: &mut Answers) {
        let one_is_slow = CancellationToken::new();
        let refused = Mutex::new(HashSet::new());
        let refused = || lock(&refused);
        let send = async |action: Action| {
            let (own, shared) = (Request::of(&action), Request::shared(&action));
            let connection = self.connections.acquire(&actor.key.namespace, urgency);
            let _connection = one_is_slow.run_until_cancelled(connection).await?;
            if one_is_slow.is_cancelled() || shared.as_ref().is_some_and(|shared| refused().contains(shared)) {
                return None;
            }
            let actor = Arc::clone(actor);
            let answer = sent(async move { actor.carry_out(action).await }).await;
            match &answer {
                Sent::Answered(Err(error)) if error.refuses_shared() => refused().extend(shared.clone()),
                Sent::Answered(_) => {}
                Sent::Slow(_) => one_is_slow.cancel(),
            }
            Some((own, shared, answer))
        };
        let mut all = stream::iter(actions.into_iter().map(send)).buffered(CONCURRENCY);
        while let Some(answer) = all.next().await {
            match answer {
                None => {}
                Some((own, shared, Sent::Answered(answer))) => answers.take(own, shared, answer),
                Some((own, shared, Sent::Slow(answer))) => answers.slow.push(own, shared, answer),
            }
        }
    }
}

/// Acts for one JobSet.
struct Actor {
    client: Client,
    key: Key,
    jobset: Arc<JobSet>,
}

impl Actor {
    fn new(client: &Client, jobset: &Arc<JobSet>) -> Self {
        Self { client: client.clone(), key: Key::of(jobset.as_ref()), jobset: Arc::clone(jobset) }
    }

    async fn carry_out(&self, action: Action) -> Result<Done, ApplyError> {
        match action {
            Action::CreateJob(job) => self.create(Kind::Job, &build::job(&self.jobset, &job), |_| None).await,
            Action::DeleteJob { name, uid } => self.delete_job(&name, uid).await,
            Action::SuspendJob { name, uid } => self.patch_job(&name, &uid, json!({"suspend": true})).await,
            // The Job controller deletes the active Pods of a Job whose deadline has passed, and keeps those that have ended.
            Action::EndJob { name, uid } => {
                self.patch_job(&name, &uid, json!({"activeDeadlineSeconds": ENDED_JOB_DEADLINE})).await
            }
            Action::ResumeJob { uid, with_resources, desired } => {
                self.resume_job(&uid, &build::job(&self.jobset, &desired), with_resources).await
            }
            Action::ResizeJob { name, uid, parallelism, completions } => {
                self.patch_job(&name, &uid, json!({"parallelism": parallelism, "completions": completions})).await
            }
            Action::DeletePod { name, uid, reason } => self.delete_pod(&name, uid, reason).await,
            Action::ReleasePod { name, uid } => self.release_pod(&name, &uid).await,
            Action::CreateService { .. } => {
                let unusable = |service: &Service| gives_no_names(&self.jobset, service);
                self.create(Kind::Service, &build::service(&self.jobset), unusable).await
            }
            Action::CreateClaim { place, .. } => {
                self.create(Kind::Claim, &build::claim(&self.jobset, place), |_| None).await
            }
            Action::CreateRoleBinding { cluster_role, .. } => {
                self.require_agent_policy().await?;
                self.create(Kind::RoleBinding, &build::role_binding(&self.jobset, &cluster_role), |_| None).await
            }
            Action::FindRefusal { job, uid } => self.find_refusal(&job, &uid).await,
            Action::FindWarning { pod, uid, since } => self.find_warning(pod, uid, since).await,
            Action::DeleteJobSet => self.delete_jobset().await,
            Action::DisableInPlaceRestart(cause) => self.disable_in_place_restart(cause).await,
            Action::AnnotateRestartBudget(budget) => self.annotate_restart_budget(budget).await,
        }
    }
}
