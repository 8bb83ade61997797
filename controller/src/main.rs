//! The `jobset-controller` program.

use std::process::ExitCode;

use clap::Parser;
use jobset_controller::{args::Args, run::run};

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("jobset-controller: {error:#}");
            ExitCode::FAILURE
        }
    }
}
