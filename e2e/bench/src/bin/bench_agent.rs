//! `make bench-agent`: what the agent takes, and how long restarts take with it, on real kubelets.

use std::process::ExitCode;

use clap::Parser;
use jobset_bench::agent::{AgentOptions, run};

#[tokio::main]
async fn main() -> ExitCode {
    jobset_bench::exit_code("bench-agent", run(&AgentOptions::parse())).await
}
