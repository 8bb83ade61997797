//! Kueue: the manager of its Go module, and the program that the Pods of its suites run.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use jobset_harness::cluster::Cluster;
use jobset_harness::images;
use jobset_harness::install;
use jobset_harness::programs::{ensure_kueue, sources};
use jobset_harness::progress::progress;

use crate::manifests;

/// The release that `e2e/cluster/kueue/go.mod` names.
pub const VERSION: &str = "v0.19.2";

/// The image that Pods of its suites run: `agnhost`, the test program of Kubernetes.
pub const AGNHOST: &str = "localhost/agnhost:test";

/// The manager's namespace and Deployment.
pub const NAMESPACE: &str = "kueue-system";
pub const DEPLOYMENT: &str = "kueue-controller-manager";

const MANAGER: &str = "localhost/kueue:test";
/// The ConfigMap with the manager's configuration, and the file in it.
const CONFIGURATION: (&str, &str) = ("kueue-manager-config", "controller_manager_config.yaml");
/// How long the manager may take: it writes its certificate first, and its caches read all that there is.
const LIMIT: Duration = Duration::from_mins(4);

/// The folder of the module.
pub fn module() -> Result<PathBuf> {
    sources("sigs.k8s.io/kueue", VERSION)
}

/// The manager's configuration in the clusters of its own suites, with further settings as YAML at its end.
pub fn configuration(more: &str) -> Result<String> {
    let file = module()?.join("test/e2e/config/extended/controller_manager_config.yaml");
    let own = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(format!("{own}{more}"))
}

/// The configuration of a manager that has JobSets, and what they are made of, run in other clusters: that of its own suites, with
/// these integrations alone. Another cluster must have the resources of each.
pub fn configuration_with(integrations: &[&str]) -> Result<String> {
    let mut configuration: Value = serde_yaml_ng::from_str(&self::configuration("")?)?;
    configuration["integrations"]["frameworks"] = json!(integrations);
    Ok(serde_yaml_ng::to_string(&configuration)?)
}

/// Loads the images of the manager and of `agnhost`, installs Kueue as its own suites have it, and waits until its webhooks
/// answer.
pub async fn install(cluster: &Cluster, configuration: &str) -> Result<()> {
    let programs = tokio::task::spawn_blocking(ensure_kueue).await??;
    for image in [
        manifests::manager_image(MANAGER, &programs.manager)?,
        images::with_shell_and_curl(AGNHOST, &programs.agnhost)?,
    ] {
        cluster.load_image(&image).await?;
    }
    progress("installing Kueue");
    let mut manifests = manifests::rendered(cluster, &module()?.join("test/e2e/config/extended")).await?;
    manifests::set_image(&mut manifests, DEPLOYMENT, MANAGER)?;
    let (name, file) = CONFIGURATION;
    manifests::named(&mut manifests, "ConfigMap", name)?["data"] = json!({ file: configuration });
    manifests::apply(cluster, "kueue.yaml", &manifests).await?;
    serves(cluster).await
}

/// Waits until the manager is available and its webhooks answer.
pub async fn serves(cluster: &Cluster) -> Result<()> {
    install::rolled_out(cluster, NAMESPACE, DEPLOYMENT).await?;
    manifests::are_reviewed(cluster, "Kueue", &probe(), LIMIT).await
}

/// A ResourceFlavor that is only reviewed.
fn probe() -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "probe"}})
}
