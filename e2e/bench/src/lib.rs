//! Measures restarts, fairness between tenants, the agent and the admission service, and draws the README's picture.
//!
//! Each benchmark writes its result as JSON and prints it as a table. The load generator shares the machine's CPUs with
//! everything else.

pub mod agent;
mod connections;
pub mod fairness;
mod history;
mod meter;
mod observe;
mod phases;
pub mod picture;
mod program;
mod report;
mod restart;
pub mod webhook;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::builder::RangedU64ValueParser;

use jobset_harness::interrupt::unless_interrupted;
use jobset_harness::paths;
pub use restart::{Options, WatchMode, Way, run};

/// Runs the benchmark of the program `name` to its end, or until SIGINT or SIGTERM, and prints its error.
pub async fn exit_code(name: &str, benchmark: impl Future<Output = Result<()>>) -> ExitCode {
    match unless_interrupted(Box::pin(benchmark)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What each summary of restarts says.
const BACKOFF_IS_OFF: &str = "Restarts do not wait: the back-off is switched off (restartBackoff.initialSeconds: 0).";

fn results() -> PathBuf {
    paths::target().join("bench")
}

/// Parses a number of at least 1.
fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}
