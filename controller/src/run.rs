//! Runs the controller as the command line says.

use anyhow::Context as _;
use jobset_program::ports::{Port, Ports};
use kube::{Client, Config};
use prometheus::Registry;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::args::Args;
use crate::shell::client::Clients;
use crate::shell::{self, Health, lease, thread};

/// Default filter of the log. The client and its watches warn about transient errors, which the controller logs itself.
const LOGGED: &str = "info,kube_client::client=error,kube_client::client::tls=warn,kube_runtime::watcher=error";

/// Runs the controller until SIGTERM or SIGINT. Then it starts no more reconciliations, waits for those that run, and
/// releases the Lease.
///
/// # Errors
/// If it cannot start: no API server is configured, or a port is taken. If it loses the Lease, or its loop stands still.
pub async fn run(args: Args) -> anyhow::Result<()> {
    jobset_program::log::init(args.log_format, LOGGED, None)?;
    let config = Config::infer().await.context("no API server is configured: set KUBECONFIG")?;
    args.election.check().context("leader election cannot work with these durations")?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        namespace = args.namespace,
        feature_gates = %args.feature_gates,
        "jobset-controller starts"
    );
    jobset_program::warn_about_ignored(&args.ignored);
    work(args, config, Health::default(), jobset_program::stop_on_signals()?).await
}

/// Runs the controller until `stop`, for the API server of this configuration. `health` observes its loop.
///
/// Its threads: the loop, the election, the ports, and those of the runtime, which have the requests. None of them delays
/// another. When the election ends, this ends, too, also while the loop stands still.
pub async fn work(args: Args, config: Config, health: Health, stop: CancellationToken) -> anyhow::Result<()> {
    let registry = Registry::new();
    let clients = Clients::new(config.clone(), &registry)?;
    let drained = CancellationToken::new();
    let mut ports = Ports::new()?;
    ports.add(Port::open(args.health_listen, "health-listen", "health checks")?, health.clone().routes());
    let metrics = jobset_metrics::routes(registry.clone(), env!("CARGO_PKG_VERSION"))?;
    let port = Port::open(args.metrics_listen, "metrics-listen", "metrics")?;
    if args.metrics_secure {
        // A client of its own: a flood of callers must not use up the requests of the controller.
        let client = ports.enter(|| Client::try_from(config)).context("cannot make a client for /metrics")?;
        let namespace = args.election.leader_elect_resource_namespace.as_deref().unwrap_or("default");
        let tls = shell::scrape::tls("jobset-controller-metrics", namespace)?;
        ports.add(port.with_tls(tls), shell::scrape::authorized(metrics, client));
    } else {
        ports.add(port, metrics);
    }
    let served = ports.serve(drained.clone())?;
    let served = async {
        served.await;
        Ok(())
    };
    // A replica whose ports are taken must not lead.
    let (leadership, elected) =
        lease::start(clients.clone(), args.election.clone(), health.clone(), &registry, stop.clone(), drained.clone())?;
    let workers = clients.workers(&args.client, &leadership)?;
    let runtime = Handle::current();
    let reconciled = thread::spawn("loop", move || {
        // The future owns the engine, which is too large for the stack.
        runtime.block_on(Box::pin(async move { shell::run(workers, &args, health, &registry, leadership, stop).await }))
    })?;
    let reconciled = async {
        reconciled.await?;
        drained.cancel();
        Ok(())
    };
    tokio::try_join!(served, elected, reconciled)?;
    Ok(())
}
