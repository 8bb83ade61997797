//! `make bench`: what the restart of a group takes and costs, against the number of its Pods.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use jobset_bench::{Load, WatchMode};
use jobset_harness::interrupt::unless_interrupted;
use jobset_harness::paths;
use tracing_subscriber::EnvFilter;

/// Measures restarts of a JobSet of N Pods on a real control plane without kubelets, with simulated agents.
///
/// Prints a table, and writes restart-N.json for each number of agents and restart.svg into the results folder. Other
/// cases than the bare load with new watches carry it in their file's name: restart-N-full.json, restart-N-recreate.json.
#[derive(Parser)]
#[command(name = "bench")]
struct Args {
    /// Numbers of agents: one JobSet of as many Pods for each.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "100,1000,5000", value_parser = at_least_one)]
    agents: Vec<usize>,
    /// Restarts of each JobSet; the first is reported with the others.
    #[arg(long, value_name = "K", default_value = "5", value_parser = at_least_one)]
    restarts: usize,
    /// What happens to Pods in a restart: their agents' reports alone, or also what kubelets write of them.
    #[arg(long, value_enum, default_value_t = LoadChoice::Both)]
    load: LoadChoice,
    /// What an agent does with its watch in a restart: open a new one as a sidecar does, or keep it as a supervisor does.
    #[arg(long, value_enum, default_value_t = WatchChoice::New)]
    watch: WatchChoice,
    /// Measure restarts by recreation of all Pods, too.
    #[arg(long)]
    recreate: bool,
    /// The program jobset-controller to measure. Default: build it with the release profile.
    #[arg(long, value_name = "PATH")]
    controller: Option<PathBuf>,
    /// Pods that belong to no JobSet, for the controller's memory; where the load is bare and watches are new.
    #[arg(long, value_name = "N", default_value_t = 0)]
    foreign_pods: usize,
    /// Changes to Pods from which the controller's CPU for one change is found; 0 leaves it out.
    #[arg(long, value_name = "M", default_value_t = 10_000)]
    pod_events: usize,
    /// Agents that share one HTTP/2 connection to the API server.
    #[arg(long, value_name = "N", default_value = "50", value_parser = at_least_one)]
    agents_per_connection: usize,
    /// Requests of agents that are under way at once. Default: the share of workloads (100 of 245) in the 600 requests
    /// that an API server carries out at once by default.
    #[arg(long, value_name = "N", default_value = "245", value_parser = at_least_one)]
    agent_seats: usize,
    /// Folder of the results. Default: target/bench.
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LoadChoice {
    Bare,
    Full,
    Both,
}

#[derive(Clone, Copy, ValueEnum)]
enum WatchChoice {
    New,
    Kept,
    Both,
}

impl Args {
    fn options(self) -> jobset_bench::Options {
        let loads = match self.load {
            LoadChoice::Bare => vec![Load::Bare],
            LoadChoice::Full => vec![Load::Full],
            LoadChoice::Both => vec![Load::Bare, Load::Full],
        };
        let watches = match self.watch {
            WatchChoice::New => vec![WatchMode::New],
            WatchChoice::Kept => vec![WatchMode::Kept],
            WatchChoice::Both => vec![WatchMode::New, WatchMode::Kept],
        };
        jobset_bench::Options {
            agents: self.agents,
            restarts: self.restarts,
            loads,
            watches,
            recreate: self.recreate,
            controller: self.controller,
            foreign_pods: self.foreign_pods,
            pod_events: self.pod_events,
            agents_per_connection: self.agents_per_connection,
            agent_seats: self.agent_seats,
            results: self.results.unwrap_or_else(|| paths::target().join("bench")),
        }
    }
}

fn at_least_one(value: &str) -> Result<usize, String> {
    match value.trim().parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("a number of at least 1 is wanted".to_owned()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Args::parse().options();
    let measured = async {
        log(&options.results)?;
        jobset_bench::run(&options).await
    };
    match unless_interrupted(Box::pin(measured)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What the agents were refused goes to a file: thousands of them may be refused in the same second.
fn log(results: &Path) -> Result<()> {
    std::fs::create_dir_all(results).with_context(|| format!("cannot create {}", results.display()))?;
    let path = results.join("agents.log");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let filter = EnvFilter::new("jobset_agent=warn,jobset_bench=warn");
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(file).init();
    Ok(())
}
