//! The agents whose reports go over the stream, and what they cost.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jobset_api::agent::annotation_delays;
use jobset_harness::progress::progress;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::group::{Bench, StreamBench};
use super::link::{Links, SEATS};
use super::tokens;
use crate::connections::Connections;
use crate::meter::{CpuSeconds, peak_rss_kib, rss_kib};
use crate::report::number;

/// How long the last annotation may take that is written.
const LAST_WRITE: Duration = Duration::from_secs(2);
/// How long agents are looked at to which nothing happens.
const IDLE: Duration = Duration::from_mins(1);

pub(super) struct StreamAgents {
    /// The folder of each agent, in the order of the Pods.
    folders: Vec<PathBuf>,
    before: Memory,
}

/// Resident memory in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// Of both relays together.
    relays: u64,
    controller: u64,
}

/// What the agents cost, beside their restarts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct StreamFigures {
    /// Resident memory of both relays when all agents run, above that before they connected, for each agent.
    pub(super) relay_bytes_per_agent: f64,
    /// The same of the relays' peak, until the end of the case.
    pub(super) relay_peak_bytes_per_agent: f64,
    /// Resident memory of the controller when all agents run, above that before they connected, for each agent.
    pub(super) controller_bytes_per_agent: f64,
    /// What the relays received and sent in a restart, with what connections cost, for each agent.
    pub(super) relay_traffic_bytes_per_agent: f64,
    /// CPU from the last failure on, over a minute unless an option says otherwise, with the annotations that follow.
    pub(super) minute: CpuSeconds,
    /// What all of it costs while nothing happens.
    #[serde(flatten)]
    pub(super) idle: Idle,
}

/// What connected agents cost while nothing happens to their JobSet, and no annotation is due.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Idle {
    /// CPU over a minute.
    #[serde(rename = "idle")]
    pub(super) cpu: CpuSeconds,
    /// Resident memory of both relays, with what they need without agents.
    #[serde(rename = "idle_relays_kib")]
    pub(super) relays_kib: u64,
}

impl Memory {
    fn read(bench: &Bench<'_>, stream: &StreamBench<'_>) -> Result<Self> {
        Ok(Self { relays: rss_kib(&stream.setup.pids)?, controller: rss_kib(&[bench.controller])? })
    }
}

impl StreamAgents {
    /// Makes what each agent of these Pods needs. No agent connects yet.
    pub(super) async fn prepare(bench: &Bench<'_>, stream: &StreamBench<'_>, pods: &[String]) -> Result<(Links, Self)> {
        let root = stream.folder.join("agents");
        let folders = tokens::folders(&bench.client, &root, &stream.setup.ca, pods).await?;
        let seats = Arc::new(Semaphore::new(SEATS));
        let connections = Connections::with_seats(&bench.config, pods.len(), &seats)?;
        let links = Links::stream(connections, stream.setup.clone(), folders.clone(), bench.options.connecting);
        Ok((links, Self { folders, before: Memory::read(bench, stream)? }))
    }

    /// The memory for each agent now, of relays and controller.
    pub(super) fn memory(&self, bench: &Bench<'_>) -> Result<[f64; 2]> {
        let Some(stream) = &bench.stream else { return Ok([0.0; 2]) };
        let now = Memory::read(bench, stream)?;
        let agents = self.folders.len();
        Ok([
            bytes_per_agent(now.relays, self.before.relays, agents),
            bytes_per_agent(now.controller, self.before.controller, agents),
        ])
    }

    /// Measures what the agents cost over a minute in which nothing happens.
    pub(super) async fn idle(&self, bench: &Bench<'_>, stream: &StreamBench<'_>) -> Result<Idle> {
        progress("waiting for the annotations of the start, and for a minute in which nothing happens");
        settle(self.folders.len()).await;
        let before = bench.meter.read()?;
        sleep(IDLE).await;
        Ok(Idle { cpu: bench.meter.read()?.since(&before), relays_kib: rss_kib(&stream.setup.pids)? })
    }

    /// The figures at the end of the case; `memory` is that when all agents had started.
    pub(super) fn figures(
        self,
        bench: &Bench<'_>,
        [relay_bytes_per_agent, controller_bytes_per_agent]: [f64; 2],
        bytes_per_restart: f64,
        minute: CpuSeconds,
        idle: Idle,
    ) -> Result<StreamFigures> {
        let pids = bench.stream.iter().flat_map(|stream| stream.setup.pids);
        let peak: u64 = pids.map(peak_rss_kib).sum::<Result<_>>()?;
        let relay_peak_bytes_per_agent = bytes_per_agent(peak, self.before.relays, self.folders.len());
        Ok(StreamFigures {
            relay_bytes_per_agent,
            relay_peak_bytes_per_agent,
            controller_bytes_per_agent,
            relay_traffic_bytes_per_agent: (bytes_per_restart / number(self.folders.len().max(1))).round(),
            minute,
            idle,
        })
    }
}

/// Waits until the agents of so many Pods have written the annotations that follow a report over the stream.
pub(super) async fn settle(pods: usize) {
    let delays = annotation_delays(u32::try_from(pods).unwrap_or(u32::MAX));
    sleep(*delays.end() + LAST_WRITE).await;
}

/// What the memory has grown by, for each agent.
fn bytes_per_agent(now_kib: u64, before_kib: u64, agents: usize) -> f64 {
    (number(now_kib.saturating_sub(before_kib)) * 1024.0 / number(agents.max(1))).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_an_agent_is_its_share_of_the_growth() {
        assert!((bytes_per_agent(20_000, 10_000, 1000) - 10_240.0).abs() < 1e-9);
        assert!(bytes_per_agent(10_000, 20_000, 1000).abs() < 1e-9, "memory that shrinks is no agent's");
    }
}
