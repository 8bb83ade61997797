//! Disturbs what all groups share while a worker of one goes: kubelet, API server, leader, and the agent stream.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jobset_api::LEASE;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::sync::Notify;

use super::expectation::Losses;
use super::fault::{Fault, Mode};
use super::inject::{Target, worker};
use super::plan::Step;
use super::stopped::Stopped;
use super::stream;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::LIMIT;
use jobset_harness::install::{NAMESPACE, rolled_out};
use jobset_harness::process::{self, Process, Signal};
use jobset_harness::wait;

/// Name of the controller's program and of its Deployment.
const CONTROLLER: &str = "jobset-controller";

/// How many restarts with supervisors take as long as the longest delay of a step, which is that of one with sidecars.
const RESTART: u32 = 16;

/// What is about to be done to the cluster. It is looked up before the worker goes: supervisors restart sooner than one looks.
enum Disturbance {
    StopKubelet,
    RestartApiServer,
    KillLeader(Leader),
    StopLeader(Leader),
    KillRelays(Vec<(String, Process)>),
    BlockRelays(Vec<String>),
    StopRelay(Process),
    ReplaceCa,
}

/// The controller that holds the Lease, and how the Lease names it.
struct Leader {
    process: Process,
    holder: String,
}

/// Kills a worker, and disturbs the cluster in the middle of the restart, or at a moment of its own.
pub(super) async fn disturb(cluster: &Cluster, target: &Target<'_>, step: &Step, losses: &mut Losses) -> Result<()> {
    if step.fault.is_of_stream() {
        stream::is_whole(cluster).await?;
    }
    let disturbance = Disturbance::of(cluster, step).await?;
    let (until_kill, until_disturbed) = moments(step, target.hit.mode);
    let before_waking = Notify::new();
    let kill = async {
        if step.fault == Fault::LeaderStopped && step.in_restart {
            // The one that was stopped wakes in the middle of a restart by another leader.
            before_waking.notified().await;
        } else {
            tokio::time::sleep(until_kill).await;
        }
        losses.kill([worker(target.pod(target.hit.victim)?)?])
    };
    let disturb = async {
        tokio::time::sleep(until_disturbed).await;
        disturbance.happens(cluster, step, &before_waking, until_disturbed).await
    };
    tokio::try_join!(kill, disturb).map(|_| ())
}

/// When the worker goes, and when the cluster is disturbed.
fn moments(step: &Step, mode: Mode) -> (Duration, Duration) {
    match mode {
        _ if !step.in_restart => (step.apart, step.delay),
        Mode::Supervisor => (Duration::ZERO, step.delay / RESTART),
        Mode::Sidecar => (Duration::ZERO, step.delay),
    }
}

impl Disturbance {
    async fn of(cluster: &Cluster, step: &Step) -> Result<Self> {
        if step.fault == Fault::TokenRotated {
            stream::replace_tokens(cluster).await?;
        }
        Ok(match step.fault {
            Fault::KubeletStopped => Self::StopKubelet,
            Fault::ApiServerRestarted => Self::RestartApiServer,
            Fault::LeaderKilled => Self::KillLeader(leader(cluster).await?),
            Fault::LeaderStopped => Self::StopLeader(leader(cluster).await?),
            Fault::StreamBlocked => Self::BlockRelays(stream::addresses(cluster).await?),
            Fault::RelayStopped => {
                let mut relays = stream::relays(cluster).await?;
                ensure!(step.node < relays.len(), "no such relay");
                Self::StopRelay(relays.swap_remove(step.node).1)
            }
            Fault::CaRotated => Self::ReplaceCa,
            _ => Self::KillRelays(stream::relays(cluster).await?),
        })
    }

    /// Disturbs the cluster. A leader that is stopped wakes so long after `before_waking` is notified.
    async fn happens(self, cluster: &Cluster, step: &Step, before_waking: &Notify, wakes: Duration) -> Result<()> {
        match self {
            Self::StopKubelet => stop_kubelet(cluster, step).await,
            Self::RestartApiServer => cluster.restart_api_server().await,
            Self::KillLeader(leader) => {
                leader.process.signal(Signal::KILL).context("cannot kill the leader")?;
                leader.is_followed(cluster).await
            }
            Self::StopLeader(leader) => stop_leader(cluster, leader, step, before_waking, wakes).await,
            Self::KillRelays(relays) => stream::kill(cluster, relays).await,
            Self::BlockRelays(addresses) => stream::block(cluster, &addresses, step).await,
            Self::StopRelay(relay) => stream::stop(&relay, step).await,
            Self::ReplaceCa => stream::replace_ca(cluster).await,
        }
    }
}

/// Stops the kubelet of a node for a while. Its containers go on.
async fn stop_kubelet(cluster: &Cluster, step: &Step) -> Result<()> {
    let node = cluster.nodes().get(step.node).context("no such node")?;
    cluster.stop_kubelet(node).await?;
    tokio::time::sleep(step.outage).await;
    cluster.start_kubelet(node).await
}

/// Stops the leader, and wakes it some seconds after another one leads.
async fn stop_leader(
    cluster: &Cluster,
    leader: Leader,
    step: &Step,
    before_waking: &Notify,
    wakes: Duration,
) -> Result<()> {
    let stopped = Stopped::stop(&leader.process)?;
    leader.is_followed(cluster).await?;
    tokio::time::sleep(step.outage).await;
    before_waking.notify_one();
    tokio::time::sleep(wakes).await;
    drop(stopped);
    Ok(())
}

/// The controller that leads, once all controllers are ready.
async fn leader(cluster: &Cluster) -> Result<Leader> {
    rolled_out(cluster, NAMESPACE, CONTROLLER).await?;
    let holder = holder(cluster).await?.context("nobody leads")?;
    // The name of its Pod, and a number.
    let pod = holder.split_once('_').map_or(holder.as_str(), |(pod, _)| pod);
    Ok(Leader { process: process::find_one(CONTROLLER, &[("HOSTNAME", pod)])?, holder })
}

impl Leader {
    /// Waits until another controller leads.
    async fn is_followed(&self, cluster: &Cluster) -> Result<()> {
        wait::until(LIMIT, "another controller to lead", || async {
            let holder = holder(cluster).await?;
            Ok(holder.filter(|holder| !holder.is_empty() && *holder != self.holder).map(|_| ()))
        })
        .await
    }
}

async fn holder(cluster: &Cluster) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(cluster.client(), NAMESPACE);
    Ok(leases.get(LEASE).await?.spec.and_then(|spec| spec.holder_identity))
}
