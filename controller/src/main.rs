//! The `jobset-controller` program.

use std::process::ExitCode;

use clap::Parser;
use jobset_controller::{args::Args, run::run};

#[tokio::main]
async fn main() -> ExitCode {
    // A task that panicked would be missed by nobody: the process would look alive, keep its Lease and do nothing.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
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
