//! Relays between agents and the leading controller.

use std::process::ExitCode;

use clap::Parser as _;
use jobset_relay::args::Args;
use jobset_relay::run::run;

/// Default filter of the log.
const LOGGED: &str = "info";
/// Target of the API server's client. It logs the whole text of an answer that it cannot read.
const NEVER_LOGGED: &str = "kube_client::client";
/// Most threads. Two accept 5,000 agents in a few seconds, and each thread keeps memory of its own.
const MAX_THREADS: usize = 2;

fn main() -> ExitCode {
    jobset_program::run("jobset-relay", Some(MAX_THREADS), async {
        let args = Args::parse();
        jobset_program::log::init(args.log_format, LOGGED, Some(NEVER_LOGGED))?;
        run(&args, jobset_program::stop_on_signals()?).await
    })
}
