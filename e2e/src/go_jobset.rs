//! The Go JobSet in a test cluster: its own programs as images, installed by the manifests of its Go module.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};

use jobset_harness::cluster::Cluster;
use jobset_harness::images::{self, ImageSpec};
use jobset_harness::install::{self, LIMIT, NAMESPACE};
use jobset_harness::programs::{GoJobSetPrograms, ensure_go_jobset, sources};

use crate::manifests;

/// The release that `e2e/cluster/jobset/go.mod` names.
pub const VERSION: &str = "v0.12.0";

pub const MANAGER_IMAGE: &str = "localhost/go-jobset:test";

/// The image of the agent for in-place restarts; its program is `/in-place-restart-agent`.
pub const AGENT_IMAGE: &str = "localhost/go-jobset-agent:test";

/// The manager's Deployment, in [`NAMESPACE`].
pub const DEPLOYMENT: &str = "jobset-controller-manager";

/// The manager's configuration as its manifests have it.
pub const DEFAULT_CONFIGURATION: &str = "\
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection:
  leaderElect: true
internalCertManagement:
  enable: true
";

/// [`DEFAULT_CONFIGURATION`] with every feature that JobSets can use.
pub const EVERYTHING_CONFIGURATION: &str = "\
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection:
  leaderElect: true
internalCertManagement:
  enable: true
featureGates:
  InPlaceRestart: true
  RestartJob: true
  ElasticJobSet: true
";

/// Name of the ConfigMap with the manager's configuration, and the file in it.
const CONFIG_MAP: &str = "jobset-manager-config";
const CONFIG_FILE: &str = "controller_manager_config.yaml";

pub fn module() -> Result<PathBuf> {
    sources("sigs.k8s.io/jobset", VERSION)
}

/// Builds the programs if they are missing, and loads the images of manager and agent into every node.
pub async fn load_images(cluster: &Cluster) -> Result<()> {
    let programs = tokio::task::spawn_blocking(ensure_go_jobset).await??;
    for image in build_images(&programs)? {
        cluster.load_image(&image).await?;
    }
    Ok(())
}

fn build_images(programs: &GoJobSetPrograms) -> Result<[PathBuf; 2]> {
    let manager = manifests::manager_image(MANAGER_IMAGE, &programs.manager)?;
    let agent = ImageSpec { user: manifests::USER, ..ImageSpec::new(AGENT_IMAGE, &programs.agent) };
    Ok([manager, images::build(&agent)?])
}

/// What the module's `config/default` installs, its CustomResourceDefinition among it, with our image and this configuration.
pub async fn manifests(cluster: &Cluster, configuration: &str) -> Result<Vec<Value>> {
    let mut manifests = manifests::rendered(cluster, &module()?.join("config/default")).await?;
    manifests::set_image(&mut manifests, DEPLOYMENT, MANAGER_IMAGE)?;
    manifests::named(&mut manifests, "ConfigMap", CONFIG_MAP)?["data"] = json!({ CONFIG_FILE: configuration });
    Ok(manifests)
}

/// Loads the images, installs the Go JobSet with this configuration, and waits until it admits JobSets.
pub async fn install(cluster: &Cluster, configuration: &str) -> Result<()> {
    load_images(cluster).await?;
    apply(cluster, &manifests(cluster, configuration).await?).await?;
    serves(cluster).await
}

/// Applies manifests of the Go JobSet; what another installation owns changes hands.
pub async fn apply(cluster: &Cluster, manifests: &[Value]) -> Result<()> {
    manifests::apply(cluster, "go-jobset.yaml", manifests).await
}

/// Waits until the manager is available and its webhook answers.
pub async fn serves(cluster: &Cluster) -> Result<()> {
    install::rolled_out(cluster, NAMESPACE, DEPLOYMENT).await?;
    manifests::are_reviewed(cluster, "the Go JobSet", &probe(), LIMIT).await
}

fn probe() -> Value {
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": { "name": "probe", "namespace": "default" },
        "spec": { "replicatedJobs": [{ "name": "w", "template": { "spec": { "template": { "spec": {
            "containers": [{ "name": "c", "image": images::BUSYBOX }],
        }}}}}]},
    })
}

/// Ends the manager's Pods, and waits until they are gone. Its webhooks stay registered: nobody can create a JobSet.
pub async fn stop(cluster: &Cluster) -> Result<()> {
    let deployment = format!("deployment/{DEPLOYMENT}");
    install::kubectl(cluster, &["scale", &deployment, "-n", NAMESPACE, "--replicas=0"]).await?;
    let limit = format!("--timeout={}s", LIMIT.as_secs());
    let manager = "control-plane=controller-manager";
    install::kubectl(cluster, &["wait", "--for=delete", "pod", "-n", NAMESPACE, "-l", manager, &limit]).await.map(drop)
}
