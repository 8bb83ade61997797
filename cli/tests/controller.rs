//! Runs the controller in a thread of this process.

use anyhow::{Context, Result};
use clap::Parser as _;
use jobset_controller::args::Args;
use jobset_controller::run::work;
use jobset_controller::shell::Health;
use kube::Config;
use tokio_util::sync::CancellationToken;

/// The ports are any free ones.
const ARGUMENTS: [&str; 5] = [
    "jobset-controller",
    "--leader-elect-resource-namespace=default",
    "--health-listen=127.0.0.1:0",
    "--metrics-listen=127.0.0.1:0",
    "--metrics-secure=false",
];

/// Starts the controller, which runs until the end of the process.
pub(crate) fn start(config: Config) -> Result<()> {
    let args = Args::try_parse_from(ARGUMENTS)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("controller".to_owned());
    let run_controller = move || {
        if let Err(error) = runtime.block_on(work(args, config, Health::default(), CancellationToken::new())) {
            eprintln!("the controller has ended: {error:#}");
        }
    };
    thread.spawn(run_controller).context("cannot start a thread")?;
    Ok(())
}
