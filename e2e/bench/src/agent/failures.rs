//! JobSets of four workers, one of which fails again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT, Worker, Workers};
use jobset_harness::journal::{self, Entry, now};
use jobset_harness::process;
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{RECREATE, is_ready};

use super::mode::{MeasuredMode, ModeCase};
use super::phases;
use super::report::{AgentFigures, FailuresInARow, RestartSeries, key};
use super::requests::{self, AgentRequest};
use crate::history::History;
use crate::meter;
use crate::report::rounded;

/// Failures in a row of the same worker, each as soon as all run again.
const IN_A_ROW: usize = 5;
/// A kubelet syncs its Pods once a second: failures at equal distances could all fall into the same part of it.
const KUBELET_PERIOD: Duration = Duration::from_secs(1);

/// One failure. Times are seconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// The worker's exit.
    pub(super) exited: f64,
    /// The last worker's start.
    pub(super) started: f64,
    /// When `deprecatedEpoch` and `syncedEpoch` were raised, if the JobSet restarts in place.
    pub(super) deprecated: Option<f64>,
    pub(super) synced: Option<f64>,
}

/// Lets workers fail, and adds how long each time took until all ran again.
pub(super) async fn measure(
    cluster: &Cluster,
    case: ModeCase,
    restarts: usize,
    figures: &mut AgentFigures,
) -> Result<()> {
    let mut left = restarts;
    for number in 1.. {
        let of_this = case.restarts_of_a_group().min(left);
        left -= of_this;
        let group = FailingGroup::start(cluster, case, &format!("{}-{number}", case.name)).await?;
        group.measure(cluster, figures, of_this, left == 0).await?;
        progress(&format!("{} of {restarts} restarts", restarts - left));
        if left == 0 {
            break;
        }
    }
    Ok(())
}

/// A JobSet and its history.
struct FailingGroup {
    case: ModeCase,
    group: Group,
    history: History,
}

impl FailingGroup {
    async fn start(cluster: &Cluster, case: ModeCase, namespace: &str) -> Result<Self> {
        let group = Group::apply(cluster, namespace, RECREATE, |workload| case.of(workload)).await?;
        let history = History::follow(group.client.clone(), &group.namespace, &group.name);
        Ok(Self { case, group, history })
    }

    /// Adds `restarts` restarts, and failures in a row if this is the last group, and removes the JobSet.
    async fn measure(
        self,
        cluster: &Cluster,
        figures: &mut AgentFigures,
        restarts: usize,
        is_last: bool,
    ) -> Result<()> {
        let mut workers = self.run(0, 0.0).await?;
        let nodes = on_nodes(&workers);
        ensure!(nodes.len() == cluster.nodes().len(), "the workers are not on all nodes: {nodes:?}");
        let in_place = self.case.mode != MeasuredMode::Recreate;
        let in_a_row = if is_last && in_place && !self.case.ignores_sigterm { IN_A_ROW } else { 0 };
        let mut failures = Vec::new();
        for number in 0..restarts + in_a_row {
            let mut index = 0;
            if number < restarts {
                tokio::time::sleep(KUBELET_PERIOD.mul_f64(fastrand::f64())).await;
                index = number % workers.len();
            }
            let failure;
            (workers, failure) = self.fail(&workers, index, number + 1).await?;
            failures.push(failure);
        }
        if in_place {
            self.add_footprint(figures)?;
        }
        let log = std::fs::read_to_string(cluster.dir().join("logs/audit.log")).context("cannot read the audit log")?;
        let requests = requests::of_agents(&log, &self.group.namespace)?;
        let (failures, row) = failures.split_at(restarts);
        let end = row.first().map_or(f64::INFINITY, |next| next.exited);
        let series = figures.restarts.entry(key(self.case.name)).or_default();
        add_restarts(series, self.case.mode, failures, end, &requests);
        figures.in_a_row.extend(in_a_row_of(row).map(|row| (key(self.case.name), row)));
        self.group.remove().await
    }

    /// Lets one worker end, and waits until all run again after `restarts` restarts.
    async fn fail(&self, workers: &Workers, index: usize, restarts: usize) -> Result<(Workers, Failure)> {
        let victim = workers.values().nth(index).context("no worker")?;
        let asked = now();
        self.group.exit(victim, 1).await?;
        let exited = self.exited(victim, asked).await?;
        let workers = self.run(restarts, exited).await.with_context(|| format!("restart {restarts}"))?;
        let started = last_start(&self.group.journal()?, exited, self.group.workers)?;
        let epoch = i32::try_from(restarts)?;
        let time = |at: Option<Instant>| at.map(|at| now() - at.elapsed().as_secs_f64());
        let deprecated = time(self.history.first(0, |status| status.deprecated_epoch >= epoch));
        let synced = time(self.history.first(0, |status| status.synced_epoch > epoch));
        Ok((workers, Failure { exited, started, deprecated, synced }))
    }

    /// When a worker wrote into its journal that it ends.
    async fn exited(&self, victim: &Worker, asked: f64) -> Result<f64> {
        wait::until(LIMIT, format!("the exit of {} in its journal", victim.pod), || async {
            let entries = self.group.journal()?;
            let exit = journal::last_exit(&entries, &victim.pod).map(|exit| exit.time);
            // The journal's times are rounded to milliseconds.
            Ok(exit.filter(|exit| *exit >= asked - 0.001))
        })
        .await
    }

    /// Waits until all workers run after `restarts` restarts, the last one caused by this exit.
    async fn run(&self, restarts: usize, exited: f64) -> Result<Workers> {
        let restarts = i32::try_from(restarts)?;
        if self.case.mode != MeasuredMode::Recreate {
            return self.group.runs_in_epoch(restarts + 1).await;
        }
        let all = self.group.workers;
        wait::until_met(LIMIT, format!("{all} workers of {}", self.group.namespace), || async {
            let observed = self.group.status().await?.restarts;
            let pods = self.group.live_pods().await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            let started = journal::starts_after(&self.group.journal()?, exited).len();
            let run = observed == restarts && [pods.len(), ready, started] == [all; 3];
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

/// The number of workers on each node.
fn on_nodes(workers: &Workers) -> BTreeMap<&str, usize> {
    let mut nodes = BTreeMap::new();
    for worker in workers.values() {
        *nodes.entry(worker.node.as_str()).or_default() += 1;
    }
    nodes
}

/// The last start after an exit, when each of `workers` workers has started once.
fn last_start(entries: &[Entry], exited: f64, workers: usize) -> Result<f64> {
    let starts = journal::starts_after(entries, exited);
    match starts.last() {
        Some(last) if starts.len() == workers => Ok(last.time),
        _ => bail!("workers have started {} times instead of {workers}", starts.len()),
    }
}

/// Adds each restart, with the requests of agents until the next failure, the last one's at `end`.
fn add_restarts(
    series: &mut RestartSeries,
    mode: MeasuredMode,
    failures: &[Failure],
    end: f64,
    requests: &[AgentRequest],
) {
    let ends = failures.iter().skip(1).map(|next| next.exited).chain([end]);
    for (failure, end) in failures.iter().zip(ends) {
        let is_sidecar = mode == MeasuredMode::Sidecar;
        let phases = is_sidecar.then(|| phases::of_sidecars(failure, end, requests)).flatten();
        series.push(duration(failure), requests::most_of_an_agent(requests, &(failure.exited..end)), phases);
    }
}

/// Failures in a row, if there were any.
fn in_a_row_of(failures: &[Failure]) -> Option<FailuresInARow> {
    let (first, last) = (failures.first()?, failures.last()?);
    let within_seconds = rounded(last.started - first.exited, 1e3);
    Some(FailuresInARow { seconds: failures.iter().map(duration).collect(), within_seconds })
}

/// From the worker's exit to the last worker's start, in seconds, to a millisecond as in the journals.
fn duration(failure: &Failure) -> f64 {
    rounded(failure.started - failure.exited, 1e3)
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

    fn failure(exited: f64, started: f64) -> Failure {
        Failure { exited, started, deprecated: Some(exited + 0.1), synced: Some(exited + 0.3) }
    }

    #[test]
    fn requests_count_until_next_failure() {
        let request = |received, verb: &str| AgentRequest {
            pod: "a".into(),
            verb: verb.into(),
            received,
            ended: Some(received + 0.01),
        };
        let requests = [
            request(1.0, "patch"),
            request(10.19, "watch"),
            request(10.24, "patch"),
            request(20.5, "patch"),
            request(30.5, "patch"),
        ];
        let failures = [failure(10.0, 12.500_4), failure(20.0, 21.0)];
        let mut series = RestartSeries::default();
        add_restarts(&mut series, MeasuredMode::Sidecar, &failures, 30.0, &requests);
        assert_eq!((series.seconds, series.requests), (vec![2.5, 1.0], vec![2, 1]));
        let phases = series.phases.iter().map(|phases| phases.0.iter().map(|(_, took)| rounded(*took, 1e3)).collect());
        let phases: Vec<Vec<f64>> = phases.collect();
        assert_eq!(phases, [[0.1, 0.1, 0.0, 0.05, 0.05, 2.2]], "no agent has started after the second failure");
        let mut series = RestartSeries::default();
        add_restarts(&mut series, MeasuredMode::Supervisor, &failures, 30.0, &requests);
        assert_eq!(series.phases, []);
    }

    #[test]
    fn failures_in_a_row_last_from_first_exit_to_last_start() {
        let expected = FailuresInARow { seconds: vec![2.0, 3.123], within_seconds: 13.123 };
        assert_eq!(in_a_row_of(&[failure(10.0, 12.0), failure(20.0, 23.123_4)]), Some(expected));
        assert_eq!(in_a_row_of(&[]), None);
    }

    #[test]
    fn workers_are_counted_by_node() {
        let worker = |index: usize, node: &str| {
            let (pod, uid, node) = (format!("pod-{index}"), "1".into(), node.into());
            (("0".to_owned(), index.to_string()), Worker { pod, uid, node, ip: String::new(), starts: 1 })
        };
        let workers = [worker(0, "a"), worker(1, "b"), worker(2, "a")].into_iter().collect();
        assert_eq!(on_nodes(&workers), BTreeMap::from([("a", 2), ("b", 1)]));
    }
}
