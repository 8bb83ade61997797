//! Runs `jobset-certs` as its command line says.

use std::net::SocketAddr;

use jobset_program::ports::{Port, Ports};
use kube::Client;
use prometheus::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::args::Args;
use crate::issuer::Settings;
use crate::{Readiness, health, issuer};

/// The program with its port open and nothing done yet.
#[derive(Debug)]
pub struct Program {
    settings: Settings,
    health: Port,
}

impl Program {
    /// Opens the port.
    pub fn open(args: &Args) -> anyhow::Result<Self> {
        let health = Port::open(args.health_listen, "health-listen", "health checks and metrics")?;
        Ok(Self { settings: args.settings()?, health })
    }

    /// Address of `/healthz`, `/readyz` and `/metrics`.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.health.address()
    }

    /// Issues and publishes until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { settings, health } = self;
        let registry = Registry::new();
        let mismatch = crate::mismatch(&registry)?;
        let (readiness, ready) = watch::channel(Readiness::NotReady("starting".to_owned()));
        let metrics = jobset_metrics::routes(registry, env!("CARGO_PKG_VERSION"))?;
        let mut ports = Ports::new()?;
        ports.add(health, health::routes(ready, stop.clone()).merge(metrics));
        let served = ports.serve(stop.clone())?;
        info!(version = env!("CARGO_PKG_VERSION"), namespace = settings.namespace, "jobset-certs starts");
        tokio::select! {
            never = issuer::maintain(client, settings, readiness, mismatch) => match never {},
            () = stop.cancelled() => {}
        }
        served.await;
        info!("stopped");
        Ok(())
    }
}
