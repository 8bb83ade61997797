//! The demo: a JobSet recovers from a failed worker, in place and by recreation, while a person watches.

mod context;
mod fitness;
mod logs;
mod observer;
mod picture;
mod stage;
mod summary;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jobset_api::RestartStrategy;
use tokio::time::Instant;

pub use context::Context;
use jobset_harness::cluster::Cluster;
use jobset_harness::install::{create_namespace, install};
use jobset_harness::journal::now;
use jobset_harness::programs::rust_binaries;
use jobset_harness::progress::progress;
use jobset_harness::workload;
pub use logs::Logs;
use observer::Observer;
use stage::Stage;
use summary::{Series, Summary};

const NAMESPACE: &str = "demo";
/// Time between two failures of one JobSet.
const BETWEEN_FAILURES: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Failures of each strategy.
    pub runs: usize,
    /// When the user gave the command, in seconds since 1970; to say how long it took until the JobSet ran.
    pub started: f64,
}

/// Installs the product into the cluster, runs both JobSets, lets workers fail, and writes `summary.json` and `restart.svg` into `results`.
pub async fn run(cluster: &Cluster, options: Options, results: &Path) -> Result<()> {
    install(cluster, &rust_binaries().await?).await?;
    create_namespace(&cluster.client(), NAMESPACE).await?;
    show(Stage::host(cluster, NAMESPACE), options, results).await
}

/// The same in the cluster of a kubectl context, in a namespace of its own that [`Context::clean`] removes.
pub async fn run_in(context: &Context, options: Options, results: &Path) -> Result<()> {
    context.prepare().await?;
    let client = context.client.clone();
    show(Stage::api(client, &context.name, &context.namespace, context.images.clone()), options, results).await
}

async fn show(stage: Stage, options: Options, results: &Path) -> Result<()> {
    let stage = Arc::new(stage);
    let (in_place, picture) = series(&stage, workload::STORY_1, RestartStrategy::InPlaceRestart, options).await?;
    let (recreate, _) = series(&stage, workload::RECREATE, RestartStrategy::Recreate, options).await?;
    let summary = Summary { in_place, recreate };
    println!("\n{}", summary.table());
    std::fs::create_dir_all(results)?;
    for (name, text) in [("summary.json", summary.json()), ("restart.svg", picture)] {
        let path = results.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("written: {}", path.display());
    }
    Ok(())
}

/// Runs one JobSet and lets one of its workers fail, again and again. Also draws the last failure.
async fn series(
    stage: &Arc<Stage>,
    manifest: &str,
    strategy: RestartStrategy,
    options: Options,
) -> Result<(Series, String)> {
    let workload = stage.workload(manifest)?;
    println!("\n== {strategy:?}: JobSet {} of {} workers ==", workload.name(), workload.pods());
    let mut observer = Observer::start(stage, &workload).await?;
    if strategy == RestartStrategy::InPlaceRestart {
        progress(&format!("the JobSet runs {:.1} s after the command was given", now() - options.started));
    }
    let mut series = Series::default();
    for run in 1..=options.runs {
        println!("\n-- failure {run} of {} --", options.runs);
        let failed = Instant::now();
        series.add(observer.watch_a_failure().await?);
        if run < options.runs {
            // A kubelet looks at its Pods once a second: failures exactly ten seconds apart would all fall into the same
            // part of that second, and five of them would be one sample.
            tokio::time::sleep_until(failed + BETWEEN_FAILURES + Duration::from_secs_f64(fastrand::f64())).await;
        }
    }
    Ok((series, observer.end().await?))
}
