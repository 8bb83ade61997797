//! Restarts in place.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::agents::Agents;
use super::case::{Load, WatchMode};
use super::connections::Connections;
use super::cost::cost_of_an_event;
use super::group::{Bench, Group};
use super::kubelet::Kubelets;
use super::phases::Phases;
use super::report::{Report, Restart, rounded, seconds};
use super::roll::Way;
use jobset_harness::progress::progress;

/// What the full load is defined by, in bytes of JSON.
const FULL_POD: usize = 6_000;
const FULL_JOBSET: usize = 8_000;
/// A prime, so that one failure after the other hits Pods of all Jobs.
const STRIDE: usize = 7_919;

/// Creates a JobSet with its agents, and lets one worker fail again and again.
///
/// # Errors
/// If anything does not happen in time.
pub(super) async fn measure(bench: &Bench<'_>, load: Load, mode: WatchMode) -> Result<Report> {
    let (group, census) = Group::create(bench).await?;
    let pods = census.names();
    // Watching every Pod any longer would be load that nobody else makes.
    drop(census);
    let connect = || Connections::new(&bench.config, pods.len(), bench.options.agents_per_connection);
    let connections = connect()?;
    let kubelets = match load {
        Load::Bare => None,
        Load::Full => Some(Kubelets::start(&connect()?, &pods, mode)),
    };
    let start = Instant::now();
    let seats = bench.options.agent_seats;
    let agents = Agents::start(connections.clone(), seats, kubelets, mode, group.uid.clone(), &pods);
    let way = agents.all_lifted(bench.limit).await.context("the start")?;
    let started = way.lifts.last.unwrap_or(start).saturating_duration_since(start);
    progress(&format!("{} agents run ({:.1} s)", pods.len(), started.as_secs_f64()));
    agents.statuses_settled(bench.limit).await?;
    group.history.settled(bench.limit).await?;

    let mut restarts = Vec::new();
    for number in 1..=bench.options.restarts {
        let restart = restart(bench, &group, &agents, number * STRIDE % pods.len());
        let restart = restart.await.with_context(|| format!("restart {number}"))?;
        progress(&format!("restart {number} of {}: {:.2} s", bench.options.restarts, restart.seconds));
        restarts.push(restart);
    }
    let cost = match bench.options.pod_events {
        0 => None,
        events => Some(cost_of_an_event(bench, &group.history, &connections, &pods, events).await?),
    };
    let mut report = group.report(bench, restarts).await?;
    report.start_seconds = Some(seconds(started));
    report.connections = Some(connections.count());
    report.agent_seats = Some(bench.options.agent_seats);
    report.cpu_us_per_event = cost.map(|cost| rounded(cost, 10.0));
    report.pod_events = cost.map(|_| bench.options.pod_events);
    let is_full = report.pod_bytes >= FULL_POD && report.jobset_bytes >= FULL_JOBSET;
    ensure!(
        load == Load::Bare || is_full,
        "Pods of {} bytes and a JobSet of {} bytes are no full load",
        report.pod_bytes,
        report.jobset_bytes
    );
    Ok(report)
}

/// One failure, and what follows until the JobSet has settled.
async fn restart(bench: &Bench<'_>, group: &Group, agents: &Agents, failing: usize) -> Result<Restart> {
    let epoch = group.history.status().synced_epoch;
    agents.set_out(epoch + 1);
    let before = group.before(bench).await?;
    let failure = agents.fail(failing, bench.limit).await?;
    let way = agents.all_lifted(bench.limit).await?;
    let cpu = before.cpu(&bench.meter)?;
    agents.statuses_settled(bench.limit).await?;
    group.history.settled(bench.limit).await?;

    let instants = instants(group, before.writes, epoch, &way, failure).context("the restart was not seen in full")?;
    let [start, .., end] = instants;
    let mut restart = group.restarted(bench, &before, Phases::in_place(instants), (start, end), cpu).await?;
    restart.failed_reports = way.failed_reports;
    Ok(restart)
}

/// The instants between the phases. The failure is visible by the Pod's status, or else by the first report.
fn instants(group: &Group, skip: usize, epoch: i32, way: &Way, failure: Option<Instant>) -> Option<[Instant; 6]> {
    Some([
        failure.or(way.reports.first)?,
        group.history.first(skip, |status| status.deprecated_epoch >= epoch)?,
        way.restarts.last?,
        way.reports.last?,
        group.history.first(skip, |status| status.synced_epoch > epoch)?,
        way.lifts.last?,
    ])
}
