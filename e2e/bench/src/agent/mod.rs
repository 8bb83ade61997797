//! The benchmark of the agent on real kubelets: what it takes, and how long restarts take with it.
//!
//! A cluster of its own, of two nodes with kubelet defaults, on which the product is installed. Four workers, two on each
//! node, run as one JobSet after the other ([`mode`]); one of them fails, again and again ([`series`]). How long it took is
//! what the workers themselves wrote down, from the exit of the one to the last start; what it cost is read from the API
//! server's audit log ([`requests`]) and from the kernel ([`footprint`]).

mod first_patch;
mod footprint;
mod mode;
mod phases;
mod report;
mod requests;
mod series;

use std::path::PathBuf;

use anyhow::{Context, Result};

use footprint::Footprint;
use mode::{Case, Mode};
use report::{InARow, Report};
use series::Measured;

use super::report::rounded;
use jobset_harness::cluster::Cluster;
use jobset_harness::install::install;
use jobset_harness::median::median;
use jobset_harness::programs::{Architecture, shipped_binaries};
use jobset_harness::progress::progress;

/// Nodes of the cluster.
const NODES: usize = 2;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Restarts of each JobSet, and agents whose first report is measured.
    pub restarts: usize,
    /// Folder of the result.
    pub results: PathBuf,
}

/// Measures, and writes and prints the result.
///
/// # Errors
/// If something does not come up, or a group does not come back in time.
pub async fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.results)
        .with_context(|| format!("cannot create {}", options.results.display()))?;
    let binaries = shipped_binaries(Architecture::of_host()?).await?;
    let cluster = Cluster::builder().audit_log().cluster(NODES).await?;
    install(&cluster, &binaries).await?;

    progress("== first report ==");
    let first_patches = first_patch::measure(&cluster, &binaries.agent, options.restarts).await?;
    let first_patches_ms: Vec<f64> = first_patches.into_iter().map(|took| rounded(took, 10.0)).collect();
    progress(&format!("milliseconds from an agent's start: {first_patches_ms:?}"));

    let mut bench = Bench { cluster: &cluster, restarts: options.restarts, footprint: Footprint::default() };
    let sidecar = bench.measure("sidecar", Mode::Sidecar, false).await?;
    let sidecar_ignoring_sigterm = bench.measure("sidecar-ignoring-sigterm", Mode::Sidecar, true).await?;
    let supervisor = bench.measure("supervisor", Mode::Supervisor, false).await?;
    let supervisor_ignoring_sigterm = bench.measure("supervisor-ignoring-sigterm", Mode::Supervisor, true).await?;
    let recreate = bench.measure("recreate", Mode::Recreate, false).await?;
    let footprint = bench.footprint;
    cluster.stop().await?;

    let report = Report {
        footprint,
        binary_bytes: std::fs::metadata(&binaries.agent).context("the agent's binary is gone")?.len(),
        first_patch_ms: rounded(median(first_patches_ms.iter().copied()), 10.0),
        first_patches_ms,
        sidecar: sidecar.restarts,
        sidecar_ignoring_sigterm: sidecar_ignoring_sigterm.restarts,
        supervisor: supervisor.restarts,
        supervisor_ignoring_sigterm: supervisor_ignoring_sigterm.restarts,
        recreate: recreate.restarts,
        in_a_row: InARow {
            sidecar: sidecar.in_a_row.context("no failures in a row")?,
            supervisor: supervisor.in_a_row.context("no failures in a row")?,
        },
        cpus: std::thread::available_parallelism().map_or(1, Into::into),
    };
    let path = report.write(&options.results)?;
    println!("\n{}\nwritten: {}", report.table(), path.display());
    Ok(())
}

/// The cluster, and what was seen of agents on it so far.
struct Bench<'a> {
    cluster: &'a Cluster,
    restarts: usize,
    footprint: Footprint,
}

impl Bench<'_> {
    /// Measures restarts of one kind.
    async fn measure(&mut self, name: &'static str, mode: Mode, ignores_sigterm: bool) -> Result<Measured> {
        progress(&format!("== {name} =="));
        let case = Case { name, mode, ignores_sigterm };
        let measured = series::measure(self.cluster, case, self.restarts).await.context(name)?;
        progress(&format!("{name}: {}", measured.restarts.summary()));
        self.footprint = self.footprint.max(measured.footprint);
        Ok(measured)
    }
}
