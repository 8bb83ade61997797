//! `make bench-agent`: what the agent takes, and how long restarts take with it, on real kubelets.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use jobset_bench::agent::{self, Options};
use jobset_harness::interrupt::unless_interrupted;
use jobset_harness::paths;

/// Measures the agent on real kubelets: memory, time to its first report, requests, and restarts of four workers on two nodes.
///
/// Workers fail with the agent as a sidecar, as a supervisor, both also with workers that stay alive on SIGTERM, and without
/// it. Prints a table of what was measured beside what is to be reached, and writes agent.json into the results folder.
#[derive(Parser)]
#[command(name = "bench-agent")]
struct Args {
    /// Restarts of each kind; also the number of agents whose first report is measured.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    restarts: u32,
    /// Folder of the result. Default: target/bench.
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

impl Args {
    fn options(self) -> Options {
        Options {
            restarts: self.restarts as usize,
            results: self.results.unwrap_or_else(|| paths::target().join("bench")),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Args::parse().options();
    match unless_interrupted(Box::pin(agent::run(&options))).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}
