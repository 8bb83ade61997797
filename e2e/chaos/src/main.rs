//! `make chaos`: random faults on a real cluster, each of which the groups of workers have to survive by the rules.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use jobset_chaos::{Fault, Mode};
use jobset_harness::Cluster;
use jobset_harness::interrupt::unless_interrupted;

/// Kills workers, agents, Pods and what is below them, at random, on a cluster of two nodes.
///
/// After each fault all workers must run in one epoch, each started once in it, with the budget exact: as many restarts
/// counted as epochs in which something failed. At the end, the ledger of each JobSet must add up to its age, within 1 %. Ends
/// with 1 at the first group that does not come back so; the cluster's logs are kept then.
#[derive(Parser)]
#[command(name = "chaos")]
struct Args {
    /// For how long, in minutes. Each fault comes once, whatever it is.
    #[arg(long, value_name = "M", default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,
    /// Decides which fault comes when, and whom it hits. Default: another one each time; it is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Faults that may come. Default: all.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FAULT,...")]
    faults: Vec<Fault>,
    /// Groups: one whose agents are sidecars, one whose agents are supervisors. Default: both.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE,...")]
    mode: Vec<Mode>,
    /// Whether agents report over the stream to relays. Faults of the stream come only with it.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    stream: Switch,
}

/// A part that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Switch {
    On,
    Off,
}

fn minutes(value: &str) -> Result<f64, String> {
    match value.parse() {
        Ok(minutes) if (0.0..=10_000.0).contains(&minutes) => Ok(minutes),
        _ => Err("a number of minutes is wanted, 10000 at most".to_owned()),
    }
}

impl Args {
    fn options(self) -> Result<jobset_chaos::Options> {
        let stream = self.stream == Switch::On;
        let is_possible = |fault: &Fault| stream || !fault.is_of_stream();
        if let Some(fault) = self.faults.iter().find(|fault| !is_possible(fault)) {
            bail!("there is no {fault} with --stream off");
        }
        let all = Fault::value_variants().iter().copied().filter(is_possible);
        Ok(jobset_chaos::Options {
            // As good as random, and short enough to be typed.
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
            faults: if self.faults.is_empty() { all.collect() } else { self.faults },
            modes: if self.mode.is_empty() { Mode::ALL.to_vec() } else { self.mode },
            stream,
            lasts: Duration::from_secs_f64(60.0 * self.minutes),
        })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Args::parse().options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("chaos: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = unless_interrupted(Box::pin(run(&options))).await;
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chaos: {error:#}\nchaos: the same faults again: {}", command(&options));
            ExitCode::FAILURE
        }
    }
}

/// The command that does the same again.
fn command(options: &jobset_chaos::Options) -> String {
    let modes: Vec<String> = options.modes.iter().map(ToString::to_string).collect();
    let faults: Vec<String> = options.faults.iter().map(ToString::to_string).collect();
    let minutes = options.lasts.as_secs_f64() / 60.0;
    format!(
        "make chaos ARGS='--seed {} --minutes {minutes} --stream {} --mode {} --faults {}'",
        options.seed,
        if options.stream { "on" } else { "off" },
        modes.join(","),
        faults.join(",")
    )
}

async fn run(options: &jobset_chaos::Options) -> Result<()> {
    let cluster = Cluster::start(jobset_chaos::NODES).await?;
    let report = jobset_chaos::run(&cluster, options).await?;
    println!("\nFrom the last blow to the last worker's start, {} steps, seed {}:\n", report.steps, options.seed);
    println!("{}", report.table());
    report.ledgers.iter().for_each(|ledger| println!("{ledger}"));
    let violations = report.violations();
    if !violations.is_empty() {
        // Without a word to the cluster, which keeps its logs then.
        bail!("not as it must be: {}", violations.join("; "));
    }
    println!(
        "All workers were in one epoch after each of them, each had started once in it, and the budget was exact. \
         The ledgers add up to the ages of the JobSets, within 1 %."
    );
    cluster.stop().await
}
