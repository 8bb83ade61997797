//! One JobSet under measurement, from its creation to its figures, whatever its strategy.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jobset_api::JobSet;
use jobset_harness::progress::progress;
use kube::api::PostParams;
use kube::{Api, Client, Config, ResourceExt};

use super::case::{Case, Options};
use super::jobset::{NAME, NAMESPACE, Shape, manifest, shape};
use super::pods::Census;
use super::relays::StreamSetup;
use super::report::{CaseFigures, Restart};
use super::requests::ApiRequests;
use crate::history::History;
use crate::meter::{CpuReading, CpuSeconds, Meter, peak_rss_kib};
use crate::phases::Phases;
use crate::report::seconds;

/// A control plane with a controller, and the case that is measured on it.
pub(super) struct Bench<'a> {
    pub(super) options: &'a Options,
    pub(super) case: Case,
    pub(super) config: Config,
    pub(super) client: Client,
    pub(super) meter: Meter,
    pub(super) controller: u32,
    pub(super) restarts: usize,
    /// What the agents of the stream need, if reports go over it.
    pub(super) stream: Option<StreamBench<'a>>,
    /// The longest wait for anything that concerns all Pods.
    pub(super) limit: Duration,
}

pub(super) struct StreamBench<'a> {
    pub(super) setup: StreamSetup,
    pub(super) folder: &'a Path,
}

pub(super) struct MeasuredGroup {
    pub(super) uid: String,
    pub(super) shape: Vec<Shape>,
    pub(super) history: History,
}

pub(super) struct Before {
    requests: ApiRequests,
    cpu: CpuReading,
    /// Versions of the JobSet.
    pub(super) writes: usize,
}

impl MeasuredGroup {
    /// Creates the JobSet, and waits for its Pods.
    pub(super) async fn create(bench: &Bench<'_>) -> Result<(Self, Census)> {
        let (count, shape) = (bench.case.agents, shape(bench.case.agents));
        let start = Instant::now();
        let jobset: JobSet = serde_json::from_value(manifest(&shape, bench.case.strategy)?)?;
        let jobsets: Api<JobSet> = Api::namespaced(bench.client.clone(), NAMESPACE);
        let jobset = jobsets.create(&PostParams::default(), &jobset).await.context("cannot create the JobSet")?;
        let history = History::follow(bench.client.clone(), NAMESPACE, NAME);
        let census = Census::start(&bench.client);
        census.complete(0, count, bench.limit).await?;
        history.settled(bench.limit).await?;
        progress(&format!("{count} Pods created ({:.1} s)", start.elapsed().as_secs_f64()));
        let uid = jobset.uid().context("the JobSet has no UID")?;
        Ok((Self { uid, shape, history }, census))
    }

    /// Reads the counters. Those of the API server come first: the answer costs it CPU.
    pub(super) async fn before(&self, bench: &Bench<'_>) -> Result<Before> {
        let requests = ApiRequests::read(&bench.client).await?;
        Ok(Before { requests, cpu: bench.meter.read()?, writes: self.history.count() })
    }

    /// The figures of a restart that lasted from `start` to `end`; waits until the JobSet has settled.
    pub(super) async fn restarted(
        &self,
        bench: &Bench<'_>,
        before: &Before,
        phases: Phases,
        (start, end): (Instant, Instant),
        cpu: CpuSeconds,
    ) -> Result<Restart> {
        self.history.settled(bench.limit).await?;
        let requests = ApiRequests::read(&bench.client).await?.since(&before.requests);
        Ok(Restart {
            seconds: seconds(end.saturating_duration_since(start)),
            phases,
            api_requests: requests.total(),
            jobset_writes: self.history.count() - before.writes,
            requests,
            cpu,
            failed_reports: 0,
        })
    }

    pub(super) fn figures(bench: &Bench<'_>, restarts: Vec<Restart>) -> Result<CaseFigures> {
        let controller_peak_rss_kib = peak_rss_kib(bench.controller)?;
        Ok(CaseFigures { case: bench.case, restarts, controller_peak_rss_kib, stream: None, go: None })
    }
}

impl Before {
    /// CPU time since then.
    pub(super) fn cpu(&self, bench: &Bench<'_>) -> Result<CpuSeconds> {
        Ok(bench.meter.read()?.since(&self.cpu))
    }
}
