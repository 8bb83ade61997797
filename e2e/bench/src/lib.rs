//! The benchmark: how long the restart of a group takes, and what it costs, against the number of its Pods.
//!
//! Each case has a control plane of its own without kubelets (etcd, API server, controller manager), the release build
//! of the controller as a process of its own, one JobSet of N Pods as the Job controller creates them, and N simulated
//! agents in this process: the agent's own state machine, watch and report ([`agents`]) over shared connections
//! ([`connections`]). What a kubelet and its containers take is **not** in any figure: a simulated Pod restarts in no time.
//!
//! The load generator shares the machine's CPUs with everything else; the shares that are printed at the end say what
//! bounds the time. The result is a JSON file for each case (`report.rs` says what each figure is, `phases.rs` what each
//! phase), a table, and a picture of all results in the folder.

pub mod agent;
mod agents;
mod case;
mod connections;
mod cost;
mod group;
mod history;
mod in_place;
mod jobset;
mod kubelet;
mod meter;
mod phases;
pub mod picture;
mod plot;
mod pod_status;
mod pods;
mod procfs;
mod program;
mod recreate;
mod report;
mod requests;
mod roll;
mod table;
mod targets;
pub mod webhook;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use case::Case;
pub use case::{Load, Options, Strategy, WatchMode};
use group::Bench;
use meter::Meter;
use program::Program;
use report::Report;

use jobset_harness::cluster::ControlPlane;
use jobset_harness::progress::progress;
use jobset_harness::{install, programs};

/// Measures all cases, and writes and prints the results. A case that fails ends the benchmark; what was measured until
/// then is written and printed all the same.
///
/// # Errors
/// If something does not come up, or does not happen in time; the text says how many agents were where.
pub async fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.results)
        .with_context(|| format!("cannot create {}", options.results.display()))?;
    let program = match &options.controller {
        Some(program) => program.clone(),
        None => programs::shipped_controller().await?,
    };
    let mut reports = Vec::new();
    let outcome = all(options, &program, &mut reports).await;
    if !reports.is_empty() {
        println!("\n{}", table::summary(&reports));
        plot::draw(&options.results)?;
        println!("written: {} and restart.svg beside it", files(&options.results, &reports));
    }
    outcome
}

async fn all(options: &Options, program: &Path, reports: &mut Vec<Report>) -> Result<()> {
    for case in options.cases() {
        let name = table::name(case.strategy);
        progress(&format!("== {} Pods, {name} ==", case.agents));
        let start = Instant::now();
        let mut report =
            measure(options, program, case).await.with_context(|| format!("{} Pods, {name}", case.agents))?;
        report.compare(reports);
        report.write(&options.results)?;
        progress(&format!("{} is written ({:.0} s)", case.file(), start.elapsed().as_secs_f64()));
        reports.push(report);
    }
    Ok(())
}

/// One case, from an empty control plane to its end.
async fn measure(options: &Options, program: &Path, case: Case) -> Result<Report> {
    let plane = ControlPlane::builder()
        // What bounds the Job controller is to be the CPU, and not its own limits.
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
    let listen = ["--health-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
    let mut controller = Program::start("jobset-controller", program, listen, &[], plane.kubeconfig(), &plane)?;
    let meter = Meter::new(&plane, client.clone(), controller.pid())?;
    let bench = Bench { options, case, config, client, meter, limit: limit(case.agents) };
    let measured = controller.while_running(async {
        match case.strategy {
            Strategy::InPlace { load, watch } => in_place::measure(&bench, load, watch).await,
            Strategy::Recreate => recreate::measure(&bench).await,
        }
    });
    // Each wait has its own limit; this one is for a single request that is never answered.
    let whole = bench.limit * u32::try_from(4 * (1 + options.restarts)).unwrap_or(u32::MAX);
    let report = tokio::time::timeout(whole, measured)
        .await
        .with_context(|| format!("nothing is answered any more, {:.0} s after the start", whole.as_secs_f64()))??;
    drop(controller);
    plane.stop().await?;
    Ok(report)
}

/// The longest wait for anything that concerns so many Pods: generous, for two cores that are busy with other things too.
fn limit(pods: usize) -> Duration {
    Duration::from_mins(2) + Duration::from_millis(100) * u32::try_from(pods).unwrap_or(u32::MAX)
}

fn files(folder: &Path, reports: &[Report]) -> String {
    let paths: Vec<PathBuf> = reports.iter().map(|report| folder.join(report.case.file())).collect();
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
