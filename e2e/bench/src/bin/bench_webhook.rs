//! `make bench-webhook`: what the review of a large JobSet costs the admission service, and how long it takes.

use std::process::ExitCode;

use clap::Parser;
use jobset_bench::webhook::{WebhookOptions, run};

#[tokio::main]
async fn main() -> ExitCode {
    jobset_bench::exit_code("bench-webhook", run(&WebhookOptions::parse())).await
}
