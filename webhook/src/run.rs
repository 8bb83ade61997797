//! Puts the parts together and takes them down again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jobset_certs::bundle::Configuration;
use jobset_certs::{Names, Readiness, Resolver, Source, health};
use jobset_program::listener;
use jobset_program::ports::{Port, Ports};
use kube::{Client, Config};
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::args::{Args, CertificateArgs, CertificateSource};
use crate::cluster::Cluster;
use crate::connections::Drain;
use crate::jobset::Terms;
use crate::metrics::Metrics;
use crate::nodes::known::KnownJobSets;
use crate::pod::lookup::Lookup;
use crate::turn::Computing;
use crate::{Error, check, connections, limits, metrics, serve, tls};

/// How often the certificate is looked at by the wall clock.
const INTERVAL: Duration = Duration::from_mins(1);

/// The service with its ports open and nothing served yet.
#[derive(Debug)]
pub struct Service {
    listener: TcpListener,
    health: Port,
    metrics: Port,
    names: Names,
    source: Source,
    args: Args,
}

impl Service {
    /// Opens the ports, in the runtime that this is called in.
    pub fn bind(args: &Args) -> Result<Self, Error> {
        args.features.agent_resources().check().map_err(Error::AgentResources)?;
        let (names, source) = certificate(&args.certificates)?;
        let port = |address, flag, what| Port::open(address, flag, what).map_err(Error::Ports);
        Ok(Self {
            names,
            source,
            listener: listen(args.serving.listen, "--listen")?,
            health: port(args.serving.health_listen, "health-listen", "health checks")?,
            metrics: port(args.serving.metrics_listen, "metrics-listen", "metrics")?,
            args: args.clone(),
        })
    }

    /// Addresses of the webhooks, of `/healthz` and `/readyz`, and of `/metrics`, with the ports that the system chose where 0 was
    /// asked for.
    pub fn addresses(&self) -> std::io::Result<[SocketAddr; 3]> {
        Ok([self.listener.local_addr()?, self.health.address()?, self.metrics.address()?])
    }

    /// Serves until `stop`. Then readiness falls and clients are told to ask elsewhere, connections are still accepted for
    /// the drain delay, and requests in flight finish.
    pub async fn run(self, client: Client, stop: CancellationToken) -> Result<(), Error> {
        let Args { serving, limits, placement, features, .. } = self.args;
        let resolver = Arc::new(Resolver::default());
        let tls = tls::config(Arc::clone(&resolver) as Arc<_>, serving.tls_min_version)?;
        let (readiness, ready) = watch::channel(Readiness::NotReady("starting".to_owned()));
        let closed = CancellationToken::new();
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).map_err(Error::Metrics)?;
        let looks_at_bundles = matches!(self.source, Source::Directory { .. });
        let of_certificates = jobset_certs::Metrics::register(&registry, looks_at_bundles).map_err(Error::Metrics)?;
        let exposition = jobset_metrics::routes(registry, env!("CARGO_PKG_VERSION")).map_err(Error::Metrics)?;
        let mut ports = Ports::new().map_err(Error::Ports)?;
        ports.add(self.metrics, exposition);
        ports.add(self.health, health::routes(ready, stop.clone()));
        let stopped = CancellationToken::new();
        let _stopped = stopped.clone().drop_guard();
        let probed = ports.serve(stopped).map_err(Error::Ports)?;
        let cluster = Cluster::default();
        let terms = Terms {
            gates: features.gates,
            injection: features.injection(),
            cluster: cluster.clone(),
            limits: limits.of_jobset(),
            topology_keys: placement.exclusive_topology_keys,
        };
        let lookup = Lookup::new(client.clone(), placement.leader_wait);
        let known = KnownJobSets::new(client.clone());
        let (jobsets, pods) = (serve::router(terms), serve::pod_router(lookup.clone(), known));
        let computing = Arc::new(Computing::new(limits.max_concurrent_reviews));
        let pods = limits::guard_with(pods, &limits, limits.max_concurrent_pods, &computing);
        let jobsets = limits::guard_with(jobsets, &limits, limits.max_concurrent_reviews, &computing);
        let router = metrics::measure(jobsets.merge(pods), metrics);
        let drain = Drain { begun: stop.clone(), closed: closed.clone(), timeout: serving.drain_timeout };
        let webhooks = connections::serve(self.listener, Some(tls), router, &limits, drain);
        let certificates = jobset_certs::serve::serve(
            client.clone(),
            self.source,
            self.names,
            INTERVAL,
            resolver,
            readiness,
            of_certificates,
        );
        let shutdown = async {
            stop.cancelled().await;
            info!("shutting down");
            tokio::time::sleep(serving.drain_delay).await;
            closed.cancel();
            std::future::pending::<()>().await;
        };
        // Probes and certificates go on until the last request is answered.
        tokio::select! {
            () = webhooks => {}
            () = probed => {}
            never = certificates => match never {},
            never = lookup.watch() => match never {},
            never = cluster.watch(&client) => match never {},
            () = shutdown => {}
        }
        info!("stopped");
        Ok(())
    }
}

/// Runs the service as the arguments say, until `stop`; or checks admission instead.
pub async fn run(args: &Args, stop: CancellationToken) -> Result<(), Error> {
    if let Some(namespace) = &args.check_admission {
        return check::admission(client().await?, namespace).await;
    }
    let service = Service::bind(args)?;
    let client = client().await?;
    info!(listen = %args.serving.listen, health_listen = %args.serving.health_listen, metrics_listen = %args.serving.metrics_listen, "serving");
    service.run(client, stop).await
}

async fn client() -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|source| Error::InferConfig(Box::new(source)))?;
    Client::try_from(config).map_err(Error::Client)
}

fn certificate(args: &CertificateArgs) -> Result<(Names, Source), Error> {
    let names = Names::of_host(&args.service_name, &args.namespace)
        .and_then(|names| args.extra_dns_names.iter().try_fold(names, |names, extra| names.with(extra)))
        .map_err(Error::Names)?;
    let source = match args.source {
        CertificateSource::Issued => {
            Source::Secret { namespace: args.namespace.clone(), name: args.leaf_secret_name.clone() }
        }
        CertificateSource::Mounted => Source::Directory {
            path: args.directory.clone().unwrap_or_default(),
            configurations: vec![
                Configuration::Validating(args.validating_webhook_configuration.clone()),
                Configuration::Mutating(args.mutating_webhook_configuration.clone()),
            ],
            settle: args.ca_bundle_settle,
        },
    };
    Ok((names, source))
}

fn listen(address: SocketAddr, flag: &'static str) -> Result<TcpListener, Error> {
    listener::listen(address).and_then(TcpListener::from_std).map_err(|source| Error::Listen { address, flag, source })
}
