//! The `jobset-controller` program.

use std::process::ExitCode;

use jobset_controller::args::Args;
use jobset_controller::run::run;
use jobset_engine::catches_panics;

fn main() -> ExitCode {
    // Nothing awaits a task that panicked: the process would look alive, keep its Lease and do nothing. A panic that the
    // engine catches costs one JobSet alone.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if !catches_panics() {
            std::process::abort();
        }
    }));
    jobset_program::run("jobset-controller", None, async { run(Args::of_command_line()?).await })
}
