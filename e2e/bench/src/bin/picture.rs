//! `make picture`: draws the README's picture from what Prometheus observed of a few failures.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use jobset_bench::{exit_code, picture};

/// Lets groups fail on a cluster of two nodes while Prometheus scrapes the controller, and draws the metrics.
#[derive(Parser)]
struct Args {
    /// The picture. Default: docs/src/images/restart-metrics.svg.
    #[arg(long)]
    file: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit_code("picture", picture::draw(Args::parse().file)).await
}
