//! `make demo`: the whole path on this machine, from a built cluster to a closing table.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use jobset_e2e::interrupt::unless_interrupted;
use jobset_e2e::{Cluster, demo, journal, paths};

/// Starts a cluster of two nodes, installs the product, lets workers fail, and shows what happens.
#[derive(Parser)]
struct Args {
    /// Failures of each strategy.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Use the cluster of this folder, which `e2e-cluster up --detach` left running, and leave it running.
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// Folder for summary.json. Default: target/demo.
    #[arg(long)]
    results: Option<PathBuf>,
    /// When the command was given, in seconds since 1970. Default: now.
    #[arg(long)]
    started: Option<f64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let shown = async {
        let args = Args::parse();
        let started = args.started.unwrap_or_else(journal::now);
        show(&args, demo::Options { runs: args.runs, started }).await
    };
    match unless_interrupted(Box::pin(shown)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn show(args: &Args, options: demo::Options) -> Result<()> {
    let results = args.results.clone().unwrap_or_else(|| paths::target().join("demo"));
    if let Some(dir) = &args.cluster {
        let cluster = Cluster::attach(dir).await?;
        demo::run(&cluster, options, &results).await?;
        explain(&cluster, dir);
        return Ok(());
    }
    let cluster = Cluster::start(2).await?;
    demo::run(&cluster, options, &results).await?;
    cluster.stop().await
}

fn explain(cluster: &Cluster, dir: &Path) {
    println!(
        "\nThe cluster is still there, with controller and webhook:\n\n  export KUBECONFIG={}\n  alias kubectl={}\n  \
         kubectl get nodes\n\nLogs are in {}. `make demo-down` removes it all.",
        cluster.kubeconfig().display(),
        cluster.kubectl_path().display(),
        dir.join("logs").display(),
    );
}
