//! JobSets of four workers, one of which fails again and again.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT, Workers};
use jobset_harness::journal::{self, Entry, now};
use jobset_harness::process;
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{RECREATE, is_ready};

use super::mode::{MeasuredMode, ModeCase};
use super::report::{AgentFigures, RestartSeries};
use super::requests;
use crate::meter;
use crate::report::rounded;

/// A kubelet syncs its Pods once a second: failures at equal distances could all fall into the same part of it.
const KUBELET_PERIOD: Duration = Duration::from_secs(1);

/// Lets workers fail, and adds how long each time took until all ran again.
pub(super) async fn measure(
    cluster: &Cluster,
    case: ModeCase,
    restarts: usize,
    figures: &mut AgentFigures,
) -> Result<()> {
    let mut series = RestartSeries::default();
    let is_in_place = case.mode != MeasuredMode::Recreate;
    while series.seconds.len() < restarts {
        let namespace = format!("{}-{}", case.name, series.seconds.len());
        let mut group = FailingGroup::start(cluster, &namespace, case).await?;
        for index in 0..case.restarts_of_a_group().min(restarts - series.seconds.len()) {
            let (exited, started) = group.fail_at_random(index).await?;
            let requests = requests::of_agents(cluster, &namespace)?;
            series.seconds.push(duration(exited, started));
            series.requests.push(requests::most_of_an_agent(&requests, exited));
        }
        progress(&format!("{} of {restarts} restarts", series.seconds.len()));
        if is_in_place {
            group.add_footprint(figures)?;
        }
        group.group.remove().await?;
    }
    progress(&format!("{}: {} s", case.name, series.median()));
    figures.restarts.insert(case.key(), series);
    Ok(())
}

/// A JobSet, and how often it has restarted.
pub(crate) struct FailingGroup {
    case: ModeCase,
    group: Group,
    restarts: i32,
}

impl FailingGroup {
    /// Creates the JobSet in a new namespace, and waits until its workers run on all nodes.
    pub(crate) async fn start(cluster: &Cluster, namespace: &str, case: ModeCase) -> Result<Self> {
        let group = Group::apply(cluster, namespace, RECREATE, |workload| case.of(workload)).await?;
        let group = Self { case, group, restarts: 0 };
        let workers = group.run(0.0).await?;
        let nodes: BTreeSet<&str> = workers.values().map(|worker| worker.node.as_str()).collect();
        ensure!(nodes.len() == cluster.nodes().len(), "the workers are on {nodes:?} alone");
        Ok(group)
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    /// Lets one worker end at a random time, and waits until all run again; when it exited, and when the last worker started.
    pub(crate) async fn fail_at_random(&mut self, index: usize) -> Result<(f64, f64)> {
        tokio::time::sleep(KUBELET_PERIOD.mul_f64(fastrand::f64())).await;
        let workers = self.group.workers().await?;
        let victim = workers.values().nth(index % workers.len()).context("no worker")?;
        let asked = now();
        self.group.exit(victim, 1).await?;
        let exited = wait::until(LIMIT, format!("the exit of {} in its journal", victim.pod), || async {
            let exit = journal::last_exit(&self.group.journal()?, &victim.pod).map(|exit| exit.time);
            // The journal's times are rounded to milliseconds.
            Ok(exit.filter(|exit| *exit >= asked - 0.001))
        })
        .await?;
        self.restarts += 1;
        self.run(exited).await.with_context(|| format!("restart {}", self.restarts))?;
        Ok((exited, last_start(&self.group.journal()?, exited, self.group.workers)?))
    }

    /// Waits until all workers run after the restarts so far, the last one caused by this exit.
    async fn run(&self, exited: f64) -> Result<Workers> {
        if self.case.mode != MeasuredMode::Recreate {
            return self.group.runs_in_epoch(self.restarts + 1).await;
        }
        let all = self.group.workers;
        wait::until_met(LIMIT, format!("{all} workers of {}", self.group.namespace), || async {
            let observed = self.group.status().await?.restarts;
            let pods = self.group.live_pods().await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            let started = journal::starts_after(&self.group.journal()?, exited).len();
            let run = observed == self.restarts && [pods.len(), ready, started] == [all; 3];
            let state =
                || format!("{observed} restarts, {} Pods, {ready} ready, {started} workers started", pods.len());
            Ok(if run { Check::Met(()) } else { Check::Unmet(state()) })
        })
        .await?;
        self.group.workers().await
    }

    /// Adds the most memory and threads that any agent of the group has now.
    fn add_footprint(&self, figures: &mut AgentFigures) -> Result<()> {
        let agents = process::find("jobset-agent", &[("NAMESPACE", &self.group.namespace)])?;
        ensure!(agents.len() == self.group.workers, "{} agents run for {} workers", agents.len(), self.group.workers);
        for agent in agents {
            let status = meter::status(agent.pid.as_raw_nonzero().get().try_into()?)?;
            figures.rss_kib = figures.rss_kib.max(status.vmrss.context("the agent has no VmRSS")?);
            figures.peak_rss_kib = figures.peak_rss_kib.max(status.vmhwm.context("the agent has no VmHWM")?);
            figures.threads = figures.threads.max(status.threads);
        }
        Ok(())
    }
}

/// The last start after an exit, when each of `workers` workers has started once.
fn last_start(entries: &[Entry], exited: f64, workers: usize) -> Result<f64> {
    let starts = journal::starts_after(entries, exited);
    match starts.last() {
        Some(last) if starts.len() == workers => Ok(last.time),
        _ => bail!("workers have started {} times instead of {workers}", starts.len()),
    }
}

/// Seconds from a worker's exit to a start, to a millisecond as in the journals.
pub(crate) fn duration(exited: f64, started: f64) -> f64 {
    rounded(started - exited, 1e3)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::all(&[1.0, 5.0, 6.0], Some(6.0))]
    #[case::one_is_missing(&[1.0, 5.0], None)]
    #[case::one_started_twice(&[1.0, 5.0, 6.0, 7.0], None)]
    fn last_start_each_worker_once_is_found(#[case] starts: &[f64], #[case] expected: Option<f64>) {
        let start = |time: &f64| serde_json::json!({"event": "start", "time": time, "pod": "a", "uid": "1"});
        let entries: Vec<Entry> = starts.iter().map(|time| serde_json::from_value(start(time)).unwrap()).collect();
        assert_eq!(last_start(&entries, 4.0, 2).ok(), expected);
    }
}
