//! Gangs of Kubernetes 1.37, with its gates: a Workload of the user names the JobSet, and the Job controller makes the PodGroup of a
//! Job from it. Left out on older releases.

use anyhow::{Context, Result, bail, ensure};
use jobset_api::{JobSet, labels};
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT, Worker};
use jobset_harness::install::{create_namespace, install};
use jobset_harness::programs::{Kubernetes, Versions};
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{RECREATE, SUPERVISED, Workload, is_ready};
use k8s_openapi::api::scheduling::v1beta1;
use kube::api::{EvictParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::shared::{assert_in_place, assert_replaced, binaries};
use crate::seat::take_seat;

/// What the API server, the Job controller and the scheduler need.
const GATES: &str = "--feature-gates=GenericWorkload=true,WorkloadWithJob=true";
/// The API of Workloads and PodGroups, which is off by default.
const API: &str = "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true";
/// The Workload's template for the Pods of the replicatedJob.
const TEMPLATE: &str = "workers";
const WORKERS: usize = 2;

#[tokio::test]
async fn gangs_of_1_37_restart_in_place_and_by_recreation() -> Result<()> {
    if Versions::from_environment()?.control_plane < Kubernetes::V1_37 {
        progress("gangs need Kubernetes 1.37: left out");
        return Ok(());
    }
    take_seat().await?;
    let cluster = Cluster::builder().api_server_arg(GATES).api_server_arg(API);
    let cluster = cluster.controller_manager_arg(GATES).scheduler_arg(GATES).cluster(1).await?;
    install(&cluster, binaries().await?).await?;
    tokio::try_join!(in_place(&cluster), recreated(&cluster))?;
    cluster.stop().await
}

async fn in_place(cluster: &Cluster) -> Result<()> {
    let group = apply(cluster, "gang-in-place", SUPERVISED).await?;
    let first = group.runs_in_epoch(1).await?;
    group.exit(worker(first.values())?, 1).await?;
    let second = group.runs_in_epoch(2).await?;
    assert_in_place(&first, &second);
    // The scheduler takes the successor of a lost Pod into the gang of those that are there.
    let evicted = worker(second.values())?;
    group.pods.evict(&evicted.pod, &EvictParams::default()).await?;
    let third = group.runs_in_epoch(3).await?;
    assert_replaced(&second, evicted, third.clone())?;
    are_a_gang(&group).await?;
    completes_and_fails(&group, &third.into_values().collect::<Vec<_>>()).await?;
    let fourth = group.runs_in_epoch(4).await?;
    finish(&group, fourth.values()).await
}

async fn recreated(cluster: &Cluster) -> Result<()> {
    let group = apply(cluster, "gang-recreated", RECREATE).await?;
    let first = runs_in_attempt(&group, "0").await?;
    are_a_gang(&group).await?;
    completes_and_fails(&group, &first).await?;
    let second = runs_in_attempt(&group, "1").await?;
    are_a_gang(&group).await?;
    finish(&group, second.iter()).await
}

/// Creates the Workload and then the JobSet. A Job that starts without its Workload gets no PodGroup.
async fn apply(cluster: &Cluster, namespace: &str, manifest: &str) -> Result<Group> {
    create_namespace(&cluster.client(), namespace).await?;
    let mut workload = Workload::new(manifest, namespace, &cluster.shared_dir())?.of_shape(1, WORKERS);
    let workloads: Api<v1beta1::Workload> = Api::namespaced(cluster.client(), namespace);
    let gang = serde_json::from_value(json!({
        "metadata": {"name": "gang"},
        "spec": {
            "controllerRef": {"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": workload.name()},
            "podGroupTemplates": [{"name": TEMPLATE, "schedulingPolicy": {"gang": {"minCount": WORKERS}}}],
        },
    }))?;
    workloads.create(&PostParams::default(), &gang).await.context("the Workload was rejected")?;
    workload.0["spec"]["replicatedJobs"][0]["template"]["metadata"] =
        json!({"annotations": {labels::POD_GROUP_TEMPLATE: TEMPLATE}});
    let jobsets: Api<JobSet> = Api::namespaced(cluster.client(), namespace);
    jobsets.create(&PostParams::default(), &serde_json::from_value(workload.0.clone())?).await?;
    Ok(Group::of(cluster, namespace, workload.name(), WORKERS))
}

async fn are_a_gang(group: &Group) -> Result<()> {
    for pod in group.live_pods().await? {
        let gang = pod.spec.as_ref().and_then(|spec| spec.scheduling_group.as_ref()?.pod_group_name.as_deref());
        ensure!(gang.is_some_and(|name| name.starts_with("gang-workers-")), "{} is in {gang:?}", pod.name_any());
    }
    Ok(())
}

/// Has one worker complete, and then another fail. Kubernetes would schedule no replacement (kubernetes#142330).
async fn completes_and_fails(group: &Group, workers: &[Worker]) -> Result<()> {
    let [completes, fails] = workers else { bail!("not two: {workers:?}") };
    group.exit(completes, 0).await?;
    wait::until(LIMIT, format!("the completion of {}", completes.pod), || async {
        let status = group.pods.get(&completes.pod).await?.status.unwrap_or_default();
        Ok((status.phase.as_deref() == Some("Succeeded")).then_some(()))
    })
    .await?;
    group.exit(fails, 1).await
}

/// Waits until all workers of this attempt are ready.
async fn runs_in_attempt(group: &Group, attempt: &str) -> Result<Vec<Worker>> {
    wait::until_met(LIMIT, format!("attempt {attempt} of {}", group.namespace), || async {
        let mut pods = group.live_pods().await?;
        pods.retain(|pod| pod.labels().get(labels::RESTART_ATTEMPT).is_some_and(|it| it == attempt) && is_ready(pod));
        Ok(if pods.len() == WORKERS { Check::Met(()) } else { Check::Unmet(format!("{} are ready", pods.len())) })
    })
    .await?;
    Ok(group.workers().await?.into_values().collect())
}

async fn finish(group: &Group, workers: impl Iterator<Item = &Worker>) -> Result<()> {
    for worker in workers {
        group.exit(worker, 0).await?;
    }
    let status = group.finished().await?;
    ensure!((status.terminal_state.as_str(), status.restarts) == ("Completed", 1), "{status:?}");
    Ok(())
}

fn worker<'a>(mut workers: impl Iterator<Item = &'a Worker>) -> Result<&'a Worker> {
    workers.next().context("no worker")
}
