//! MultiKueue: a JobSet that is queued in one cluster, and runs in another.

use anyhow::{Context, Result, ensure};
use jobset_api::{JobSet, JobSetStatus, conditions, labels};
use jobset_e2e::clients::kueue;
use jobset_e2e::manifests;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT};
use jobset_harness::install::{self, create_namespace};
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{SUPERVISED, Workload};
use kube::api::PostParams;
use serde_json::{Value, json};

use super::queue::{self, LOCAL_QUEUE, QUEUE_NAME, VERSION};
use crate::kubelet::{assert_in_place, binaries};

const NAMESPACE: &str = "remote";
const INTEGRATIONS: [&str; 3] = ["batch/job", "pod", "jobset.x-k8s.io/jobset"];
const FLAVOR: &str = "default";
/// Name of all of MultiKueue's own objects.
const NAME: &str = "multikueue";

#[tokio::test]
#[ignore = "five minutes: make clients"]
async fn multikueue_jobset_restarts_remotely_and_shows_it_here() -> Result<()> {
    let (manager, worker) = (Cluster::start(1).await?, Cluster::start(1).await?);
    manager.join(&worker).await?;
    for cluster in [&manager, &worker] {
        install::install(cluster, binaries().await?).await?;
        kueue::install(cluster, &kueue::configuration_with(&INTEGRATIONS)?).await?;
        create_namespace(&cluster.client(), NAMESPACE).await?;
    }
    let flavor = json!({"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}});
    let mut queue = queue::cluster_queue([(FLAVOR, 2)]);
    manifests::apply(&worker, "queues.yaml", &[flavor.clone(), queue.clone()]).await?;
    queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": NAME}]});
    manifests::apply(&manager, "multikueue.yaml", &multikueue(&worker)?).await?;
    manifests::apply(&manager, "queues.yaml", &[flavor, queue]).await?;
    for cluster in [&manager, &worker] {
        queue::open(cluster, NAMESPACE).await?;
    }

    let (here, there) = create(&manager, &worker).await?;
    let before = there.runs_in_epoch(1).await?;
    shows(&here, "2/2", 0, "").await?;
    there.exit(before.values().next().context("no worker")?, 1).await?;
    let after = there.runs_in_epoch(2).await?;
    assert_in_place(&before, &after);
    shows(&here, "2/2", 1, "").await?;
    progress("a restart in place in the other cluster is counted here");
    assert!(here.live_pods().await?.is_empty(), "Pods in the cluster that manages");
    // What admission and docs say of it.
    let spec = there.jobsets.get(&there.name).await?.spec;
    assert_eq!(spec.failure_policy.and_then(|policy| policy.restart_backoff), None);

    for worker in after.values() {
        there.exit(worker, 0).await?;
    }
    let status = shows(&here, "2/2", 1, "Completed").await?;
    assert_eq!((status.synced_epoch, status.recent_restarts.len()), (0, 0), "{status:?}");
    progress("it has completed in both");
    manager.stop().await?;
    worker.stop().await
}

/// The JobSet, in the cluster that manages it and in the one that runs it.
async fn create(manager: &Cluster, worker: &Cluster) -> Result<(Group, Group)> {
    let workload = Workload::new(SUPERVISED, NAMESPACE, &worker.shared_dir())?;
    let mut workload = workload.labelled(QUEUE_NAME, LOCAL_QUEUE).requesting_cpu("100m");
    workload.0["spec"]["managedBy"] = json!(labels::MULTIKUEUE);
    let [here, there] = [manager, worker].map(|it| Group::of(it, NAMESPACE, workload.name(), workload.pods()));
    let jobset: JobSet = serde_json::from_value(workload.0)?;
    ensure!(jobset.spec.failure_policy.as_ref().is_some_and(|policy| policy.restart_backoff.is_some()), "no back-off");
    here.jobsets.create(&PostParams::default(), &jobset).await.context("the JobSet was rejected")?;
    Ok((here, there))
}

/// Waits until the JobSet shows this, as the columns of `kubectl get jobsets` and the conditions do.
async fn shows(group: &Group, jobs_ready: &str, restarts: i32, state: &str) -> Result<JobSetStatus> {
    wait::until_met(LIMIT, format!("{jobs_ready} Jobs, {restarts} restarts and the state {state:?}"), || async {
        let status = group.status().await?;
        let is_shown = status.jobs_ready == jobs_ready
            && (status.group_restarts, status.restarts_count_towards_max) == (restarts, restarts)
            && status.terminal_state == state
            && (state.is_empty() || conditions::is_true(&status.conditions, state));
        Ok(if is_shown { Check::Met(status) } else { Check::Unmet(format!("{status:?}")) })
    })
    .await
}

/// What the manager has to know of the other cluster.
fn multikueue(worker: &Cluster) -> Result<[Value; 4]> {
    let kubeconfig =
        std::fs::read_to_string(worker.kubeconfig()).context("cannot read the kubeconfig of the worker")?;
    Ok([
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": kueue::NAMESPACE},
            "stringData": {"kubeconfig": kubeconfig},
        }),
        json!({
            "apiVersion": VERSION, "kind": "MultiKueueCluster", "metadata": {"name": NAME},
            "spec": {"clusterSource": {"kubeConfig": {"location": NAME, "locationType": "Secret"}}},
        }),
        json!({
            "apiVersion": VERSION, "kind": "MultiKueueConfig", "metadata": {"name": NAME},
            "spec": {"clusters": [NAME]},
        }),
        json!({
            "apiVersion": VERSION, "kind": "AdmissionCheck", "metadata": {"name": NAME},
            "spec": {
                "controllerName": labels::MULTIKUEUE,
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": NAME},
            },
        }),
    ])
}
