//! The `jobset-controller` program.

use std::process::ExitCode;

use jobset_controller::{args::Args, run::run};

fn main() -> ExitCode {
    // Nothing awaits a task that panicked: the process would look alive, keep its Lease and do nothing.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    jobset_program::run("jobset-controller", None, async { run(Args::of_command_line()?).await })
}
