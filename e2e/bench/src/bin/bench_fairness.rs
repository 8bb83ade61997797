//! `make bench-fairness`: restarts of one group while another namespace creates Jobs in numbers.

use std::process::ExitCode;

use clap::Parser;
use jobset_bench::fairness::{FairnessOptions, run};

#[tokio::main]
async fn main() -> ExitCode {
    jobset_bench::exit_code("bench-fairness", run(&FairnessOptions::parse())).await
}
