//! `make demo`: the whole path on this machine, from a built cluster to a closing table.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use jobset_harness::images::Repository;
use jobset_harness::interrupt::unless_interrupted;
use jobset_harness::{Cluster, journal, paths};

/// Starts a cluster of two nodes, installs the product, lets workers fail, and shows what happens. With --context in the
/// cluster of a kubectl context instead, if Pods can restart in place there: what is not installed is installed and stays,
/// the JobSets run in a namespace of their own that is removed.
#[derive(Parser)]
struct Args {
    /// Failures of each strategy.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Use the cluster of this folder, which `e2e-cluster up --detach` left running, and leave it running.
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// Use the cluster of this context of the kubeconfig; without a name that of the current one.
    #[arg(long, num_args = 0..=1, default_missing_value = "", conflicts_with = "cluster")]
    context: Option<String>,
    /// With --context: where the images are.
    #[arg(long, default_value = "localhost", requires = "context")]
    registry: String,
    /// With --context: the tag of the images.
    #[arg(long, default_value = "dev", requires = "context")]
    tag: String,
    /// Folder for summary.json. Default: target/demo.
    #[arg(long)]
    results: Option<PathBuf>,
    /// When the command was given, in seconds since 1970. Default: now.
    #[arg(long)]
    started: Option<f64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let options = jobset_demo::Options { runs: args.runs, started: args.started.unwrap_or_else(journal::now) };
    let results = args.results.clone().unwrap_or_else(|| paths::target().join("demo"));
    let shown = match &args.context {
        Some(name) => show_in(name, &args, options, &results).await,
        None => unless_interrupted(Box::pin(show(args.cluster.as_deref(), options, &results))).await,
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn show(cluster: Option<&Path>, options: jobset_demo::Options, results: &Path) -> Result<()> {
    if let Some(dir) = cluster {
        let cluster = Cluster::attach(dir).await?;
        jobset_demo::run(&cluster, options, results).await?;
        explain(&cluster, dir);
        return Ok(());
    }
    let cluster = Cluster::start(2).await?;
    jobset_demo::run(&cluster, options, results).await?;
    cluster.stop().await
}

/// Removes what it made, also when it fails or is interrupted.
async fn show_in(context: &str, args: &Args, options: jobset_demo::Options, results: &Path) -> Result<()> {
    let name = (!context.is_empty()).then_some(context);
    let context =
        jobset_demo::Context::open(name, Repository { registry: args.registry.clone(), tag: args.tag.clone() }).await?;
    let shown = unless_interrupted(Box::pin(jobset_demo::run_in(&context, options, results))).await;
    // Who interrupts that, too, is not made to wait.
    let cleaned = unless_interrupted(context.clean()).await.with_context(|| format!("{} is left", context.namespace()));
    shown.and(cleaned)
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
