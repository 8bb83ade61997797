//! The `jobset-controller` program.

use std::process::ExitCode;

use jobset_controller::{args::Args, run::run};

#[tokio::main]
async fn main() -> ExitCode {
    // A task that panicked would be missed by nobody: the process would look alive, keep its Lease and do nothing.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let ended = match Args::of_command_line() {
        Ok(args) => run(args).await,
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The first source only: the client's errors repeat theirs in their own text.
            let source = error.chain().nth(1).map(|source| format!(": {source}")).unwrap_or_default();
            eprintln!("jobset-controller: {error}{source}");
            ExitCode::FAILURE
        }
    }
}
