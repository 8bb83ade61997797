//! The example that trains (`e2e/training`) on real kubelets: workers are killed at random, restart in place, and the loss
//! curve is that of an undisturbed run, to the last bit.

mod group;
mod kills;
mod log;
mod report;

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
pub(crate) use group::{Group, NAME};
use jobset_harness::cluster::Cluster;
use jobset_harness::install::install;
use jobset_harness::paths;
use jobset_harness::progress::progress;
use jobset_harness::training::{image, modules, root};
use kills::Plan;
pub(crate) use log::WORKERS;
use tokio::process::Command;

use crate::kubelet::binaries;

#[tokio::test]
#[ignore = "five minutes: make training"]
async fn loss_curve_of_killed_workers_equals_undisturbed_run() -> Result<()> {
    let seed = match std::env::var("SEED") {
        Ok(seed) => seed.parse().with_context(|| format!("SEED is {seed:?}: it must be a number"))?,
        Err(_) => fastrand::u64(..1_000_000),
    };
    progress(&format!("the kills of this run are those of SEED={seed}"));
    let cluster = Cluster::start(2).await?;
    install(&cluster, binaries().await?).await?;
    cluster.load_image(&tokio::task::spawn_blocking(image).await??).await?;

    let undisturbed = Group::start(&cluster, "undisturbed", |workload| workload).await?;
    let (expected, _) = undisturbed.finished(0).await?;
    progress(&format!("undisturbed: {expected}"));
    let mut tables = Vec::new();
    for shape in ["Sidecar", "Supervisor"] {
        let plan = Plan::new(seed, expected.steps());
        let group = Group::start(&cluster, &shape.to_lowercase(), |workload| workload.injected(shape)).await?;
        let kills = kills::carry_out(&group, &plan).await?;
        let (log, status) = group.finished(plan.kills.len()).await?;
        log.ensure_curve_of(&expected)?;
        ensure!(status.restarts == 0, "the group was recreated: {status:?}");
        tables.push(report::table(shape, &kills, &log, &expected)?);
    }
    println!("\nSEED={seed}\n\n{}", tables.join("\n"));
    cluster.stop().await
}

#[tokio::test]
#[ignore = "half a minute: make training"]
async fn example_passes_its_tests_on_python_of_its_image() -> Result<()> {
    let root = tokio::task::spawn_blocking(root).await??;
    // Beside the folder that the image is made of, which a test must not change.
    let copy = tempfile::tempdir_in(paths::target())?;
    let mut cp = Command::new("cp");
    cp.args(["--archive", "--link", "--no-target-directory"]).arg(&root).arg(copy.path());
    ensure!(cp.status().await?.success(), "cannot copy {}", root.display());
    for folder in ["training", "tmp"] {
        std::fs::create_dir(copy.path().join(folder))?;
    }
    for (name, file) in modules()? {
        std::fs::copy(file, copy.path().join("training").join(name))?;
    }
    let mut tests = Command::new("chroot");
    tests.arg(copy.path()).args(["/usr/bin/python3", "-m", "unittest", "discover", "--start-directory", "/training"]);
    let output = tests.stdin(Stdio::null()).output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.contains("OK"), "{said}");
    progress(said.lines().rfind(|line| line.starts_with("Ran ")).context("no test ran")?);
    Ok(())
}
