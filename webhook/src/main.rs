//! The JobSet admission service.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use jobset_webhook::args::{Args, LogFormat};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    match start(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("jobset-webhook: {}", format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().with_default_directive(tracing::Level::INFO.into());
    let filter = filter.from_env().context("RUST_LOG is not a filter")?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    Ok(runtime.block_on(jobset_webhook::run::run(args))?)
}
