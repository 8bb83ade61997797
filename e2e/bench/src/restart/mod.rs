//! How long the restart of a group takes and what it costs, against the number of its Pods.
//!
//! Each case has a control plane of its own without kubelets (etcd, API server, controller manager), the shipped build of
//! the controller as a process of its own, one JobSet of N Pods as the Job controller creates them, and N simulated
//! agents in this process ([`agents`]). Their reports and epochs take one of three ways ([`link`]):
//!
//! - watches and patches over shared connections, by the agent's own code;
//! - the same in the words of the Go JobSet, whose real manager is the controller;
//! - the agent stream: two relays as processes of their own, and each agent with a token of its own Pod, TLS and a connection
//!   of its own.
//!
//! No figure contains what a kubelet and its containers take: a simulated Pod restarts in no time.

mod agents;
mod case;
mod files;
mod go_dialect;
mod group;
mod in_place;
mod jobset;
mod link;
mod over_stream;
mod pods;
mod programs;
mod recreate;
mod relays;
mod report;
mod requests;
mod roll;
mod stream_report;
mod tokens;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jobset_harness::cluster::ControlPlane;
use jobset_harness::install;
use jobset_harness::progress::progress;

use crate::BACKOFF_IS_OFF;
use crate::connections;
use crate::meter::{Meter, process_in};
use crate::report::Report;
use case::{Case, Strategy};
pub use case::{Options, WatchMode, Way};
use group::{Bench, StreamBench};
use programs::Programs;
use report::{CaseReport, GoSeconds};

/// Measures all cases, and writes and prints the results. A case that fails ends the benchmark; the results of earlier
/// cases are printed all the same.
pub async fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.results)
        .with_context(|| format!("cannot create {}", options.results.display()))?;
    let cases = options.cases();
    let of_stream = cases.iter().filter(|case| case.strategy.way() == Some(Way::Stream));
    files::raise_limit(of_stream.map(|case| case.agents).max().unwrap_or_default())?;
    let programs = Programs::of(options, &cases).await?;
    let mut reports = Vec::new();
    let outcome = measure_all(options, &cases, &programs, &mut reports).await;
    if !reports.is_empty() {
        println!("\n{}\n{BACKOFF_IS_OFF}", report::summary(&reports));
    }
    outcome
}

async fn measure_all(
    options: &Options,
    cases: &[Case],
    programs: &Programs,
    reports: &mut Vec<CaseReport>,
) -> Result<()> {
    for case in cases.iter().copied() {
        progress(&format!("== {case} =="));
        let start = Instant::now();
        let mut report = measure(options, programs, case).await.with_context(|| case.to_string())?;
        match case.strategy.way() {
            Some(Way::Stream) => report.figures.go = GoSeconds::among(reports, case.agents),
            Some(Way::Go) => report.build = "go build",
            _ => {}
        }
        let path = report.write(&options.results, &case.file())?;
        progress(&format!("written: {} ({:.0} s)", path.display(), start.elapsed().as_secs_f64()));
        reports.push(report);
    }
    Ok(())
}

/// Measures one case on a new control plane.
async fn measure(options: &Options, programs: &Programs, case: Case) -> Result<CaseReport> {
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
    let mut running = programs.start(case, &client, &plane).await?;
    let process = |program| process_in(plane.dir(), program);
    let mut processes = vec![
        ("controller", running.controller()),
        ("api_server", process("kube-apiserver")?),
        ("etcd", process("etcd")?),
        ("controller_manager", process("kube-controller-manager")?),
    ];
    let stream = running.stream().cloned().map(|setup| {
        processes.extend(setup.pids.map(|pid| ("relay", pid)));
        StreamBench { setup, folder: plane.dir() }
    });
    let (meter, restarts) = (Meter::new(&processes)?, options.restarts_of(case));
    let (controller, limit) = (running.controller(), limit(case.agents));
    let bench = Bench { options, case, config, client, meter, controller, restarts, stream, limit };
    let measured = running.while_running(async {
        match case.strategy {
            Strategy::InPlace { watch, way } => in_place::measure(&bench, watch, way).await,
            Strategy::Recreate => recreate::measure(&bench).await,
        }
    });
    // Each wait has its own limit; this one is for a single request that nobody answers.
    let whole = bench.limit * u32::try_from(4 * (1 + restarts)).unwrap_or(u32::MAX);
    let figures = tokio::time::timeout(whole, measured)
        .await
        .with_context(|| format!("a request had no answer within {:.0} s", whole.as_secs_f64()))??;
    drop((bench, running));
    plane.stop().await?;
    Ok(Report::new(figures, programs.controller_of(case)))
}

/// The longest wait for anything that concerns all of some Pods, on two cores that are busy with other things too.
fn limit(pods: usize) -> Duration {
    Duration::from_mins(2) + Duration::from_millis(100) * u32::try_from(pods).unwrap_or(u32::MAX)
}
