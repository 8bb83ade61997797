//! Sends a change, and waits until the controller has carried it out.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use jobset_api::{JobSet, labels};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::elsewhere;
use super::report::{ChangeOutcome, ChangeReport};
use super::restart::{self, RestartWish};
use super::suspension::{Suspension, SuspensionState};
use crate::args::{ChangeArgs, RestartArgs};
use crate::cluster::{ChangeStream, Cluster, WatchScope};
use crate::error::Error;
use crate::output::ProgressLine;

/// The JobSet is read again after this time without a change.
const REFRESH: Duration = Duration::from_secs(1);
/// How often a change is tried that another one has overtaken.
const TRIES: usize = 10;

/// Requests a restart, and waits until the controller has carried it out or noted it.
pub async fn follow_restart(
    cluster: &Cluster,
    args: &RestartArgs,
    line: &mut ProgressLine,
) -> Result<ChangeReport, Error> {
    let (name, follow) = (&args.change.name, Follow::begin(cluster, &args.change));
    let id = new_id()?;
    let decide = async |jobset: &JobSet| {
        if let Some(refusal) = restart::refusal(jobset, args.uncounted) {
            return ControlFlow::Break(refusal);
        }
        if let Some(pod) = &args.pod
            && !cluster.may_have_pod(name, pod).await
        {
            let why = format!("has no Pod {pod}: `kubectl jobset status {name} --pods` lists its Pods");
            return ControlFlow::Break(why);
        }
        let (reason, pod) = (args.reason.clone(), args.pod.clone());
        let wish = RestartWish { reason, pod, uncounted: args.uncounted, user: cluster.user().await };
        let annotations = json!({labels::RESTART_REQUEST: wish.request(id.clone()).to_text()});
        ControlFlow::Continue(json!({"metadata": {"annotations": annotations}}))
    };
    let changed = match follow.change("restart", decide).await? {
        ControlFlow::Break(why) => return Ok(follow.report(ChangeOutcome::Refused, why)),
        ControlFlow::Continue(changed) => changed,
    };
    let what = |jobset: &JobSet| match jobset.handled_restart_request(&id) {
        Some(handled) => Step::Ended(restart::result(jobset, handled), handled.restart),
        None => Step::Wait(format!("waiting for the controller to carry out request {id}")),
    };
    let ended = follow.wait(changed.as_deref(), line, what).await?;
    let (outcome, message, restart) = match ended {
        Ok(((outcome, message), restart)) => (outcome, message, restart),
        Err(_) => (ChangeOutcome::TimedOut, restart::timed_out(name, &id), None),
    };
    Ok(ChangeReport { request: Some(id), restart, ..follow.report(outcome, message) })
}

/// Suspends or resumes a JobSet, and waits until the controller has done so.
pub async fn follow_suspension(
    cluster: &Cluster,
    args: &ChangeArgs,
    wanted: Suspension,
    line: &mut ProgressLine,
) -> Result<ChangeReport, Error> {
    let follow = Follow::begin(cluster, args);
    let decide = async |jobset: &JobSet| match wanted.state(jobset) {
        SuspensionState::Change => ControlFlow::Continue(json!({"spec": {"suspend": wanted.suspend()}})),
        settled => ControlFlow::Break((settled, jobset.metadata.uid.clone())),
    };
    let changed = match follow.change(wanted.verb(), decide).await? {
        ControlFlow::Break((SuspensionState::Ended(outcome, message), _)) => return Ok(follow.report(outcome, message)),
        ControlFlow::Break((_, uid)) | ControlFlow::Continue(uid) => uid,
    };
    let what = |jobset: &JobSet| match wanted.state(jobset) {
        SuspensionState::Ended(outcome, message) => Step::Ended((outcome, message), None),
        SuspensionState::Wait(progress) => Step::Wait(progress),
        SuspensionState::Change => Step::Wait("somebody has changed spec.suspend back".to_owned()),
    };
    let (outcome, message) = match follow.wait(changed.as_deref(), line, what).await? {
        Ok((ended, _)) => ended,
        Err(progress) => (ChangeOutcome::TimedOut, wanted.timed_out(&args.name, &progress)),
    };
    Ok(follow.report(outcome, message))
}

enum Step {
    Wait(String),
    Ended((ChangeOutcome, String), Option<i32>),
}

struct Follow<'a> {
    cluster: &'a Cluster,
    args: &'a ChangeArgs,
    start: Instant,
}

impl<'a> Follow<'a> {
    fn begin(cluster: &'a Cluster, args: &'a ChangeArgs) -> Self {
        Self { cluster, args, start: Instant::now() }
    }

    fn report(&self, outcome: ChangeOutcome, message: String) -> ChangeReport {
        let (name, namespace) = (self.args.name.clone(), self.cluster.namespace.clone());
        ChangeReport { name, namespace, outcome, message, request: None, restart: None }
    }

    /// Patches the JobSet, again with each version by which another change has overtaken this one. `decide` gives the patch for a
    /// version, or breaks if there is nothing to change. Returns the UID of the JobSet.
    async fn change<B>(
        &self,
        verb: &str,
        decide: impl AsyncFn(&JobSet) -> ControlFlow<B, Value>,
    ) -> Result<ControlFlow<B, Option<String>>, Error> {
        let mut tries = 0;
        loop {
            let jobset = self.cluster.jobset(&self.args.name).await?;
            let patch = match decide(&jobset).await {
                ControlFlow::Continue(patch) => patch,
                ControlFlow::Break(why) => return Ok(ControlFlow::Break(why)),
            };
            tries += 1;
            match self.cluster.change(&jobset, patch, verb).await {
                Err(error) if error.is_conflict() && tries < TRIES => {}
                changed => return changed.map(|()| ControlFlow::Continue(jobset.metadata.uid)),
            }
        }
    }

    /// Waits for the end of the change of the JobSet with this UID, or, as `Err`, says how far it was when the time was over.
    async fn wait(
        &self,
        uid: Option<&str>,
        line: &mut ProgressLine,
        step: impl Fn(&JobSet) -> Step,
    ) -> Result<Result<((ChangeOutcome, String), Option<i32>), String>, Error> {
        let mut changes = ChangeStream::begin(self.cluster, &WatchScope::Tree(self.args.name.clone()));
        loop {
            let jobset = match self.cluster.jobset(&self.args.name).await {
                Ok(jobset) if !elsewhere::is_another(uid, &jobset) => jobset,
                Ok(_) | Err(Error::NotFound { .. }) => {
                    return Ok(Ok(((ChangeOutcome::Refused, elsewhere::DELETED.to_owned()), None)));
                }
                Err(error) => return Err(error),
            };
            let progress = match step(&jobset) {
                Step::Ended(ended, restart) => return Ok(Ok((ended, restart))),
                Step::Wait(progress) => progress,
            };
            if self.start.elapsed() >= self.args.timeout {
                return Ok(Err(progress));
            }
            line.show(&progress, self.start.elapsed());
            let _ = timeout(REFRESH, changes.next()).await;
        }
    }
}

/// An ID that no other request has.
fn new_id() -> Result<String, Error> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(Error::Random)?;
    let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    Ok(format!("kubectl-{now}-{:08x}", u32::from_be_bytes(random)))
}
