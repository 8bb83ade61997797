//! One JobSet under measurement, from its creation to its figures, whatever its strategy.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jobset_api::JobSet;
use kube::api::PostParams;
use kube::core::Request;
use kube::{Api, Client, Config, ResourceExt};
use serde::Deserialize;

use super::case::{Case, Options, Strategy};
use super::history::History;
use super::jobset::{NAME, NAMESPACE, Shape, manifest, shape};
use super::meter::{Cpu, Meter, Reading};
use super::phases::Phases;
use super::pods::Census;
use super::report::{Report, Restart, seconds};
use super::requests::Requests;
use jobset_harness::progress::progress;

/// A control plane with a controller, and what is to be measured on it.
pub(super) struct Bench<'a> {
    pub(super) options: &'a Options,
    pub(super) case: Case,
    pub(super) config: Config,
    pub(super) client: Client,
    pub(super) meter: Meter,
    /// The longest wait for anything that concerns all Pods.
    pub(super) limit: Duration,
}

/// The JobSet.
pub(super) struct Group {
    pub(super) uid: String,
    pub(super) shape: Vec<Shape>,
    pub(super) history: History,
}

/// What was counted before a restart.
pub(super) struct Before {
    requests: Requests,
    reading: Reading,
    /// Writes to the JobSet.
    pub(super) writes: usize,
}

/// One object with nothing but its size.
#[derive(Deserialize)]
struct Listed {
    items: Vec<serde_json::Value>,
}

impl Group {
    /// Creates the JobSet, and waits for its Pods.
    ///
    /// # Errors
    /// If it is refused, or not all Pods exist in time.
    pub(super) async fn create(bench: &Bench<'_>) -> Result<(Self, Census)> {
        let (count, shape) = (bench.case.agents, shape(bench.case.agents));
        let start = Instant::now();
        let jobset: JobSet = serde_json::from_value(manifest(&shape, bench.case.strategy)?)?;
        let jobsets: Api<JobSet> = Api::namespaced(bench.client.clone(), NAMESPACE);
        let jobset = jobsets.create(&PostParams::default(), &jobset).await.context("the JobSet is refused")?;
        let version = jobset.resource_version().context("the JobSet has no resourceVersion")?;
        let history = History::after(bench.client.clone(), NAMESPACE, NAME, version);
        let census = Census::start(&bench.client);
        census.complete(0, count, bench.limit).await?;
        history.settled(bench.limit).await?;
        progress(&format!("{count} Pods created ({:.1} s)", start.elapsed().as_secs_f64()));
        let uid = jobset.uid().context("the JobSet has no UID")?;
        Ok((Self { uid, shape, history }, census))
    }

    /// Reads what has been counted so far. The API server's own figures come first: they cost it CPU.
    ///
    /// # Errors
    /// If a process has ended, or the API server does not answer.
    pub(super) async fn before(&self, bench: &Bench<'_>) -> Result<Before> {
        let requests = bench.meter.requests().await?;
        Ok(Before { requests, reading: bench.meter.read()?, writes: self.history.count() })
    }

    /// One restart that has ended, from its instants; waits until the JobSet has settled.
    ///
    /// # Errors
    /// If it does not settle, or cannot be measured.
    pub(super) async fn restarted(
        &self,
        bench: &Bench<'_>,
        before: &Before,
        phases: Phases,
        (start, end): (Instant, Instant),
        cpu: Cpu,
    ) -> Result<Restart> {
        self.history.settled(bench.limit).await?;
        let whole = bench.meter.read()?.since(&before.reading);
        let requests = bench.meter.requests().await?.since(&before.requests);
        Ok(Restart {
            seconds: seconds(end.saturating_duration_since(start)),
            phases,
            api_requests: requests.total(),
            jobset_writes: self.history.count() - before.writes,
            controller_cpu_seconds: whole.controller,
            apiserver_cpu_seconds: whole.api_server,
            requests,
            cpu,
            failed_reports: 0,
        })
    }

    /// The result of the case.
    ///
    /// # Errors
    /// If a figure cannot be read.
    pub(super) async fn report(self, bench: &Bench<'_>, restarts: Vec<Restart>) -> Result<Report> {
        let (load, watch) = match bench.case.strategy {
            Strategy::InPlace { load, watch } => (Some(load), Some(watch)),
            Strategy::Recreate => (None, None),
        };
        let text = async |path: String| {
            let request = http::Request::get(path).body(Vec::new()).context("not a request")?;
            bench.client.request_text(request).await.context("reading back what was created")
        };
        let jobset = text(format!("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets/{NAME}")).await?;
        let selector =
            kube::api::ListParams::default().labels(&format!("jobset.sigs.k8s.io/jobset-name={NAME}")).limit(1);
        let one = Request::new(format!("/api/v1/namespaces/{NAMESPACE}/pods")).list(&selector)?;
        let pods: Listed = bench.client.request(one).await.context("reading back a Pod")?;
        Ok(Report {
            case: bench.case,
            agents: bench.case.agents,
            strategy: bench.case.strategy.name(),
            load,
            watch,
            shape: self.shape,
            restarts,
            controller_peak_rss_kib: bench.meter.controller_peak_rss_kib()?,
            cpu_us_per_event: None,
            pod_events: None,
            start_seconds: None,
            pod_bytes: pods.items.first().context("the JobSet has no Pod")?.to_string().len(),
            jobset_bytes: jobset.len(),
            connections: None,
            agent_seats: None,
            foreign_pods: bench.case.foreign_pods,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            ratio_to_bare: None,
        })
    }
}

impl Before {
    /// CPU of everybody since then.
    ///
    /// # Errors
    /// If a process has ended.
    pub(super) fn cpu(&self, meter: &Meter) -> Result<Cpu> {
        Ok(meter.read()?.since(&self.reading))
    }
}
