//! From the command line to a running controller.

use anyhow::Context as _;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::info;
use tracing_subscriber::EnvFilter;

use crate::args::{Args, LogFormat};
use crate::plan::Settings;
use crate::shell::{self, Health, Options};

/// Runs the controller until SIGTERM or SIGINT.
///
/// # Errors
/// If it cannot start: no API server is configured, or the health port is taken.
pub async fn run(args: Args) -> anyhow::Result<()> {
    log(args.log_format)?;
    let client = Client::try_default().await.context("no API server is configured: set KUBECONFIG")?;
    let (stopped, stop) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopped.send_replace(true);
    });
    let stop = move || {
        let mut stop = stop.clone();
        // The sender lives until it has sent.
        async move { drop(stop.wait_for(|stopped| *stopped).await) }
    };
    info!(version = env!("CARGO_PKG_VERSION"), namespace = args.namespace, "jobset-controller starts");
    let health = Health::default();
    let served = shell::serve_health(args.health_listen, health.clone(), stop());
    let options = Options { namespace: args.namespace, settings: Settings::default() };
    let reconciled = async {
        shell::run(client, options, health, stop()).await;
        Ok(())
    };
    tokio::try_join!(served, reconciled)?;
    Ok(())
}

fn log(format: LogFormat) -> anyhow::Result<()> {
    let filter = match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(filter) => filter.parse().with_context(|| format!("{} is not a filter", EnvFilter::DEFAULT_ENV))?,
        Err(_) => EnvFilter::new("info"),
    };
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}
