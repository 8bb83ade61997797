//! What the agent takes on real kubelets, and how long restarts take with it.
//!
//! A cluster of its own, of two nodes with kubelet defaults, has the product installed. Four workers, two on each node,
//! run as one JobSet after the other ([`mode`]); one of them fails, again and again ([`failures`]). The journals of the
//! workers tell the duration, from the exit of the one to the last start. The costs come from the API server's audit log
//! ([`requests`]) and from the kernel; those of workers that tell of their steps are in [`progress`](mod@progress).

pub(crate) mod failures;
pub(crate) mod mode;
mod progress;
mod report;
mod requests;
mod trace;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use jobset_harness::cluster::Cluster;
use jobset_harness::install::{install, install_without_stream};
use jobset_harness::programs::{Architecture, Versions, shipped_binaries};
use jobset_harness::progress::progress;

use crate::BACKOFF_IS_OFF;
use crate::report::Report;
use crate::{at_least_one, results};
use mode::{CASES, CASES_OVER_STREAM, SIDECAR};
use report::AgentFigures;

const NODES: usize = 2;

/// Measures the agent on real kubelets: memory, requests, and restarts of four workers on two nodes.
///
/// Workers fail with the agent as a sidecar, as a supervisor, both also with workers that ignore SIGTERM, and without
/// agent. Others write their step a hundred times a second. Prints a table of figures beside their targets, and writes agent.json into the results folder.
#[derive(Clone, Debug, Parser)]
#[command(name = "bench-agent")]
pub struct AgentOptions {
    /// Restarts of each kind.
    #[arg(long, value_name = "N", default_value = "10", value_parser = at_least_one())]
    pub restarts: usize,
    /// Only restarts groups with sidecars, and shows where the time goes: agent-trace.json and agent-trace.log instead of
    /// agent.json.
    #[arg(long)]
    pub trace: bool,
    /// Switches the agent stream on, and only restarts groups with sidecars and groups with supervisors:
    /// agent-stream.json instead of agent.json.
    #[arg(long)]
    pub stream: bool,
    /// Feature gates of the kubelets, such as EventedPLEG=true, beside their defaults.
    #[arg(long, value_name = "GATE=BOOL,...")]
    pub feature_gates: Option<String>,
    /// Folder of the result.
    #[arg(long, value_name = "DIR", default_value_os_t = results())]
    pub results: PathBuf,
}

/// Measures, and writes and prints the result.
pub async fn run(options: &AgentOptions) -> Result<()> {
    std::fs::create_dir_all(&options.results)
        .with_context(|| format!("cannot create {}", options.results.display()))?;
    let binaries = shipped_binaries(Architecture::of_host()?).await?;
    let kubelets = kubelets(options)?;
    progress(&format!("kubelets: {kubelets}"));
    let mut cluster = Cluster::builder().audit_log();
    if let Some(gates) = &options.feature_gates {
        cluster = cluster.kubelet_arg(format!("--feature-gates={gates}"));
    }
    let cluster = cluster.cluster(NODES).await?;
    if options.stream {
        install(&cluster, &binaries).await?;
    } else {
        install_without_stream(&cluster, &binaries).await?;
    }

    if options.trace {
        progress("== trace of restarts ==");
        let summary = trace::measure(&cluster, SIDECAR, options.restarts, &options.results).await?;
        cluster.stop().await?;
        println!("\n{summary}kubelets: {kubelets}");
        return Ok(());
    }

    let binary = std::fs::metadata(&binaries.agent).context("the agent's binary is gone")?;
    let mut figures = AgentFigures { kubelets, binary_bytes: binary.len(), ..AgentFigures::default() };
    let (cases, file) = if options.stream {
        (&CASES_OVER_STREAM[..], "agent-stream.json")
    } else {
        progress("== a hundred steps a second ==");
        progress::measure(&cluster, &mut figures).await?;
        (&CASES[..], "agent.json")
    };
    for &case in cases {
        progress(&format!("== {} ==", case.name));
        failures::measure(&cluster, case, options.restarts, &mut figures).await.context(case.name)?;
    }
    cluster.stop().await?;
    let report = Report::new(figures, &binaries.agent);
    let path = report.write(&options.results, file)?;
    println!("\n{}\n{BACKOFF_IS_OFF}\nwritten: {}", report::summary(&report, cases), path.display());
    Ok(())
}

/// The release and the feature gates of the kubelets that are measured.
fn kubelets(options: &AgentOptions) -> Result<String> {
    let release = Versions::from_environment()?.kubelets.release();
    let gates = options.feature_gates.as_ref().map(|gates| format!(" with {gates}"));
    Ok(format!("{release}{}", gates.unwrap_or_default()))
}
