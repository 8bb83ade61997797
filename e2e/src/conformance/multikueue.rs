//! Kueue's suite for many clusters: one in which JobSets are queued, and two in which they run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::installed::install;
use super::report::Case;
use super::{Project, Subject, Suite, build, run};
use crate::clients::{kueue, trainer};
use jobset_harness::cluster::Cluster;
use jobset_harness::install::kubectl;

/// The names that the suite has for the clusters: the one that manages is the first.
const CLUSTERS: [&str; 3] = ["kind-manager", "kind-worker1", "kind-worker2"];

/// Kueue's own integrations that the suite's cases use. A remote cluster must have the resources of each.
const FRAMEWORKS: [&str; 4] = ["batch/job", "pod", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"];

/// Runs the suite against the product, installed on three new clusters.
pub(super) async fn judge(subject: Subject, focus: &[&str]) -> Result<Vec<Case>> {
    let suites = build::originals(Project::Kueue).await?;
    let mut clusters = Vec::new();
    for name in CLUSTERS {
        clusters.push(Cluster::builder().server_name(host(name)).cluster(1).await?);
    }
    let [manager, workers @ ..] = clusters.as_slice() else { anyhow::bail!("a cluster is missing") };
    for worker in workers {
        manager.join(worker).await?;
    }
    for cluster in &clusters {
        install(subject, cluster).await?;
        trainer::install(cluster).await?;
        kueue::install(cluster, &kueue::configuration_with(&FRAMEWORKS)?).await?;
    }
    know_workers(manager, workers).await?;
    let kubeconfig = kubeconfig(&clusters)?;
    let env = [("KUBECONFIG", kubeconfig.as_path()), ("E2E_TEST_AGNHOST_IMAGE", Path::new(kueue::AGNHOST))];
    let cases = run::original(&suites, Suite::MultiKueue, focus, &env).await?;
    for cluster in clusters {
        cluster.stop().await?;
    }
    Ok(cases)
}

/// The host by which the suite has one cluster's Kueue ask another's API server.
fn host(cluster: &str) -> String {
    format!("{cluster}-control-plane")
}

/// Has the manager's Kueue find the workers' API servers by their names.
async fn know_workers(manager: &Cluster, workers: &[Cluster]) -> Result<()> {
    let aliases = workers
        .iter()
        .zip(CLUSTERS.iter().skip(1))
        .map(|(worker, name)| json!({"ip": worker.ready().address, "hostnames": [host(name)]}));
    let patch = json!({"spec": {"template": {"spec": {"hostAliases": aliases.collect::<Vec<_>>()}}}});
    let deployment = ["patch", "deployment", kueue::DEPLOYMENT, "-n", kueue::NAMESPACE, "-p", &patch.to_string()];
    kubectl(manager, &deployment).await?;
    kueue::serves(manager).await
}

/// A kubeconfig with a context for each cluster, in the manager's folder.
fn kubeconfig(clusters: &[Cluster]) -> Result<PathBuf> {
    let mut all = json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []});
    for (cluster, name) in clusters.iter().zip(CLUSTERS) {
        let own: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(cluster.kubeconfig())?)?;
        let context = format!("kind-{name}");
        for (list, kind) in [("clusters", "cluster"), ("users", "user")] {
            let entry = json!({"name": context, kind: own[list][0][kind]});
            all[list].as_array_mut().context("no list")?.push(entry);
        }
        let entry = json!({"name": context, "context": {"cluster": context, "user": context}});
        all["contexts"].as_array_mut().context("no list")?.push(entry);
    }
    let manager = clusters.first().context("there is no cluster")?;
    let file = manager.dir().join("clusters.kubeconfig");
    std::fs::write(&file, all.to_string())?;
    Ok(file)
}
