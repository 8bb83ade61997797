//! Plain workers with an agent that admission has injected: nothing is written by hand, no permissions either.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use jobset_api::JobSet;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{LIMIT, restarts};
use jobset_harness::install::{WORKER_IMAGE, kubectl};
use jobset_harness::order;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{WORKER_PORT, is_ready};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::shared::installed;

const MANIFEST: &str = include_str!("../../manifests/injected.yaml");
const NAMESPACE: &str = "injected";
const WORKERS: usize = 3;

/// A namespace whose Pods have to keep the Pod Security Standard `restricted`, and in which nobody has a role.
async fn restricted_namespace(cluster: &Cluster) -> Result<()> {
    kubectl(cluster, &["create", "namespace", NAMESPACE]).await?;
    kubectl(cluster, &["label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted"]).await?;
    let limit = format!("--timeout={}s", LIMIT.as_secs());
    kubectl(cluster, &["wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, &limit]).await?;
    Ok(())
}

/// Applies the manifest as a user does.
async fn apply(cluster: &Cluster) -> Result<()> {
    let file = cluster.dir().join("injected.yaml");
    std::fs::write(&file, MANIFEST.replace("WORKER_IMAGE", WORKER_IMAGE))?;
    kubectl(cluster, &["apply", "-n", NAMESPACE, "-f", &file.to_string_lossy()]).await?;
    Ok(())
}

/// The Pods by UID, once all workers have started in this epoch, answer, and know the epoch.
async fn in_epoch(jobsets: &Api<JobSet>, pods: &Api<Pod>, epoch: i32) -> Result<BTreeMap<String, Pod>> {
    wait::until_met(LIMIT, format!("{WORKERS} injected workers in epoch {epoch}"), || async {
        let synced = jobsets.get("injected").await?.status.unwrap_or_default().synced_epoch;
        let pods = pods.list(&ListParams::default()).await?.items;
        let mut epochs = Vec::new();
        for pod in pods.iter().filter(|pod| is_ready(pod) && restarts(pod) == epoch - 1) {
            let Ok(answer) = order::get(pod, WORKER_PORT, "/").await else { continue };
            epochs.push(serde_json::from_str::<Value>(&answer)?["epoch"].as_i64());
        }
        if synced != epoch || pods.len() != WORKERS || epochs.len() != WORKERS {
            return Ok(Check::Unmet(format!("syncedEpoch {synced}, {} Pods, workers in {epochs:?}", pods.len())));
        }
        ensure!(epochs.iter().all(|known| *known == Some(epoch.into())), "workers in {epochs:?}, not in {epoch}");
        Ok(Check::Met(pods.into_iter().map(|pod| (pod.uid().unwrap_or_default(), pod)).collect()))
    })
    .await
}

#[tokio::test]
async fn injected_worker_fails_group_restarts_in_place() -> Result<()> {
    let cluster = installed().await?;
    restricted_namespace(cluster).await?;
    apply(cluster).await?;
    let jobsets: Api<JobSet> = Api::namespaced(cluster.client(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let before = in_epoch(&jobsets, &pods, 1).await?;
    for pod in before.values() {
        let worker = &pod.spec.as_ref().context("no specification")?.containers[0];
        let has_token = worker.volume_mounts.iter().flatten().next().is_some();
        assert_eq!(has_token, !pod.name_any().contains("driver"), "the agent's token is its own");
    }

    // Those are the only ones that the role lets in: the same ServiceAccount without a Pod's token is refused.
    let pod = before.values().next().context("no Pod")?.name_any();
    let mut config = cluster.client_config();
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{NAMESPACE}:default"));
    let as_account: Api<Pod> = Api::namespaced(Client::try_from(config)?, NAMESPACE);
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let labelled = as_account.patch(&pod, &PatchParams::default(), &label).await;
    let said = labelled.err().context("it may label")?.to_string();
    assert!(said.contains("ValidatingAdmissionPolicy 'jobset-agent'") && said.contains("bound to no Pod"), "{said}");

    let failing = before.values().find(|pod| pod.name_any().contains("workers")).context("no worker")?;
    order::exit(failing, WORKER_PORT, 1).await?;
    let after = in_epoch(&jobsets, &pods, 2).await?;
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "every Pod stays");
    let status = jobsets.get("injected").await?.status.unwrap_or_default();
    assert_eq!((status.restarts_count_towards_max, status.group_restarts, status.restarts), (1, 1, 0));

    // The manifest once more changes nothing while it runs.
    let stored = jobsets.get("injected").await?;
    apply(cluster).await?;
    let again = jobsets.get("injected").await?;
    assert_eq!((again.metadata.generation, again.spec), (stored.metadata.generation, stored.spec));
    Ok(())
}
