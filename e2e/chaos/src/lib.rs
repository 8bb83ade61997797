//! Random faults on a real cluster: each has to end with all workers in one epoch, each started once in it, with the
//! budget exact, in a bounded time.
//!
//! Two groups of workers run side by side, one with each kind of agent. [`plan`] says from a seed what happens when,
//! [`inject`] does it, [`expectation`] says what must have become of the groups, [`facts`] looks at them, and [`check`]
//! compares: what the JobSet counts, what the workers wrote down, and which processes are alive. At the end, [`accounted`] adds up
//! where the time of each JobSet went.

mod accounted;
mod check;
mod disturb;
mod expectation;
mod facts;
mod fault;
mod inject;
mod plan;
mod starve;
mod stopped;
mod stream;
mod summary;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;

pub use accounted::AccountedTime;
use check::check;
use expectation::{Expectation, Losses};
use facts::Facts;
pub use fault::{Fault, Mode};
use inject::{Target, inject};
pub use plan::NODES;
use plan::{Hit, Plan, Step};
pub use summary::Report;
use summary::{Outcome, Recovery};

use jobset_harness::cluster::Cluster;
use jobset_harness::group::Group;
use jobset_harness::install::{install, install_without_stream};
use jobset_harness::programs::rust_binaries;
use jobset_harness::progress::progress;
use jobset_harness::wait;
use jobset_harness::workload::{SUPERVISED, Workload};

/// Restarts that are allowed: more than a day of faults.
const MAX_RESTARTS: u32 = 100_000;

/// What is to happen.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides about everything random.
    pub seed: u64,
    /// Kinds of faults, each once in every round.
    pub faults: Vec<Fault>,
    /// Kinds of groups.
    pub modes: Vec<Mode>,
    /// Whether agents have the stream, as by default. Without it the product is installed by the chart.
    pub stream: bool,
    /// For how long, but for one round at least.
    pub lasts: Duration,
}

struct ObservedGroup {
    mode: Mode,
    group: Group,
    facts: Facts,
}

/// Installs the product, starts the groups, and lets faults happen until the time is over or a group does not come back
/// as it should: then the report says what is wrong with it.
pub async fn run(cluster: &Cluster, options: &Options) -> Result<Report> {
    let binaries = rust_binaries().await?;
    if options.stream {
        install(cluster, &binaries).await?;
    } else {
        install_without_stream(cluster, &binaries).await?;
    }
    let mut groups = try_join_all(options.modes.iter().map(|mode| start(cluster, *mode))).await?;
    progress(&format!("{} workers run in each of {} groups; seed {}", plan::WORKERS, groups.len(), options.seed));
    let plan = Plan::new(options.seed, &options.faults, &options.modes);
    let least = plan.steps_of_a_round();
    let begun = Instant::now();
    let mut report = Report::default();
    for step in plan {
        tokio::time::sleep(step.pause).await;
        // No fault has happened since the last step, so no group may have changed.
        let unasked = try_join_all(groups.iter_mut().map(|running| running.rests(None))).await?;
        report.outcomes.extend(unasked.into_iter().filter(|outcome| !outcome.violations.is_empty()));
        let is_over = report.steps >= least && begun.elapsed() >= options.lasts;
        if is_over || !report.violations().is_empty() {
            break;
        }
        report.steps += 1;
        let outcomes = carry_out(cluster, &mut groups, &step).await;
        for outcome in outcomes.with_context(|| format!("step {}, {}", report.steps, step.fault))? {
            progress(&format!("{:>6.1} s  {outcome}", begun.elapsed().as_secs_f64()));
            report.outcomes.push(outcome);
        }
    }
    // A cluster in which something is wrong may not answer.
    if report.violations().is_empty() {
        report.ledgers = try_join_all(groups.iter().map(ObservedGroup::accounted)).await?;
    }
    Ok(report)
}

async fn start(cluster: &Cluster, mode: Mode) -> Result<ObservedGroup> {
    let change = |workload: Workload| {
        let shape = match mode {
            Mode::Sidecar => "Sidecar",
            Mode::Supervisor => "Supervisor",
        };
        let workload = workload.named(&mode.to_string()).injected(shape).with_max_restarts(MAX_RESTARTS);
        workload.with_env(facts::GROUP, &facts::mark(&namespace(mode)))
    };
    let group = Group::apply(cluster, &namespace(mode), SUPERVISED, change).await?;
    group.runs_in_epoch(1).await?;
    let facts = Facts::of(&group).await?;
    Ok(ObservedGroup { mode, group, facts })
}

fn namespace(mode: Mode) -> String {
    format!("chaos-{mode}")
}

async fn carry_out(cluster: &Cluster, groups: &mut [ObservedGroup], step: &Step) -> Result<Vec<Outcome>> {
    let strike = async |running: &ObservedGroup| match step.hit(running.mode) {
        Some(hit) => {
            let target = Target { group: &running.group, hit, before: &running.facts };
            inject(cluster, &target, step).await.map(|struck| Some((hit, struck)))
        }
        None => Ok(None),
    };
    let struck = try_join_all(groups.iter().map(strike)).await?;
    let mut groups: Vec<_> = groups.iter_mut().zip(struck).collect();
    // Those that were not hit are looked at when those that were have come back.
    groups.sort_by_key(|(_, struck)| struck.is_none());
    let mut outcomes = Vec::new();
    for (running, struck) in groups {
        outcomes.push(match struck {
            Some((hit, struck)) => running.recovers(step, hit, &struck).await?,
            None => running.rests(Some(step.fault)).await?,
        });
    }
    Ok(outcomes)
}

impl ObservedGroup {
    /// Waits until the group has come back as it must, or no longer can.
    async fn recovers(&mut self, step: &Step, hit: &Hit, losses: &Losses) -> Result<Outcome> {
        let expected = Expectation::of(step, hit, losses, &self.facts);
        let pod = self.facts.pods.get(hit.victim).map(|pod| pod.name.clone()).unwrap_or_default();
        let mut outcome = self.becomes(Some(step.fault), &expected).await?;
        let seconds = self.facts.last_start().unwrap_or(f64::NAN) - losses.at;
        // The controller may not have written the Event yet.
        let notes = self.group.events("Restarting").await?;
        let began = format!("from epoch {} to", outcome.epochs.0);
        let cause = notes.iter().find(|note| note.contains(&began)).and_then(|note| summary::cause(note));
        let causes = [losses.reported.clone(), cause.map(str::to_owned)];
        outcome.hit = Some(Recovery { pod, seconds, causes: causes.into_iter().flatten().collect() });
        Ok(outcome)
    }

    /// Where the time of the JobSet went, by its ledger.
    async fn accounted(&self) -> Result<AccountedTime> {
        AccountedTime::of(&self.group.jobsets.get(&self.group.name).await?, Timestamp::now())
    }

    async fn rests(&mut self, fault: Option<Fault>) -> Result<Outcome> {
        self.becomes(fault, &Expectation::untouched()).await
    }

    /// Waits until nothing is wrong with the group, or until what is wrong does not pass.
    async fn becomes(&mut self, fault: Option<Fault>, expected: &Expectation) -> Result<Outcome> {
        let begun = Instant::now();
        let (after, violations) = loop {
            let is_over = begun.elapsed() >= expected.within;
            match Facts::of(&self.group).await {
                Ok(facts) => {
                    let violations = check(&self.facts, &facts, expected);
                    if is_over || violations.is_empty() || !violations.iter().all(|violation| violation.may_pass) {
                        break (facts, violations);
                    }
                }
                Err(error) if is_over => return Err(error),
                // The API server may be on its way.
                Err(_) => {}
            }
            tokio::time::sleep(wait::pause(begun.elapsed())).await;
        };
        let epochs = (self.facts.status.synced_epoch, after.status.synced_epoch);
        self.facts = after;
        let violations = violations.into_iter().map(|violation| violation.text).collect();
        Ok(Outcome { fault, mode: self.mode, epochs, hit: None, violations })
    }
}
