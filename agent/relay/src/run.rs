//! Puts the parts together and takes them down again.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use jobset_program::ports::{Port, Ports};
use jobset_program::server::Server;
use jobset_stream::tls::Identity;
use kube::{Client, Config};
use prometheus::Registry;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::agents::{Agents, DRAIN};
use crate::args::Args;
use crate::auth::authenticator::Authenticator;
use crate::controllers::Controllers;
use crate::health::Pulse;
use crate::hub::{Capacity, Hub};
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::tls::CurrentTls;
use crate::{files, health, limits, memory};

/// The relay with its ports open and nothing served yet.
#[derive(Debug)]
pub struct Relay {
    agents: Port,
    controllers: Port,
    health: Port,
    args: Args,
}

impl Relay {
    /// Opens the ports.
    pub fn open(args: &Args) -> anyhow::Result<Self> {
        Ok(Self {
            agents: Port::open(args.agents_listen, "agents-listen", "agents")?,
            controllers: Port::open(args.controller_listen, "controller-listen", "controllers")?,
            health: Port::open(args.health_listen, "health-listen", "health checks and metrics")?,
            args: args.clone(),
        })
    }

    /// The addresses for agents, for controllers, and of `/healthz`, `/readyz` and `/metrics`.
    pub fn addresses(&self) -> std::io::Result<[SocketAddr; 3]> {
        Ok([self.agents.address()?, self.controllers.address()?, self.health.address()?])
    }

    /// Serves until `stop`. Then closes the connections of agents, spread over two seconds.
    pub async fn run(self, client: Client, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { agents, controllers, health, args } = self;
        let controller_name = args.controller_name();
        let identity = Identity::follow(args.cert_dir).context("no certificate for TLS (--cert-dir)")?;
        let agents_tls = CurrentTls::new(identity.clone(), Identity::server)?;
        let max_connections = memory::lowered(args.max_connections).get();
        files::raise_limit(max_connections);
        let registry = Registry::new();
        let capacity = Capacity { agents: max_connections, of_namespace: args.max_connections_per_namespace.get() };
        let metrics = Metrics::register(&registry)?;
        let shared = Arc::new(Shared::new(Hub::new(capacity), Authenticator::new(client), metrics, stop.clone()));
        let pulse = Pulse::new();
        let exposition = jobset_metrics::routes(registry, env!("CARGO_PKG_VERSION"))?;
        let mut ports = Ports::new()?;
        ports.add(health, health::routes(Arc::clone(&pulse), Arc::clone(&shared)).merge(exposition));
        let stopped = CancellationToken::new();
        let _stopped = stopped.clone().drop_guard();
        let probed = ports.serve(stopped)?;
        let addresses = [agents.address()?, controllers.address()?];
        info!(version = env!("CARGO_PKG_VERSION"), agents = %addresses[0], controllers = %addresses[1], "jobset-relay starts");
        tokio::spawn({
            let shared = Arc::clone(&shared);
            async move { shared.authenticator.follow().await }
        });
        tokio::spawn(async move { pulse.beat().await });
        let agents = Server::new(agents.into_listener()?, limits::connections())
            .serve(Arc::new(Agents::new(agents_tls, Arc::clone(&shared))), stop.clone());
        let controllers = Server::new(controllers.into_listener()?, limits::connections())
            .serve(Arc::new(Controllers::new(identity, controller_name, shared)?), stop);
        tokio::select! {
            _ = agents => {}
            _ = controllers => {}
            () = probed => {}
        }
        info!("shutting down");
        // Both ports are closed. The connections end within this time.
        sleep(DRAIN).await;
        info!("stopped");
        Ok(())
    }
}

/// Runs the relay as the arguments say, until `stop`.
pub async fn run(args: &Args, stop: CancellationToken) -> anyhow::Result<()> {
    // Before the ports: a relay without a certificate is of no use.
    Identity::read(&args.cert_dir).context("no certificate for TLS (--cert-dir)")?;
    let relay = Relay::open(args)?;
    let config = Config::infer().await.context("no API server is configured: set KUBECONFIG")?;
    let client = Client::try_from(config).context("cannot make a client of the API server")?;
    relay.run(client, stop).await
}
