//! `make bench-webhook`: what the review of a large JobSet costs the admission service, and how long it takes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use jobset_bench::webhook::{self, Options};
use jobset_harness::interrupt::unless_interrupted;
use jobset_harness::paths;

/// Measures reviews of a JobSet of 42 kB by the admission service: CPU time, latency at 500 per second, and memory.
///
/// The service is the build of its image, registered with a real control plane; the reviews are sent over a few HTTP/2
/// connections that stay open. Prints a table, and writes webhook.json into the results folder.
#[derive(Parser)]
#[command(name = "bench-webhook")]
struct Args {
    /// Reviews from which the CPU time of one is found, of each webhook.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    reviews: u32,
    /// How long 500 reviews per second are sent, to each webhook.
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// The program jobset-webhook to measure. Default: build that of the image.
    #[arg(long, value_name = "PATH")]
    webhook: Option<PathBuf>,
    /// Folder of the result. Default: target/bench.
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

impl Args {
    fn options(self) -> Options {
        Options {
            reviews: self.reviews as usize,
            paced: Duration::from_secs(self.seconds),
            webhook: self.webhook,
            results: self.results.unwrap_or_else(|| paths::target().join("bench")),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Args::parse().options();
    match unless_interrupted(webhook::run(&options)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-webhook: {error:#}");
            ExitCode::FAILURE
        }
    }
}
