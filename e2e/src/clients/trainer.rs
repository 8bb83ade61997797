//! Kubeflow Trainer: the manager of its Go module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use jobset_harness::cluster::Cluster;
use jobset_harness::programs::{ensure_trainer, run, sources};
use jobset_harness::progress::progress;
use jobset_harness::{install, paths, wait};

use crate::manifests;

/// The release that `e2e/cluster/trainer/go.mod` names.
pub const VERSION: &str = "v2.3.0";

pub const NAMESPACE: &str = "kubeflow-system";
pub const DEPLOYMENT: &str = "kubeflow-trainer-controller-manager";

const MANAGER: &str = "localhost/trainer:test";
/// What its manifests install besides the manager: the Go JobSet, from its repository.
const THIRD_PARTY: &str = "  - ../../third-party/jobset";
/// How long the manager may take.
const LIMIT: Duration = Duration::from_mins(4);

/// The folder of the module.
pub fn module() -> Result<PathBuf> {
    sources("github.com/kubeflow/trainer/v2", VERSION)
}

/// Loads the manager's image, installs it by its own manifests without the Go JobSet, waits until its webhooks answer, and adds
/// the runtimes that it comes with.
pub async fn install(cluster: &Cluster) -> Result<()> {
    let manager = tokio::task::spawn_blocking(ensure_trainer).await??;
    cluster.load_image(&manifests::manager_image(MANAGER, &manager)?).await?;
    progress("installing Trainer");
    let folder = copy(&cluster.dir().join("trainer"))?;
    let mut manager = manifests::rendered(cluster, &folder.join("overlays/manager")).await?;
    manifests::set_image(&mut manager, DEPLOYMENT, MANAGER)?;
    manifests::apply(cluster, "trainer.yaml", &manager).await?;
    install::rolled_out(cluster, NAMESPACE, DEPLOYMENT).await?;
    let runtimes = manifests::rendered(cluster, &folder.join("overlays/runtimes")).await?;
    // A ready Pod is not yet in the endpoints that every kube-proxy knows.
    wait::until(LIMIT, "Trainer's webhook to answer", || async {
        manifests::apply(cluster, "trainer-runtimes.yaml", &runtimes).await.map(Some)
    })
    .await?;
    progress("Trainer serves");
    Ok(())
}

/// A copy of the manifests from which the Go JobSet is taken out.
fn copy(folder: &Path) -> Result<PathBuf> {
    paths::remove(folder)?;
    let all = ["--recursive", "--no-target-directory", "--no-preserve=mode"];
    run(Command::new("cp").args(all).arg(module()?.join("manifests")).arg(folder))?;
    let file = folder.join("overlays/manager/kustomization.yaml");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with(THIRD_PARTY)).collect();
    ensure!(kept.len() + 1 == text.lines().count(), "{} does not install the Go JobSet in one line", file.display());
    fs::write(&file, kept.join("\n") + "\n")?;
    Ok(folder.to_path_buf())
}
