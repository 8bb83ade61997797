//! Groups on the cluster that the tests share, and what is asserted of several of them.

use anyhow::{Context, Result, anyhow, bail};
use jobset_harness::cluster::{self, Cluster, Options};
use jobset_harness::group::{Group, Worker, Workers};
use jobset_harness::install::install;
use jobset_harness::programs::{RustBinaries, beside, rust_binaries};
use jobset_harness::workload::Workload;
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard, OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::seat::take_seat;

/// Held by those who create JobSets, and alone by the test that takes the admission service away.
static ADMISSION: RwLock<()> = RwLock::const_new(());

/// Applies a manifest in a new namespace of the shared cluster, after `change`.
pub(crate) async fn apply(namespace: &str, manifest: &str, change: impl FnOnce(Workload) -> Workload) -> Result<Group> {
    let cluster = installed().await?;
    let _admission = ADMISSION.read().await;
    Group::apply(cluster, namespace, manifest, change).await
}

/// As [`apply`], and waits until all workers run in the first epoch.
pub(crate) async fn start(
    namespace: &str,
    manifest: &str,
    change: impl FnOnce(Workload) -> Workload,
) -> Result<(Group, Workers)> {
    let group = apply(namespace, manifest, change).await?;
    let workers = group.runs_in_epoch(1).await?;
    Ok((group, workers))
}

/// As [`start`] of an unchanged manifest, and the first of the workers.
pub(crate) async fn start_unchanged(namespace: &str, manifest: &str) -> Result<(Group, Workers, Worker)> {
    let (group, workers) = start(namespace, manifest, |workload| workload).await?;
    let first = workers.values().next().context("no worker")?.clone();
    Ok((group, workers, first))
}

/// Keeps the test that takes the admission service away waiting. Whoever holds it creates JobSets by [`Group::apply`].
pub(crate) async fn with_admission() -> RwLockReadGuard<'static, ()> {
    ADMISSION.read().await
}

/// Keeps other tests from creating JobSets.
pub(crate) async fn without_admission() -> RwLockWriteGuard<'static, ()> {
    ADMISSION.write().await
}

/// Runs `kubectl-jobset`. Returns what it prints, and its exit code.
pub(crate) async fn run_kubectl_jobset(cluster: &Cluster, arguments: &[&str]) -> Result<(String, Option<i32>)> {
    let mut command = Command::new(beside("kubectl-jobset")?);
    let output = command.args(arguments).env("KUBECONFIG", cluster.kubeconfig()).output().await?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok((text, output.status.code()))
}

/// Whether a text names the exit code of a sidecar's worker, or says that nobody knows it: a busy kubelet erases it before it has
/// told of it.
pub(crate) fn names_exit_of_sidecar(text: &str, code: u8) -> bool {
    text.contains(&format!("worker exited with code {code}")) || text.contains("exit code unknown")
}

/// Asserts that this worker alone has another Pod, and that all others restarted in place, once.
pub(crate) fn assert_replaced(before: &Workers, replaced: &Worker, mut after: Workers) -> Result<()> {
    let mut rest = before.clone();
    let (slot, _) = before.iter().find(|(_, worker)| *worker == replaced).context("no such worker")?;
    rest.remove(slot);
    let replacement = after.remove(slot).context("the slot is empty")?;
    assert_ne!(replacement.uid, replaced.uid, "that Pod alone gets a new UID");
    assert_eq!(replacement.starts, 1);
    assert_in_place(&rest, &after);
    Ok(())
}

/// Asserts that every worker restarted in place, once.
pub(crate) fn assert_in_place(before: &Workers, after: &Workers) {
    let mut wanted = before.clone();
    for worker in wanted.values_mut() {
        worker.starts += 1;
    }
    assert_eq!(after, &wanted, "every Pod keeps UID, node and IP, and each worker starts exactly once more");
}

/// The static binaries, built once: what is installed is what every test of this process speaks of.
pub(crate) async fn binaries() -> Result<&'static RustBinaries> {
    static BINARIES: OnceCell<RustBinaries> = OnceCell::const_new();
    BINARIES.get_or_try_init(rust_binaries).await
}

/// A cluster of its own kind, with the product installed, for several tests. Whoever has it, has it alone.
pub(crate) struct LoneCluster {
    cluster: OnceCell<Result<Cluster, String>>,
    alone: Mutex<()>,
}

impl LoneCluster {
    pub(crate) const fn new() -> Self {
        Self { cluster: OnceCell::const_new(), alone: Mutex::const_new(()) }
    }

    /// The cluster of so many nodes with these options, started by the first test.
    pub(crate) async fn alone(
        &'static self,
        nodes: usize,
        options: Options,
    ) -> Result<(&'static Cluster, MutexGuard<'static, ()>)> {
        let alone = self.alone.lock().await;
        take_seat().await?;
        let start = || async {
            let start = async {
                let cluster = options.cluster(nodes).await?;
                install(&cluster, binaries().await?).await?;
                anyhow::Ok(cluster)
            };
            start.await.map_err(|error| format!("{error:#}"))
        };
        let cluster = self.cluster.get_or_init(start).await.as_ref().map_err(|error| anyhow!("no cluster: {error}"))?;
        Ok((cluster, alone))
    }
}

/// The shared cluster, with the product installed.
pub(crate) async fn installed() -> Result<&'static Cluster> {
    static INSTALLED: OnceCell<Result<(), String>> = OnceCell::const_new();
    take_seat().await?;
    let cluster = cluster::shared().await?;
    let install = || async {
        let binaries = binaries().await.map_err(|error| format!("{error:#}"))?;
        install(cluster, binaries).await.map_err(|error| format!("{error:#}"))
    };
    if let Err(error) = INSTALLED.get_or_init(install).await {
        bail!("the product is not installed: {error}");
    }
    Ok(cluster)
}
