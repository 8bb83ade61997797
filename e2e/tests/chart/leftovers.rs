//! What an installation has left behind.

use std::time::Duration;

use anyhow::Result;
use jobset_harness::cluster::Cluster;
use jobset_harness::install::kubectl;
use jobset_harness::wait;

/// How long deleted Pods may take to end.
const LIMIT: Duration = Duration::from_mins(4);

/// Kinds that are there in every namespace, or that tell of what was.
const OF_KUBERNETES: [&str; 4] =
    ["configmap/kube-root-ca.crt", "serviceaccount/default", "event", "endpointslice.discovery.k8s.io/kubernetes"];

/// Objects of the namespace, and objects of no namespace that are named after JobSet, as `kind/name`; empty as soon as there
/// are none but the CRD and what Kubernetes makes of it.
pub(super) async fn leftovers(cluster: &Cluster, namespace: &str) -> Result<Vec<String>> {
    let gone = wait::until(LIMIT, "everything to be gone", || async {
        Ok(found(cluster, namespace).await?.is_empty().then_some(()))
    });
    if gone.await.is_ok() { Ok(Vec::new()) } else { found(cluster, namespace).await }
}

async fn found(cluster: &Cluster, namespace: &str) -> Result<Vec<String>> {
    let mut found = names(cluster, true, &["-n", namespace]).await?;
    found.retain(|name| !OF_KUBERNETES.iter().any(|own| name.starts_with(own)));
    let all = names(cluster, false, &[]).await?;
    let own = |name: &String| name.contains("jobset") && !name.starts_with("namespace/");
    let of_crd = |name: &String| name.contains("jobset.x-k8s.io");
    found.extend(all.into_iter().filter(own).filter(|name| !of_crd(name)));
    Ok(found)
}

/// All objects of all kinds that are namespaced, or are not.
async fn names(cluster: &Cluster, namespaced: bool, args: &[&str]) -> Result<Vec<String>> {
    let namespaced = format!("--namespaced={namespaced}");
    let kinds = kubectl(cluster, &["api-resources", "--verbs=list", &namespaced, "-o", "name"]).await?;
    let kinds = String::from_utf8_lossy(&kinds.stdout).trim().replace('\n', ",");
    let objects = kubectl(cluster, &[&["get", &kinds, "-o", "name", "--ignore-not-found"][..], args].concat()).await?;
    Ok(String::from_utf8_lossy(&objects.stdout).lines().map(str::to_owned).collect())
}
