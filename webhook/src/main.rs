//! The JobSet admission service.

use std::process::ExitCode;

use jobset_webhook::args::Args;
use jobset_webhook::run::run;

/// Default filter of the log.
const LOGGED: &str = "info";
/// Target of the API server's client. It logs the whole text of an answer that it cannot read; the answer could be the Secret
/// with the keys.
const NEVER_LOGGED: &str = "kube_client::client";

/// Most threads that answer reviews. Each thread keeps memory of its own, and four threads answer thousands of reviews per
/// second.
const MAX_THREADS: usize = 4;

fn main() -> ExitCode {
    jobset_program::run("jobset-webhook", Some(MAX_THREADS), async {
        let args = Args::of_command_line()?;
        jobset_program::log::init(args.log.log_format, LOGGED, Some(NEVER_LOGGED))?;
        jobset_program::warn_about_ignored(&args.ignored);
        Ok(run(&args, jobset_program::stop_on_signals()?).await?)
    })
}
