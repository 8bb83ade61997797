//! Runs the controller in a thread of this process.

use anyhow::{Context, Result};
use clap::Parser as _;
use jobset_controller::args::Args;
use jobset_controller::shell::client::Clients;
use jobset_controller::shell::lease::Elector;
use jobset_controller::shell::{self, Health};
use kube::Config;
use prometheus::Registry;
use tokio_util::sync::CancellationToken;

/// Starts the controller, which runs until the end of the process.
pub(crate) fn start(config: Config) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("controller".to_owned());
    let run_controller = move || {
        if let Err(error) = runtime.block_on(run(config)) {
            eprintln!("the controller has ended: {error:#}");
        }
    };
    thread.spawn(run_controller).context("cannot start a thread")?;
    Ok(())
}

async fn run(config: Config) -> Result<()> {
    let args = Args::try_parse_from(["jobset-controller", "--leader-elect-resource-namespace=default"])?;
    let registry = Registry::new();
    let clients = Clients::new(config, &registry)?;
    let elector = Elector::new(clients.elector()?, args.election.clone(), &registry)?;
    let leadership = elector.leadership();
    let client = clients.workers(&args.client, &leadership)?;
    let never = CancellationToken::new();
    let reconciled = shell::run(client, &args, Health::default(), &registry, leadership, never.clone());
    tokio::try_join!(elector.run(never.clone(), never.clone()), Box::pin(reconciled))?;
    Ok(())
}
