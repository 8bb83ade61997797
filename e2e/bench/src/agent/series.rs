//! JobSets of four workers, one of which fails again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::ResourceExt;

use super::footprint::Footprint;
use super::mode::{Case, Mode};
use super::phases::{Phases, Seen};
use super::report::{Restart, Row, Series};
use super::requests::{self, Request};
use crate::history::History;
use crate::report::rounded;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT, Worker, Workers};
use jobset_harness::journal::{self, Entry, now};
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Seen as Looked};
use jobset_harness::workload::{RECREATE, is_ready};

/// Failures in a row of the same worker, each as soon as all run again.
const IN_A_ROW: usize = 5;
/// A kubelet looks at its Pods once a second: failures at equal distances could all fall into the same part of it.
const KUBELET_PERIOD: Duration = Duration::from_secs(1);

/// What was measured of a case.
#[derive(Default)]
pub(super) struct Measured {
    /// Failures at random times, of one worker after the other.
    pub(super) restarts: Series,
    /// Then failures of the same worker, in place.
    pub(super) in_a_row: Option<Row>,
    /// The agents after all of them; the most that any took.
    pub(super) footprint: Footprint,
}

/// One failure, as it was seen. Times are seconds since 1970.
#[derive(Clone, Debug)]
struct Failure {
    exited: f64,
    started: f64,
    /// When the JobSet was seen with `deprecatedEpoch` and with `syncedEpoch` raised, if it restarts in place.
    deprecated: Option<f64>,
    synced: Option<f64>,
}

/// Lets workers fail, and says how long each time took until all ran again.
///
/// # Errors
/// If anything does not happen in time, or a worker starts more often than once.
pub(super) async fn measure(cluster: &Cluster, case: Case, restarts: usize) -> Result<Measured> {
    let mut measured = Measured::default();
    for number in 1.. {
        let left = restarts - measured.restarts.0.len();
        let of_this = case.restarts_of_a_group().min(left);
        let one = Running::start(cluster, case, &format!("{}-{number}", case.name)).await?;
        one.measure(cluster, &mut measured, of_this, of_this == left).await?;
        progress(&format!("{} of {restarts} restarts", measured.restarts.0.len()));
        if of_this == left {
            break;
        }
    }
    Ok(measured)
}

/// A JobSet, its history, and a clock that both the workers and this process read.
struct Running {
    case: Case,
    group: Group,
    history: History,
    clock: Clock,
}

impl Running {
    async fn start(cluster: &Cluster, case: Case, namespace: &str) -> Result<Self> {
        let group = Group::apply(cluster, namespace, RECREATE, |workload| case.of(workload)).await?;
        let jobset = group.jobsets.get(&group.name).await?;
        let version = jobset.resource_version().context("the JobSet has no resourceVersion")?;
        let history = History::after(group.client.clone(), &group.namespace, &group.name, version);
        Ok(Self { case, group, history, clock: Clock::start() })
    }

    /// Adds what so many restarts took, and failures in a row if this is the last group, and removes the JobSet.
    async fn measure(self, cluster: &Cluster, to: &mut Measured, restarts: usize, is_last: bool) -> Result<()> {
        let mut workers = self.run(0, 0.0).await?;
        let nodes = on_nodes(&workers);
        ensure!(nodes.len() == cluster.nodes().len(), "the workers are not on all nodes: {nodes:?}");
        let (mut failures, mut in_a_row) = (Vec::new(), Vec::new());
        for number in 0..restarts {
            tokio::time::sleep(KUBELET_PERIOD.mul_f64(fastrand::f64())).await;
            let failure;
            (workers, failure) = self.fail(&workers, number % workers.len(), number + 1).await?;
            failures.push(failure);
        }
        let in_place = self.case.mode != Mode::Recreate;
        if is_last && in_place && !self.case.ignores_sigterm {
            for number in 0..IN_A_ROW {
                let failure;
                (workers, failure) = self.fail(&workers, 0, restarts + number + 1).await?;
                in_a_row.push(failure);
            }
        }
        if in_place {
            to.footprint = to.footprint.max(Footprint::of_agents(&self.group)?);
        }
        let log = std::fs::read_to_string(cluster.dir().join("logs/audit.log")).context("cannot read the audit log")?;
        let requests = requests::of_agents(&log, &self.group.namespace)?;
        let end = in_a_row.first().map_or(f64::INFINITY, |next| next.exited);
        to.restarts.0.extend(summary(self.case.mode, &failures, end, &requests));
        to.in_a_row = row(&in_a_row);
        self.group.remove().await
    }

    /// Tells one worker to end, and waits until all run again after so many restarts.
    async fn fail(&self, workers: &Workers, index: usize, restarts: usize) -> Result<(Workers, Failure)> {
        let victim = workers.values().nth(index).context("no worker")?;
        let asked = now();
        self.group.exit(victim, 1).await?;
        let exited = self.exited(victim, asked).await?;
        let workers = self.run(restarts, exited).await.with_context(|| format!("restart {restarts}"))?;
        let started = last_start(&self.group.journal()?, exited, self.group.workers)?;
        let epoch = i32::try_from(restarts)?;
        let seen = |when: Option<Instant>| when.map(|at| self.clock.time(at));
        let deprecated = seen(self.history.first(0, |status| status.deprecated_epoch >= epoch));
        let synced = seen(self.history.first(0, |status| status.synced_epoch > epoch));
        Ok((workers, Failure { exited, started, deprecated, synced }))
    }

    /// When a worker wrote down that it ends.
    async fn exited(&self, victim: &Worker, asked: f64) -> Result<f64> {
        wait::until(LIMIT, format!("the last words of {}", victim.pod), || async {
            let entries = self.group.journal()?;
            let exit = journal::last_exit(&entries, &victim.pod).map(|exit| exit.time);
            // The journal's times are rounded to milliseconds.
            Ok(exit.filter(|exit| *exit >= asked - 0.001))
        })
        .await
    }

    /// Waits until all workers run after so many restarts, the last one caused by this exit.
    async fn run(&self, restarts: usize, exited: f64) -> Result<Workers> {
        let restarts = i32::try_from(restarts)?;
        if self.case.mode != Mode::Recreate {
            return self.group.runs_in_epoch(restarts + 1).await;
        }
        let all = self.group.workers;
        wait::until_seen(LIMIT, format!("{all} workers of {}", self.group.namespace), || async {
            let seen = self.group.status().await?.restarts;
            let pods = self.group.live_pods().await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            let started = journal::starts_after(&self.group.journal()?, exited).len();
            let run = seen == restarts && [pods.len(), ready, started] == [all; 3];
            let state = || format!("{seen} restarts, {} Pods, {ready} ready, {started} workers started", pods.len());
            Ok(if run { Looked::Yes(()) } else { Looked::NotYet(state()) })
        })
        .await?;
        self.group.workers().await
    }
}

/// Two clocks read at once: this process takes instants, the workers and the API server write times.
struct Clock {
    instant: Instant,
    time: f64,
}

impl Clock {
    fn start() -> Self {
        Self { instant: Instant::now(), time: now() }
    }

    /// Seconds since 1970 at an instant after the start.
    fn time(&self, at: Instant) -> f64 {
        self.time + at.saturating_duration_since(self.instant).as_secs_f64()
    }
}

/// How many workers each node has.
fn on_nodes(workers: &Workers) -> BTreeMap<&str, usize> {
    let mut nodes = BTreeMap::new();
    for worker in workers.values() {
        *nodes.entry(worker.node.as_str()).or_default() += 1;
    }
    nodes
}

/// The last start after an exit, when each of so many workers has started once.
fn last_start(entries: &[Entry], exited: f64, workers: usize) -> Result<f64> {
    let starts = journal::starts_after(entries, exited);
    match starts.last() {
        Some(last) if starts.len() == workers => Ok(last.time),
        _ => bail!("workers have started {} times instead of {workers}", starts.len()),
    }
}

/// Each restart, with what agents asked for until the next failure, the last one's at `end`.
fn summary(mode: Mode, failures: &[Failure], end: f64, requests: &[Request]) -> Vec<Restart> {
    let ends = failures.iter().skip(1).map(|next| next.exited).chain([end]);
    let restart = |(failure, end): (&Failure, f64)| {
        let time = failure.exited..end;
        let seen = match (mode, failure.deprecated, failure.synced) {
            (Mode::Sidecar, Some(deprecated), Some(synced)) => {
                Some(Seen { time: time.clone(), deprecated, synced, started: failure.started })
            }
            _ => None,
        };
        Restart {
            seconds: duration(failure),
            requests: requests::most_of_an_agent(requests, &time),
            phases: seen.and_then(|seen| Phases::of(&seen, requests)),
        }
    };
    failures.iter().zip(ends).map(restart).collect()
}

/// Failures in a row, if there were any.
fn row(failures: &[Failure]) -> Option<Row> {
    let (first, last) = (failures.first()?, failures.last()?);
    Some(Row {
        seconds: failures.iter().map(duration).collect(),
        within_seconds: rounded(last.started - first.exited, 1e3),
    })
}

/// From the worker's exit to the last worker's start, in seconds, to a millisecond: what the workers' clocks are read to.
fn duration(failure: &Failure) -> f64 {
    rounded(failure.started - failure.exited, 1e3)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn start(time: f64) -> Entry {
        serde_json::from_value(serde_json::json!({"event": "start", "time": time, "pod": "a", "uid": "1"})).unwrap()
    }

    #[rstest]
    #[case::all(&[1.0, 5.0, 6.0], Some(6.0))]
    #[case::one_is_missing(&[1.0, 5.0], None)]
    #[case::one_started_twice(&[1.0, 5.0, 6.0, 7.0], None)]
    fn each_worker_has_to_start_once(#[case] starts: &[f64], #[case] wanted: Option<f64>) {
        let entries: Vec<Entry> = starts.iter().copied().map(start).collect();
        assert_eq!(last_start(&entries, 4.0, 2).ok(), wanted);
    }

    fn failure(exited: f64, started: f64) -> Failure {
        Failure { exited, started, deprecated: Some(exited + 0.1), synced: Some(exited + 0.3) }
    }

    #[test]
    fn requests_count_until_the_next_failure() {
        let request = |received, verb: &str| Request {
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
        let restarts = summary(Mode::Sidecar, &failures, 30.0, &requests);
        let figures: Vec<_> = restarts.iter().map(|it| (it.seconds, it.requests)).collect();
        assert_eq!(figures, [(2.5, 2), (1.0, 1)]);
        let phases = restarts[0].phases.unwrap().named();
        let phases: Vec<f64> = phases.into_iter().map(|(_, seconds)| rounded(seconds, 1e3)).collect();
        assert_eq!(phases, [0.1, 0.1, 0.0, 0.05, 0.05, 2.2]);
        assert_eq!(restarts[1].phases, None, "no agent has begun anew");
        assert!(summary(Mode::Supervisor, &failures, 30.0, &requests).iter().all(|it| it.phases.is_none()));
    }

    #[test]
    fn a_row_lasts_from_its_first_exit_to_its_last_start() {
        let wanted = Row { seconds: vec![2.0, 3.123], within_seconds: 13.123 };
        assert_eq!(row(&[failure(10.0, 12.0), failure(20.0, 23.123_4)]), Some(wanted));
        assert_eq!(row(&[]), None);
    }

    #[test]
    fn the_clock_goes_on_from_its_start() {
        let begun = Instant::now();
        let clock = Clock { instant: begun + Duration::from_secs(9), time: 100.0 };
        let times: Vec<f64> = [7, 9, 12].map(|after| clock.time(begun + Duration::from_secs(after))).into();
        assert_eq!(times, [100.0, 100.0, 103.0]);
    }

    #[test]
    fn workers_are_counted_by_their_nodes() {
        let worker = |index: usize, node: &str| {
            let worker = Worker {
                pod: format!("pod-{index}"),
                uid: "1".into(),
                node: node.into(),
                ip: String::new(),
                starts: 1,
            };
            (("0".to_owned(), index.to_string()), worker)
        };
        let workers = [worker(0, "a"), worker(1, "b"), worker(2, "a")].into_iter().collect();
        assert_eq!(on_nodes(&workers), BTreeMap::from([("a", 2), ("b", 1)]));
    }
}
