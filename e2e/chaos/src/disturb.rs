//! Disturbs what all groups share while a worker of one goes: kubelet, API server, leader, and the agent stream.

use std::time::Duration;

use anyhow::{Context, Result};
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

/// Kills a worker before, in the middle of, or after what is done to the cluster.
pub(super) async fn disturb(cluster: &Cluster, target: &Target<'_>, step: &Step, losses: &mut Losses) -> Result<()> {
    if step.fault.is_of_stream() {
        stream::is_whole(cluster).await?;
    }
    if step.fault == Fault::TokenRotated {
        stream::replace_tokens(cluster).await?;
    }
    let (until_kill, until_disturbed) = moments(step, target.hit.mode);
    let before_waking = Notify::new();
    let kill = async {
        match (step.fault, step.node) {
            // Half of those that are stopped wake in the middle of a restart by another leader.
            (Fault::LeaderStopped, 1) => before_waking.notified().await,
            _ => tokio::time::sleep(until_kill).await,
        }
        losses.kill([worker(target.pod(target.hit.victim)?)?])
    };
    let disturb = async {
        tokio::time::sleep(until_disturbed).await;
        match step.fault {
            Fault::KubeletStopped => stop_kubelet(cluster, step).await,
            Fault::ApiServerRestarted => cluster.restart_api_server().await,
            Fault::LeaderKilled => kill_leader(cluster).await,
            Fault::LeaderStopped => stop_leader(cluster, step, &before_waking).await,
            Fault::StreamBlocked => stream::block(cluster, step).await,
            Fault::RelayStopped => stream::stop_relay(cluster, step).await,
            Fault::CaRotated => stream::replace_ca(cluster).await,
            _ => stream::cut(cluster).await,
        }
    };
    tokio::try_join!(kill, disturb).map(|_| ())
}

/// When the worker goes, and when the cluster is disturbed. Where the connections of agents end, that falls into the restart.
fn moments(step: &Step, mode: Mode) -> (Duration, Duration) {
    match (step.fault, mode) {
        (Fault::StreamCut | Fault::TokenRotated, Mode::Supervisor) => (Duration::ZERO, step.delay / RESTART),
        (Fault::StreamCut | Fault::TokenRotated, Mode::Sidecar) => (Duration::ZERO, step.delay),
        _ => (step.apart, step.delay),
    }
}

/// Stops the kubelet of a node for a while. Its containers go on.
async fn stop_kubelet(cluster: &Cluster, step: &Step) -> Result<()> {
    let node = cluster.nodes().get(step.node).context("no such node")?;
    cluster.stop_kubelet(node).await?;
    tokio::time::sleep(step.outage).await;
    cluster.start_kubelet(node).await
}

/// Kills the controller that holds the Lease, once there is another one, and waits until that one leads.
async fn kill_leader(cluster: &Cluster) -> Result<()> {
    let (leader, holder) = leader(cluster).await?;
    leader.signal(Signal::KILL).context("cannot kill the leader")?;
    another_leads(cluster, &holder).await
}

/// Stops the controller that holds the Lease, and wakes it some seconds after another one leads.
async fn stop_leader(cluster: &Cluster, step: &Step, before_waking: &Notify) -> Result<()> {
    let (leader, holder) = leader(cluster).await?;
    let stopped = Stopped::stop(leader)?;
    another_leads(cluster, &holder).await?;
    tokio::time::sleep(step.outage).await;
    before_waking.notify_one();
    tokio::time::sleep(step.delay / RESTART).await;
    drop(stopped);
    Ok(())
}

/// The controller that holds the Lease, and how the Lease names it, once all controllers are ready.
async fn leader(cluster: &Cluster) -> Result<(Process, String)> {
    rolled_out(cluster, NAMESPACE, CONTROLLER).await?;
    let holder = holder(cluster).await?.context("nobody leads")?;
    // The name of its Pod, and a number.
    let pod = holder.split_once('_').map_or(holder.as_str(), |(pod, _)| pod);
    Ok((process::find_one(CONTROLLER, &[("HOSTNAME", pod)])?, holder))
}

async fn holder(cluster: &Cluster) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(cluster.client(), NAMESPACE);
    Ok(leases.get(LEASE).await?.spec.and_then(|spec| spec.holder_identity))
}

async fn another_leads(cluster: &Cluster, before: &str) -> Result<()> {
    wait::until(LIMIT, "another controller to lead", || async {
        Ok(holder(cluster).await?.filter(|holder| !holder.is_empty() && holder != before).map(|_| ()))
    })
    .await
}
