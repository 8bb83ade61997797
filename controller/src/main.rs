//! The `jobset-controller` program.

use std::process::ExitCode;

use clap::Parser;
use jobset_controller::{args::Args, run::run};

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The first source only: the client's errors repeat theirs in their own text.
            let source = error.chain().nth(1).map(|source| format!(": {source}")).unwrap_or_default();
            eprintln!("jobset-controller: {error}{source}");
            ExitCode::FAILURE
        }
    }
}
