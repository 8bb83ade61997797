//! Runs the controller in a thread of this process.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, Result};
use jobset_controller::plan::Settings;
use jobset_controller::shell::client::{Clients, Limits};
use jobset_controller::shell::lease::{Elector, Terms};
use jobset_controller::shell::{self, Health, Options};
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
    let registry = Registry::new();
    let clients = Clients::new(config, &registry)?;
    let terms = Terms {
        namespace: "default".to_owned(),
        name: "6d4f6a47.jobset.x-k8s.io".to_owned(),
        identity: "the test".to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };
    let elector = Elector::new(clients.elector()?, terms, &registry)?;
    let leadership = elector.leadership();
    let fast = NonZeroU32::new(500).context("not 0")?;
    let client = clients.workers(Limits { qps: fast, burst: fast }, &leadership)?;
    let options = Options { namespace: None, settings: Settings::default(), ..Options::default() };
    let never = CancellationToken::new();
    let reconciled = shell::run(client, options, Health::default(), &registry, leadership, never.clone());
    tokio::try_join!(elector.run(never.clone(), never.clone()), Box::pin(reconciled))?;
    Ok(())
}
