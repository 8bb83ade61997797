//! How long the restart of a group takes and what it costs, against the number of its Pods.
//!
//! Each case has a control plane of its own without kubelets (etcd, API server, controller manager), the shipped build of
//! the controller as a process of its own, one JobSet of N Pods as the Job controller creates them, and N simulated
//! agents in this process: the agent's own state machine, watch and report ([`agents`]) over shared connections. No
//! figure contains what a kubelet and its containers take: a simulated Pod restarts in no time.

mod agents;
mod case;
mod group;
mod in_place;
mod jobset;
mod kubelet;
mod pod_status;
mod pods;
mod recreate;
mod report;
mod requests;
mod roll;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jobset_harness::cluster::ControlPlane;
use jobset_harness::progress::progress;
use jobset_harness::{install, programs};

use crate::BACKOFF_IS_OFF;
use crate::connections;
use crate::meter::{Meter, process_in};
use crate::program::Program;
use crate::report::Report;
use case::{Case, Strategy};
pub use case::{Load, Options, WatchMode};
use group::Bench;
use report::CaseReport;

/// Measures all cases, and writes and prints the results. A case that fails ends the benchmark; the results of earlier
/// cases are printed all the same.
///
/// # Errors
/// If something does not come up, or does not happen in time; the text says how many agents are in which state.
pub async fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.results)
        .with_context(|| format!("cannot create {}", options.results.display()))?;
    let program = match &options.controller {
        Some(program) => program.clone(),
        None => programs::shipped_controller().await?,
    };
    let mut reports = Vec::new();
    let outcome = measure_all(options, &program, &mut reports).await;
    if !reports.is_empty() {
        println!("\n{}\n{BACKOFF_IS_OFF}", report::summary(&reports));
    }
    outcome
}

async fn measure_all(options: &Options, program: &Path, reports: &mut Vec<CaseReport>) -> Result<()> {
    for case in options.cases() {
        progress(&format!("== {case} =="));
        let start = Instant::now();
        let report = measure(options, program, case).await.with_context(|| case.to_string())?;
        let path = report.write(&options.results, &case.file())?;
        progress(&format!("written: {} ({:.0} s)", path.display(), start.elapsed().as_secs_f64()));
        reports.push(report);
    }
    Ok(())
}

/// Measures one case on a new control plane.
async fn measure(options: &Options, program: &Path, case: Case) -> Result<CaseReport> {
    let plane = ControlPlane::builder()
        // The Job controller must be limited by the CPU, not by its own settings.
        .controller_manager_arg("--kube-api-qps=5000")
        .controller_manager_arg("--kube-api-burst=10000")
        .controller_manager_arg("--concurrent-job-syncs=50")
        .control_plane()
        .await?;
    install::crd(&plane).await?;
    let config = plane.client_config();
    let client = connections::client(&config)?;
    if case.foreign_pods > 0 {
        pods::create_foreign(&client, case.foreign_pods, limit(case.foreign_pods)).await?;
    }
    let listen = ["--health-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--metrics-secure=false"];
    let mut controller = Program::start("jobset-controller", program, listen, &[], plane.kubeconfig(), &plane)?;
    let process = |program| process_in(plane.dir(), program);
    let meter = Meter::new(&[
        ("controller", controller.pid()),
        ("api_server", process("kube-apiserver")?),
        ("etcd", process("etcd")?),
        ("controller_manager", process("kube-controller-manager")?),
    ])?;
    let bench = Bench { options, case, config, client, meter, controller: controller.pid(), limit: limit(case.agents) };
    let measured = controller.while_running(async {
        match case.strategy {
            Strategy::InPlace { load, watch } => in_place::measure(&bench, load, watch).await,
            Strategy::Recreate => recreate::measure(&bench).await,
        }
    });
    // Each wait has its own limit; this one is for a single request that nobody answers.
    let whole = bench.limit * u32::try_from(4 * (1 + options.restarts)).unwrap_or(u32::MAX);
    let figures = tokio::time::timeout(whole, measured)
        .await
        .with_context(|| format!("a request had no answer within {:.0} s", whole.as_secs_f64()))??;
    drop(controller);
    plane.stop().await?;
    Ok(Report::new(figures, program))
}

/// The longest wait for anything that concerns all of some Pods, on two cores that are busy with other things too.
fn limit(pods: usize) -> Duration {
    Duration::from_mins(2) + Duration::from_millis(100) * u32::try_from(pods).unwrap_or(u32::MAX)
}
