//! Restarts in place.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jobset_harness::progress::progress;
use tokio::time::sleep_until;

use super::agents::Agents;
use super::case::{WatchMode, Way};
use super::group::{Bench, MeasuredGroup};
use super::link::{Dialect, Links};
use super::over_stream::{StreamAgents, settle};
use super::report::{CaseFigures, Restart};
use crate::connections::Connections;
use crate::phases::Phases;
use crate::report::number;

/// The phases of a restart, in seconds.
///
/// - `detect`: from the failed agent's next report, answered or sent over the stream, to `deprecatedEpoch`, observed by the
///   benchmark's own watch.
/// - `deprecate`: to the last agent that restarts: the broadcast of `deprecatedEpoch`.
/// - `report`: to the answer to the last agent's report, or until it is sent over the stream.
/// - `sync`: to `syncedEpoch`, observed by the benchmark's own watch.
/// - `lift`: to the last agent that lifts its barrier: the broadcast of `syncedEpoch`.
pub(super) const PHASES: [&str; 5] = ["detect", "deprecate", "report", "sync", "lift"];
/// A prime, so that successive failures hit Pods of all Jobs.
const STRIDE: usize = 7_919;

/// Creates a JobSet with its agents, and lets one worker fail after the other.
pub(super) async fn measure(bench: &Bench<'_>, mode: WatchMode, way: Way) -> Result<CaseFigures> {
    let (group, census) = MeasuredGroup::create(bench).await?;
    let pods = census.names();
    // No real component watches every Pod for the benchmark.
    drop(census);
    let (links, stream) = if let Some(stream) = &bench.stream {
        let (links, agents) = StreamAgents::prepare(bench, stream, &pods).await?;
        (links, Some(agents))
    } else {
        let dialect = if way == Way::Go { Dialect::Go } else { Dialect::Own };
        (Links::requests(Connections::new(&bench.config, pods.len())?, dialect), None)
    };
    let start = Instant::now();
    let agents = Agents::start(links, mode, group.uid.clone(), &pods);
    agents.all_lifted(bench.limit).await.context("the start")?;
    progress(&format!("{} agents run ({:.1} s)", pods.len(), start.elapsed().as_secs_f64()));
    group.history.settled(bench.limit).await?;

    let memory = stream.as_ref().map(|agents| agents.memory(bench)).transpose()?;
    let idle = match (&stream, &bench.stream) {
        (Some(agents), Some(stream)) => Some(agents.idle(bench, stream).await?),
        _ => None,
    };
    let (mut restarts, mut minute) = (Vec::new(), None);
    let (before_all, mut carried) = (traffic(bench).await?, 0.0);
    for number in 1..=bench.restarts {
        if bench.options.settle && stream.is_some() {
            settle(pods.len()).await;
        }
        let (begun, before) = (Instant::now(), bench.meter.read()?);
        let failing = number * STRIDE % pods.len();
        let restart = restart(bench, &group, &agents, failing).await;
        let restart = restart.with_context(|| format!("restart {number}"))?;
        progress(&format!("restart {number} of {}: {:.2} s", bench.restarts, restart.seconds));
        restarts.push(restart);
        if number == bench.restarts && stream.is_some() {
            carried = traffic(bench).await? - before_all;
            progress("waiting for the annotations that follow");
            sleep_until((begun + Duration::from_secs(bench.options.annotation_seconds)).into()).await;
            minute = Some(bench.meter.read()?.since(&before));
        }
    }
    let figures = MeasuredGroup::figures(bench, restarts)?;
    let stream = match (stream, memory, minute, idle) {
        (Some(agents), Some(memory), Some(minute), Some(idle)) => {
            Some(agents.figures(bench, memory, carried / number(bench.restarts), minute, idle)?)
        }
        _ => None,
    };
    Ok(CaseFigures { stream, ..figures })
}

/// What the relays have received and sent, in bytes; zero without relays.
async fn traffic(bench: &Bench<'_>) -> Result<f64> {
    match &bench.stream {
        Some(stream) => Ok(number(usize::try_from(stream.setup.bytes().await?)?)),
        None => Ok(0.0),
    }
}

/// One failure, and what follows until the JobSet has settled.
async fn restart(bench: &Bench<'_>, group: &MeasuredGroup, agents: &Agents, failing: usize) -> Result<Restart> {
    let epoch = group.history.status().synced_epoch;
    agents.set_out(epoch + 1);
    let before = group.before(bench).await?;
    agents.fail(failing);
    let way = agents.all_lifted(bench.limit).await?;
    let cpu = before.cpu(bench)?;
    group.history.settled(bench.limit).await?;
    let observed = (|| {
        let ends = [
            group.history.first(before.writes, |status| status.deprecated_epoch >= epoch)?,
            way.restarted?,
            way.reported?,
            group.history.first(before.writes, |status| status.synced_epoch > epoch)?,
            way.lifted?,
        ];
        // The failure is visible in the first report.
        Some((way.first_report?, ends))
    })();
    let (start, ends) = observed.context("a part of the restart was not observed")?;
    let phases = Phases::new(PHASES, start, ends);
    let restart = group.restarted(bench, &before, phases, (start, ends[4]), cpu).await?;
    Ok(Restart { failed_reports: way.failed_reports, ..restart })
}
