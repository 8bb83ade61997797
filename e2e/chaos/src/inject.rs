//! Carries a fault out.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::DeleteParams;

use super::disturb::disturb;
use super::expectation::Losses;
use super::facts::{Facts, PodFacts, epoch};
use super::fault::Fault;
use super::plan::{Hit, Step};
use super::starve::starve;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT};
use jobset_harness::journal::now;
use jobset_harness::order;
use jobset_harness::process::{self, Errno, Process, Signal};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::WORKER_PORT;

/// How often the same worker is killed.
const AGAIN: usize = 5;
/// How long the kubelet may take to report a container's end.
const STATUS: Duration = Duration::from_secs(3);

/// The group that a fault hits.
pub(super) struct Target<'a> {
    pub(super) group: &'a Group,
    pub(super) hit: &'a Hit,
    /// The group before the fault.
    pub(super) before: &'a Facts,
}

/// Carries out a step on a group, and on the cluster if the fault is one of the cluster.
pub(super) async fn inject(cluster: &Cluster, target: &Target<'_>, step: &Step) -> Result<Losses> {
    let victim = target.pod(target.hit.victim)?;
    let mut losses = Losses::default();
    match step.fault {
        Fault::WorkerKilled => losses.kill([worker(victim)?])?,
        Fault::AllWorkersKilled => {
            let workers: Result<Vec<_>> = target.before.pods.iter().map(worker).collect();
            losses.kill(workers?)?;
        }
        Fault::TwoWorkersKilled => {
            losses.kill([worker(victim)?])?;
            tokio::time::sleep(step.apart).await;
            // One that waits at the barrier cannot be hit.
            losses.kill(workers(target.pod(target.hit.second)?)?)?;
        }
        Fault::SameWorkerKilled => {
            for _ in 0..AGAIN {
                losses.kill([next_worker(victim, &losses).await?])?;
            }
        }
        Fault::WorkerKilledAfterSuccess => {
            succeed(target).await?;
            losses.kill([worker(victim)?])?;
        }
        Fault::AgentKilled => {
            losses.lose(&worker(victim)?)?;
            target.group.agent(&victim.name)?.signal(Signal::KILL)?;
        }
        Fault::AgentTerminated => {
            losses.lose(&worker(victim)?)?;
            target.group.agent(&victim.name)?.signal(Signal::TERM)?;
        }
        Fault::AgentOutOfMemory => {
            losses.lose(&worker(victim)?)?;
            let since = Timestamp::now().as_second();
            starve(&target.group.agent(&victim.name)?).await?;
            losses.reported = out_of_memory(&target.group.pods, victim, since).await;
        }
        Fault::AgentAndWorkerKilled => {
            let (agent, worker) = (target.group.agent(&victim.name)?, worker(victim)?);
            losses.lose(&worker)?;
            // The agent first: a supervisor that has time to see its worker go would be a case of its own. Its worker is
            // gone by then.
            agent.signal(Signal::KILL)?;
            let _ = worker.signal(Signal::KILL);
        }
        Fault::PodDeleted => {
            losses.lose(&worker(victim)?)?;
            target.group.pods.delete(&victim.name, &DeleteParams::default()).await?;
        }
        Fault::KubeletStopped
        | Fault::ApiServerRestarted
        | Fault::LeaderKilled
        | Fault::LeaderStopped
        | Fault::StreamCut
        | Fault::StreamBlocked
        | Fault::RelayStopped
        | Fault::TokenRotated
        | Fault::CaRotated => disturb(cluster, target, step, &mut losses).await?,
    }
    Ok(losses)
}

impl Target<'_> {
    pub(super) fn pod(&self, slot: usize) -> Result<&PodFacts> {
        self.before.pods.get(slot).with_context(|| format!("there is no slot {slot}"))
    }
}

impl Losses {
    /// Kills these workers, one right after the other.
    pub(super) fn kill(&mut self, workers: impl IntoIterator<Item = Process>) -> Result<()> {
        for worker in workers {
            match worker.signal(Signal::KILL) {
                Ok(()) => self.lose(&worker)?,
                // The worker has ended already.
                Err(Errno::SRCH) => {}
                Err(error) => return Err(error).context("cannot kill a worker"),
            }
        }
        Ok(())
    }

    /// Notes that this worker ends now, whatever ends it.
    fn lose(&mut self, worker: &Process) -> Result<()> {
        self.epochs.insert(epoch(worker).context("a worker does not know its epoch")?);
        self.at = now();
        Ok(())
    }
}

/// The worker processes of a Pod: one, or none while it waits.
fn workers(pod: &PodFacts) -> Result<Vec<Process>> {
    process::find("jobset-test-worker", &[("POD_UID", &pod.uid)])
}

pub(super) fn worker(pod: &PodFacts) -> Result<Process> {
    process::find_one("jobset-test-worker", &[("POD_UID", &pod.uid)])
}

/// The worker of a Pod once it has started in another epoch than those in which it was killed.
async fn next_worker(pod: &PodFacts, losses: &Losses) -> Result<Process> {
    wait::until(LIMIT, format!("the worker of {} to start again", pod.name), || async {
        let is_next = |worker: &Process| epoch(worker).is_some_and(|epoch| !losses.epochs.contains(&epoch));
        Ok(workers(pod)?.into_iter().find(is_next))
    })
    .await
}

/// Has the second worker end with 0, and waits until its Pod has.
async fn succeed(target: &Target<'_>) -> Result<()> {
    let name = &target.pod(target.hit.second)?.name;
    let pods = &target.group.pods;
    order::exit(&pods.get(name).await?, WORKER_PORT, 0).await?;
    wait::until_met(LIMIT, format!("{name} to succeed"), || async {
        let phase = pods.get(name).await?.status.and_then(|status| status.phase);
        Ok(if phase.as_deref() == Some("Succeeded") { Check::Met(()) } else { Check::Unmet(format!("{phase:?}")) })
    })
    .await
}

/// What the Pod's status says of the container that was killed for want of memory since this second. The kubelet erases it
/// when it restarts the whole Pod, mostly before it has written it.
async fn out_of_memory(pods: &Api<Pod>, pod: &PodFacts, since: i64) -> Option<String> {
    let reported = wait::until(STATUS, "the kubelet's report", || async {
        let status = pods.get(&pod.name).await?.status.unwrap_or_default();
        let containers = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
        let ended = containers.flat_map(|it| [it.state, it.last_state]).flatten().filter_map(|it| it.terminated);
        let is_new = |at: &Time| at.0.as_second() >= since;
        let mut new = ended.filter(|ended| ended.finished_at.as_ref().is_some_and(is_new));
        Ok(new.find_map(|ended| ended.reason.filter(|reason| reason == "OOMKilled")))
    });
    reported.await.ok()
}
