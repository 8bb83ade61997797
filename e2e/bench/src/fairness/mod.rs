//! What one tenant's Jobs cost the restarts of another.
//!
//! On a cluster of two nodes, a supervised group of four workers restarts in place while nothing else happens, while twenty
//! JobSets of another namespace create their Jobs, and while these Jobs stand ([`foreign`]). The clock is that of the workers'
//! journals, from the exit of one to the last start, as the benchmark of the agent has it.
//!
//! How many Jobs a second the controller creates while nothing is urgent is measured on a control plane alone ([`bulk`]).

mod bulk;
mod foreign;
mod hostile;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use jobset_harness::cluster::Cluster;
use jobset_harness::install::install;
use jobset_harness::programs::{Architecture, shipped_binaries};
use jobset_harness::progress::progress;

use crate::BACKOFF_IS_OFF;
use crate::agent::failures::{FailingGroup, duration};
use crate::agent::mode::{MeasuredMode, case};
use crate::report::{Report, number, rounded};
use crate::{at_least_one, results};
use foreign::ForeignJobs;
use hostile::HostileJobSets;
use report::FairnessFigures;

const NODES: usize = 2;
/// JobSets that create Jobs at once.
const JOBSETS: usize = 20;
/// Jobs that each of them asks for: as many as admission allows.
const JOBS_OF_EACH: usize = 20_000;

/// Measures restarts of a supervised group of four workers beside a namespace that creates Jobs in numbers.
///
/// The group restarts while nothing else happens, while 20 JobSets of 20,000 suspended Jobs each are being created, and while
/// the created Jobs stand. Prints a table of figures beside their targets, and writes fairness.json into the results folder.
#[derive(Clone, Debug, Parser)]
#[command(name = "bench-fairness")]
pub struct FairnessOptions {
    /// Restarts in each of the three situations.
    #[arg(long, value_name = "N", default_value = "20", value_parser = at_least_one())]
    pub restarts: usize,
    /// Jobs of the other namespace that exist before the part in which they stand begins, at most 400,000.
    #[arg(long, value_name = "N", default_value = "100000", value_parser = at_least_one())]
    pub foreign_jobs: usize,
    /// Jobs over whose creation the rate of creations is measured.
    #[arg(long, value_name = "N", default_value = "20000", value_parser = at_least_one())]
    pub bulk_jobs: usize,
    /// The program jobset-controller to measure. Default: build that of the image.
    #[arg(long, value_name = "PATH")]
    pub controller: Option<PathBuf>,
    /// JobSets that ask for as much as the API server takes, of every kind, in a namespace that admission does not see.
    #[arg(long, value_name = "N", default_value = "200", value_parser = at_least_one())]
    pub hostile: usize,
    /// Measures restarts of an idle cluster and beside hostile JobSets alone, and writes no result.
    #[arg(long, conflicts_with = "bulk_only")]
    pub hostile_only: bool,
    /// Another jobset-controller, such as that of an earlier commit, whose rate of creations is measured in the same way.
    #[arg(long, value_name = "PATH")]
    pub compare: Option<PathBuf>,
    /// Measures the rates of creations alone, and writes no result.
    #[arg(long)]
    pub bulk_only: bool,
    /// Folder of the result.
    #[arg(long, value_name = "DIR", default_value_os_t = results())]
    pub results: PathBuf,
}

/// Measures, and writes and prints the result.
pub async fn run(options: &FairnessOptions) -> Result<()> {
    std::fs::create_dir_all(&options.results)
        .with_context(|| format!("cannot create {}", options.results.display()))?;
    let mut binaries = shipped_binaries(Architecture::of_host()?).await?;
    if let Some(controller) = &options.controller {
        binaries.controller.clone_from(controller);
    }
    let mut figures = FairnessFigures::default();
    if !options.bulk_only {
        let cluster = Cluster::start(NODES).await?;
        install(&cluster, &binaries).await?;
        measure_restarts(&cluster, options, &mut figures).await?;
        cluster.stop().await?;
    }
    if options.hostile_only {
        println!("\n{}", report::summary(&Report::new(figures, &binaries.controller)));
        return Ok(());
    }
    progress("== Jobs a second, nothing urgent ==");
    figures.bulk_jobs_per_second = bulk::measure(&binaries.controller, options.bulk_jobs).await?;
    if let Some(other) = &options.compare {
        progress(&format!("== Jobs a second of {} ==", other.display()));
        figures.compared_jobs_per_second = Some(bulk::measure(other, options.bulk_jobs).await?);
    }
    let report = Report::new(figures, &binaries.controller);
    println!("\n{}\n{BACKOFF_IS_OFF}", report::summary(&report));
    if !options.bulk_only {
        println!("written: {}", report.write(&options.results, "fairness.json")?.display());
    }
    Ok(())
}

async fn measure_restarts(cluster: &Cluster, options: &FairnessOptions, figures: &mut FairnessFigures) -> Result<()> {
    let supervisor = case("supervisor", MeasuredMode::Supervisor);
    let mut group = FailingGroup::start(cluster, "tenant", supervisor).await?;
    progress("== idle ==");
    for index in 0..options.restarts {
        figures.idle_seconds.push(restart(&mut group, index).await?);
    }
    progress("== beside hostile JobSets ==");
    let hostile = HostileJobSets::create(cluster, options.hostile).await?;
    figures.hostile_jobsets = hostile.count();
    let restarts = async {
        for index in 0..options.restarts {
            figures.hostile_seconds.push(restart(&mut group, index).await?);
        }
        anyhow::Ok(())
    };
    tokio::select! {
        ended = restarts => ended?,
        ended = hostile.change_for_ever() => ended?,
    }
    figures.controllers_peak_mb = rounded(number(usize::try_from(hostile::controllers_peak_kib()?)?) / 1024.0, 1e1);
    if options.hostile_only {
        return Ok(());
    }
    hostile.remove().await?;
    progress("== while Jobs are being created ==");
    let foreign = ForeignJobs::create(cluster, "foreign", JOBSETS, JOBS_OF_EACH).await?;
    for index in 0..options.restarts {
        // The restarts are spread evenly over the creations: each finds more Jobs than the one before.
        foreign.exist(1 + index * options.foreign_jobs / options.restarts).await?;
        figures.creating_seconds.push(restart(&mut group, index).await?);
    }
    foreign.exist(options.foreign_jobs).await?;
    // All 400,000 Jobs would take the API server an hour and more memory than a machine for tests has. The JobSets are
    // shrunk to the Jobs that they have, which neither deletes a Job nor takes it from its JobSet.
    figures.foreign_jobs_created = foreign.stop_growing().await?;
    progress(&format!("== while {} Jobs stand ==", figures.foreign_jobs_created));
    for index in 0..options.restarts {
        figures.standing_seconds.push(restart(&mut group, index).await?);
    }
    Ok(())
}

async fn restart(group: &mut FailingGroup, index: usize) -> Result<f64> {
    let (exited, started) = group.fail_at_random(index).await?;
    let seconds = duration(exited, started);
    progress(&format!("restart {}: {seconds} s", index + 1));
    Ok(seconds)
}

/// The longest wait for so many Jobs, on two cores that are busy with other things too.
fn limit(jobs: usize) -> Duration {
    Duration::from_mins(5) + Duration::from_millis(20) * u32::try_from(jobs).unwrap_or(u32::MAX)
}
