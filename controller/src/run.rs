//! Runs the controller as the command line says.

use anyhow::Context as _;
use jobset_program::ports::{Port, Ports};
use kube::{Client, Config};
use prometheus::Registry;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::args::Args;
use crate::shell::client::Clients;
use crate::shell::lease::Elector;
use crate::shell::{self, Health};

/// Default filter of the log. The client and its watches warn about transient errors, which the controller logs itself.
const LOGGED: &str = "info,kube_client::client=error,kube_client::client::tls=warn,kube_runtime::watcher=error";

/// Runs the controller until SIGTERM or SIGINT. Then it starts no more reconciliations, waits for those that run, and
/// releases the Lease.
///
/// # Errors
/// If it cannot start: no API server is configured, or a port is taken. If it loses the Lease.
pub async fn run(args: Args) -> anyhow::Result<()> {
    jobset_program::log::init(args.log_format, LOGGED, None)?;
    let config = Config::infer().await.context("no API server is configured: set KUBECONFIG")?;
    let of_scrapers = config.clone();
    args.election.check().context("leader election cannot work with these durations")?;
    let registry = Registry::new();
    let clients = Clients::new(config, &registry)?;
    let elector = Elector::new(clients.elector()?, args.election.clone(), &registry)?;
    let leadership = elector.leadership();
    let workers = clients.workers(&args.client, &leadership)?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        namespace = args.namespace,
        feature_gates = %args.feature_gates,
        "jobset-controller starts"
    );

    jobset_program::warn_about_ignored(&args.ignored);
    let stop = jobset_program::stop_on_signals()?;
    let drained = CancellationToken::new();
    let health = Health::default();
    let mut ports = Ports::new()?;
    ports.add(Port::open(args.health_listen, "health-listen", "health checks")?, health.clone().routes());
    let metrics = jobset_metrics::routes(registry.clone(), env!("CARGO_PKG_VERSION"))?;
    let port = Port::open(args.metrics_listen, "metrics-listen", "metrics")?;
    if args.metrics_secure {
        // A client of its own: a flood of callers must not use up the requests of the controller.
        let client = ports.enter(|| Client::try_from(of_scrapers)).context("cannot make a client for /metrics")?;
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
    let elected = async {
        if args.election.leader_elect {
            elector.run(stop.clone(), drained.clone()).await
        } else {
            elector.unopposed(drained.clone()).await;
            Ok(())
        }
    };
    let reconciled = async {
        // The future owns the engine, which is too large for the stack.
        Box::pin(shell::run(workers, &args, health, &registry, leadership, stop.clone())).await?;
        drained.cancel();
        Ok(())
    };
    tokio::try_join!(served, elected, reconciled)?;
    Ok(())
}
