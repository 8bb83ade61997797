//! Trainings (`e2e/training`) in which one worker hangs, at random: how soon the JobSet says so, and on whom it blames that.
//!
//! Nothing is imitated: workers that compute and reduce together, agents in both shapes, the controller and its verdict. One training has
//! one hang in each epoch, and each is ended by `kubectl jobset restart`.

mod plan;
mod report;

use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, stream};
use jobset_api::labels;
use jobset_harness::cluster::Cluster;
use jobset_harness::install::install;
use jobset_harness::journal::now;
use jobset_harness::process::Signal;
use jobset_harness::progress::progress;
use jobset_harness::training::image;
use jobset_harness::workload::Workload;
use serde_json::json;
use tokio::time::timeout;

use crate::kubelet::{binaries, run_kubectl_jobset};
use crate::training::{Group, NAME};
use plan::{CHECKPOINT_EVERY, Hang, Kind, Plan};
use report::{Outcome, table};

/// Trainings that run at once. A worker that computes without end uses a core, which those of other trainings lack.
const AT_ONCE: usize = 2;
/// The shortest duration that the annotation may have.
const STALL_AFTER: Duration = Duration::from_secs(5);
/// What a step takes at least.
const STEP: Duration = Duration::from_millis(200);
/// Within how many steps and [`STALL_AFTER`] a hang should be noticed.
const STEPS: u32 = 3;
/// How long a restart, the steps before a hang, and its verdict may take together.
const LIMIT: Duration = Duration::from_mins(2);

/// `HANGS` hangs of `SEED`. Fails where another worker is blamed than the one that hangs, and where a group is said to stall that does
/// not. When they were noticed is printed: how busy the machine is decides with.
#[tokio::test]
#[ignore = "twenty minutes: make hangs"]
async fn training_that_hangs_is_noticed_and_nobody_else_blamed() -> Result<()> {
    let (seed, count) = (variable("SEED", fastrand::u64(..1_000_000))?, variable("HANGS", 200)?);
    progress(&format!("{count} hangs of SEED={seed}"));
    let cluster = Cluster::start(2).await?;
    install(&cluster, binaries().await?).await?;
    cluster.load_image(&tokio::task::spawn_blocking(image).await??).await?;
    let plans = Plan::all(seed, count, AT_ONCE);
    let done = AtomicUsize::new(0);
    let observer = Observer { cluster: &cluster, done: &done, count };
    let runs = stream::iter(&plans).map(|plan| observer.run(plan)).buffer_unordered(AT_ONCE);
    let (outcomes, errors): (Vec<_>, Vec<_>) = runs.collect::<Vec<_>>().await.into_iter().unzip();
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    let limit = STALL_AFTER + STEPS * STEP;
    println!("\nSEED={seed}\n\n{}", table(&outcomes, limit.as_secs_f64()));
    let errors: Vec<String> = errors.into_iter().flatten().collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    let wrong: Vec<_> = outcomes.iter().filter(|outcome| outcome.is_wrong()).collect();
    ensure!(wrong.is_empty(), "another worker is blamed: {wrong:#?}");
    cluster.stop().await
}

/// A number in the environment.
fn variable<T: FromStr>(name: &str, default: T) -> Result<T> {
    let Ok(text) = std::env::var(name) else { return Ok(default) };
    text.parse().ok().with_context(|| format!("{name} is {text:?}: it must be a number"))
}

/// Who carries the plans out.
#[derive(Clone, Copy)]
struct Observer<'a> {
    cluster: &'a Cluster,
    /// Hangs that were noticed, of this number.
    done: &'a AtomicUsize,
    count: usize,
}

impl Observer<'_> {
    /// Carries a plan out, up to the first error.
    async fn run(self, plan: &Plan) -> (Vec<Outcome>, Option<String>) {
        let mut outcomes = Vec::new();
        let result = self.carry_out(plan, &mut outcomes).await;
        let error = result.err().map(|error| format!("{} ({}, {:?}): {error:#}", plan.name, plan.shape, plan.hangs));
        if let Some(error) = &error {
            progress(error);
        }
        (outcomes, error)
    }

    async fn carry_out(self, plan: &Plan, outcomes: &mut Vec<Outcome>) -> Result<()> {
        let group = Group::start(self.cluster, &plan.name, |workload| equipped(workload, plan)).await?;
        for (hang, epoch) in plan.hangs.iter().zip(1..) {
            if epoch > 1 {
                let restart = ["restart", NAME, "-n", &plan.name];
                let (said, code) = run_kubectl_jobset(self.cluster, &restart).await?;
                ensure!(code == Some(0), "kubectl jobset restart: {said}");
            }
            let outcome = noticed(&group, plan.shape, *hang, epoch).await?;
            outcomes.push(outcome.clone());
            self.tell(&outcome);
        }
        group.remove().await
    }

    fn tell(self, outcome: &Outcome) {
        let Outcome { shape, hang: Hang { kind, rank, step }, noticed_after, blamed } = outcome;
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let verdict = blamed.map_or_else(|| "unknown".to_owned(), |rank| format!("worker {rank}"));
        progress(&format!(
            "{done} of {}: {shape}, {kind} of worker {rank} at step {step}: noticed after {noticed_after:.2} s, blamed: {verdict}",
            self.count
        ));
    }
}

fn equipped(workload: Workload, plan: &Plan) -> Workload {
    let mut workload = workload
        .injected(plan.shape)
        .with_env("HANG", &plan.variable())
        .with_env("STEP_MILLISECONDS", &STEP.as_millis().to_string())
        .with_env("CHECKPOINT_EVERY", &CHECKPOINT_EVERY.to_string())
        .with_env("CHECKPOINT_LIMIT", &STALL_AFTER.as_secs().to_string());
    let annotations = &mut workload.0["metadata"]["annotations"];
    annotations[labels::STALL_AFTER] = json!(format!("{}s", STALL_AFTER.as_secs()));
    annotations[labels::ON_STALL] = json!("Notify");
    workload
}

async fn noticed(group: &Group, shape: &'static str, hang: Hang, epoch: i32) -> Result<Outcome> {
    if hang.kind == Kind::Stop {
        group.wait_for(hang.rank, epoch, hang.step).await?;
        group.process(hang.rank, epoch)?.signal(Signal::STOP).context("cannot stop a worker")?;
    }
    let message = timeout(LIMIT, group.stalled_in(epoch)).await;
    let at = now();
    let status = group.status().await?;
    let message = message.with_context(|| format!("no verdict on {hang:?} in epoch {epoch}: {status:?}"))??;
    ensure!(status.group_restarts == epoch - 1, "the group has restarted by itself: {status:?}");
    let last = group.last_step(hang.rank, epoch)?;
    let is_due = last.step + usize::from(hang.kind != Kind::Disk) >= hang.step;
    let noticed_after = at - last.time;
    ensure!(
        is_due && noticed_after >= STALL_AFTER.as_secs_f64(),
        "said to stall {noticed_after:.3} s after step {} of {hang:?}: {message}",
        last.step
    );
    Ok(Outcome { shape, hang, noticed_after, blamed: group.blamed(&message)? })
}
