//! `make bench`: what the restart of a group takes and costs, against the number of its Pods.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use jobset_bench::{Options, exit_code, run};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let benchmark = async {
        log(&options.results)?;
        run(&options).await
    };
    exit_code("bench", benchmark).await
}

/// Sends the errors of agents to a file: thousands of agents may fail in the same second. RUST_LOG says what else goes there.
fn log(results: &Path) -> Result<()> {
    std::fs::create_dir_all(results).with_context(|| format!("cannot create {}", results.display()))?;
    let path = results.join("agents.log");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("jobset_agent=warn,jobset_bench=warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(file).init();
    Ok(())
}
