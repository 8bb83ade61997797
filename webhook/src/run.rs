//! Puts the parts together and takes them down again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jobset_api::gates::Gates;
use jobset_certs::bundle::Configuration;
use jobset_certs::secret::Wanted;
use jobset_certs::{Lifetimes, Names, Readiness, Resolver, Settings};
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::args::{Args, CertificateArgs};
use crate::{Error, health, serve};

/// How long CAs that were replaced stay trusted.
const OVERLAP: Duration = Duration::from_hours(24);
/// How often the certificate is looked at by the wall clock.
const INTERVAL: Duration = Duration::from_mins(1);
/// How long API servers get to see a changed caBundle before a good certificate is replaced.
const SETTLE: Duration = Duration::from_secs(5);

/// The service with its ports open and nothing served yet.
#[derive(Debug)]
pub struct Service {
    listener: TcpListener,
    health_listener: TcpListener,
    settings: Settings,
    gates: Gates,
    drain_delay: Duration,
    drain_timeout: Duration,
}

impl Service {
    /// Opens the ports.
    ///
    /// # Errors
    /// When a port is taken, or a name does not fit into a certificate.
    pub async fn bind(args: &Args) -> Result<Self, Error> {
        Ok(Self {
            settings: settings(&args.certificates).map_err(Error::Names)?,
            listener: listen(args.serving.listen, "--listen").await?,
            health_listener: listen(args.serving.health_listen, "--health-listen").await?,
            gates: args.features.gates,
            drain_delay: args.serving.drain_delay,
            drain_timeout: args.serving.drain_timeout,
        })
    }

    /// Address of the webhooks, with the port that the system chose where 0 was asked for.
    ///
    /// # Errors
    /// When the system does not know it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Address of `/healthz` and `/readyz`.
    ///
    /// # Errors
    /// When the system does not know it.
    pub fn health_address(&self) -> std::io::Result<SocketAddr> {
        self.health_listener.local_addr()
    }

    /// Serves until `stop`. Then readiness falls, connections are still accepted for the drain delay, and requests in
    /// flight finish.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub async fn run(self, client: Client, stop: CancellationToken) -> Result<(), Error> {
        let resolver = Arc::new(Resolver::default());
        let tls = serve::tls(Arc::clone(&resolver) as Arc<_>)?;
        let (readiness, ready) = watch::channel(Readiness::NotReady("starting".to_owned()));
        let closed = CancellationToken::new();
        let health = health::router(ready, stop.clone());
        let probes = axum::serve(self.health_listener, health).into_future();
        let router = serve::router(self.gates);
        let webhooks = serve::serve(self.listener, tls, router, closed.clone(), self.drain_timeout);
        let certificates = jobset_certs::maintain(client, self.settings, resolver, readiness);
        let shutdown = async {
            stop.cancelled().await;
            info!("shutting down");
            tokio::time::sleep(self.drain_delay).await;
            closed.cancel();
            std::future::pending::<()>().await;
        };
        // Probes and certificates go on until the last request is answered.
        tokio::select! {
            () = webhooks => {}
            _ = probes => {}
            never = certificates => match never {},
            () = shutdown => {}
        }
        info!("stopped");
        Ok(())
    }
}

/// Runs the service as the arguments say, until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start.
pub async fn run(args: &Args) -> Result<(), Error> {
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    let service = Service::bind(args).await?;
    let config = Config::infer().await.map_err(|source| Error::InferConfig(Box::new(source)))?;
    let client = Client::try_from(config).map_err(Error::Client)?;
    info!(listen = %args.serving.listen, health_listen = %args.serving.health_listen, "serving");
    service.run(client, stop).await
}

fn settings(args: &CertificateArgs) -> Result<Settings, jobset_certs::Error> {
    let names = Names::of_service(&args.service_name, &args.namespace)?;
    let names = args.extra_dns_names.iter().try_fold(names, |names, extra| names.with(extra))?;
    Ok(Settings {
        namespace: args.namespace.clone(),
        secret: args.secret_name.clone(),
        wanted: Wanted { names, lifetimes: Lifetimes::default(), overlap: OVERLAP },
        configurations: vec![
            Configuration::Validating(args.validating_webhook_configuration.clone()),
            Configuration::Mutating(args.mutating_webhook_configuration.clone()),
        ],
        interval: INTERVAL,
        settle: SETTLE,
    })
}

async fn listen(address: SocketAddr, flag: &'static str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, flag, source })
}

fn stop_on_signal(stop: CancellationToken) -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}
