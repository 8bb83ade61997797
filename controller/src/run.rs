//! From the command line to a running controller.

use anyhow::Context as _;
use kube::Config;
use prometheus::Registry;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::args::Args;
use crate::plan::Settings;
use crate::shell::client::{Clients, Limits};
use crate::shell::lease::{Elector, Terms};
use crate::shell::{self, Error, Health, Options};

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
    let terms = terms(&args, &config)?;
    let registry = Registry::new();
    let clients = Clients::new(config, &registry)?;
    let elector = Elector::new(clients.elector()?, terms, &registry)?;
    let leadership = elector.leadership();
    let limits = Limits { qps: args.client.kube_api_qps, burst: args.client.kube_api_burst };
    let workers = clients.workers(limits, &leadership)?;
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
    let settings = Settings {
        gates: args.feature_gates,
        force_delete_after: args.force_delete_unreachable_after,
        agent_cluster_role: args.agent_cluster_role.clone(),
    };
    let options = Options { namespace: args.namespace, settings, metrics_per_jobset: args.metrics_per_jobset };
    let served =
        shell::serve(args.health_listen, "health-listen", "health checks", health.clone().routes(), drained.clone());
    let metrics = jobset_metrics::routes(registry.clone(), env!("CARGO_PKG_VERSION")).map_err(Error::Metrics)?;
    let measured = shell::serve(args.metrics_listen, "metrics-listen", "metrics", metrics, drained.clone());
    let elected = async {
        if args.election.leader_elect {
            elector.run(stop.clone(), drained.clone()).await
        } else {
            elector.unopposed(drained.clone()).await;
            Ok(())
        }
    };
    let reconciled = async {
        // It owns all that was seen: too much for the stack.
        Box::pin(shell::run(workers, options, health, &registry, leadership, stop.clone())).await?;
        drained.cancel();
        Ok(())
    };
    tokio::try_join!(served, measured, elected, reconciled)?;
    Ok(())
}

fn terms(args: &Args, config: &Config) -> Result<Terms, Error> {
    let election = &args.election;
    let namespace = election.leader_elect_resource_namespace.clone();
    let terms = Terms {
        namespace: namespace.unwrap_or_else(|| config.default_namespace.clone()),
        name: election.leader_elect_resource_name.clone(),
        identity: identity(),
        lease_duration: election.leader_elect_lease_duration,
        renew_deadline: election.leader_elect_renew_deadline,
        retry_period: election.leader_elect_retry_period,
    };
    terms.check().map_err(Error::ElectionTerms)?;
    Ok(terms)
}

/// The name of the host, which in a Pod is the Pod's, and a number: the same Pod started again is another candidate.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:016x}", host.trim(), fastrand::u64(..))
}
