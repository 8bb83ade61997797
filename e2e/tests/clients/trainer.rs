//! TrainJobs of a runtime whose JobSet restarts in place.

use anyhow::{Context, Result};
use jobset_e2e::clients::trainer;
use jobset_e2e::manifests;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT};
use jobset_harness::install;
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{SUPERVISED, Workload};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{condition, is_suspended, untyped};
use crate::kubelet::{assert_in_place, binaries};

const RUNTIME: &str = "in-place";
/// Trainer gives its settings to containers of this name.
const TRAINER_CONTAINER: &str = "node";
const NODES: u32 = 3;

#[tokio::test]
#[ignore = "five minutes: make clients"]
async fn trainjob_runs_fails_restarts_in_place_is_suspended_and_completes() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    install::install(&cluster, binaries().await?).await?;
    trainer::install(&cluster).await?;
    for shape in ["Sidecar", "Supervisor"] {
        story(&cluster, shape).await?;
    }
    fails(&cluster).await?;
    cluster.stop().await
}

async fn story(cluster: &Cluster, shape: &str) -> Result<()> {
    let namespace = format!("trainer-{}", shape.to_lowercase());
    let (group, jobs) = create(cluster, &namespace, shape).await?;
    let before = group.runs_in_epoch(1).await?;
    let victim = before.values().next().context("no worker")?;
    group.exit(victim, 1).await?;
    let after = group.runs_in_epoch(2).await?;
    assert_in_place(&before, &after);
    has_active_job(&jobs).await?;

    suspend(&jobs, true).await?;
    is_suspended(&group).await?;
    is_true(&jobs, "Suspended").await?;
    suspend(&jobs, false).await?;
    // A resume begins an epoch, too.
    for worker in group.runs_in_epoch(3).await?.values() {
        group.exit(worker, 0).await?;
    }
    is_true(&jobs, "Complete").await?;
    let status = group.status().await?;
    assert_eq!((status.restarts_count_towards_max, status.restarts), (1, 0));
    progress(&format!("{shape}: a TrainJob restarted in place, was suspended and resumed, and completed"));
    Ok(())
}

/// Exit code 42 is fatal by the runtime's failure policy.
async fn fails(cluster: &Cluster) -> Result<()> {
    let (group, jobs) = create(cluster, "trainer-fatal", "Supervisor").await?;
    let workers = group.runs_in_epoch(1).await?;
    group.exit(workers.values().next().context("no worker")?, 42).await?;
    is_true(&jobs, "Failed").await?;
    assert_eq!(group.status().await?.terminal_state, "Failed");
    progress("a TrainJob failed by the failure policy of its runtime");
    Ok(())
}

/// Applies a runtime of ours and a TrainJob of it in a new namespace.
async fn create(cluster: &Cluster, namespace: &str, shape: &str) -> Result<(Group, Api<DynamicObject>)> {
    install::create_namespace(&cluster.client(), namespace).await?;
    let mut workload = Workload::new(SUPERVISED, namespace, &cluster.shared_dir())?.injected(shape);
    workload.each_pod(|pod| pod["containers"][0]["name"] = json!(TRAINER_CONTAINER));
    let mut jobset = workload.0;
    // Trainer's types of a JobSet do not have it.
    jobset["spec"]["failurePolicy"].as_object_mut().map(|policy| policy.remove("restartBackoff"));
    let mut template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"].clone();
    for rule in template["podFailurePolicy"]["rules"].as_array_mut().into_iter().flatten() {
        rule["onExitCodes"]["containerName"] = json!(TRAINER_CONTAINER);
    }
    let runtime = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime",
        "metadata": {"namespace": namespace, "name": RUNTIME, "labels": {"trainer.kubeflow.org/framework": "plainml"}},
        "spec": {
            "mlPolicy": {"numNodes": NODES},
            "template": {
                "metadata": {"annotations": jobset["metadata"]["annotations"]},
                "spec": {
                    "failurePolicy": jobset["spec"]["failurePolicy"],
                    "replicatedJobs": [{"name": "node", "template": {
                        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                        "spec": template,
                    }}],
                },
            },
        },
    });
    let job = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"namespace": namespace, "name": "train"},
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": RUNTIME}},
    });
    manifests::apply(cluster, "runtime.yaml", &[runtime]).await?;
    // The webhook that reviews a TrainJob reads its runtime from a cache.
    wait::until(LIMIT, "the TrainJob to be admitted", || async {
        manifests::apply(cluster, "trainjob.yaml", std::slice::from_ref(&job)).await.map(Some)
    })
    .await?;
    let jobs = untyped(cluster.client(), namespace, "trainer.kubeflow.org", "v1alpha1", "TrainJob");
    Ok((Group::of(cluster, namespace, "train", NODES.try_into()?), jobs))
}

async fn suspend(jobs: &Api<DynamicObject>, suspend: bool) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
    jobs.patch("train", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the TrainJob has this condition.
async fn is_true(jobs: &Api<DynamicObject>, kind: &str) -> Result<()> {
    wait::until_met(LIMIT, format!("the TrainJob's condition {kind}"), || async {
        let job = jobs.get("train").await?;
        let is_met = condition(&job, kind) == "True";
        Ok(if is_met { Check::Met(()) } else { Check::Unmet(job.data["status"]["conditions"].to_string()) })
    })
    .await
}

/// Trainer copies what the JobSet's status counts.
async fn has_active_job(jobs: &Api<DynamicObject>) -> Result<()> {
    wait::until_met(LIMIT, "the TrainJob's jobsStatus", || async {
        let counts = jobs.get("train").await?.data["status"]["jobsStatus"].clone();
        let is_active = |it: &Value| it["name"] == "node" && it["active"] == 1 && it["ready"] == 1;
        Ok(if counts.as_array().into_iter().flatten().any(is_active) {
            Check::Met(())
        } else {
            Check::Unmet(counts.to_string())
        })
    })
    .await
}
