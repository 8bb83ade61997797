//! Where the time of a sidecar group's restart goes: the steps of each restart, from the kubelets' logs, the JobSet's status and
//! the workers' journals.

mod kubelet_log;
mod steps;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use jobset_api::{JobSet, JobSetStatus};
use jobset_harness::cluster::Cluster;
use jobset_harness::group::Worker;
use jobset_harness::journal::{self, now};
use jobset_harness::progress::progress;
use kube::runtime::watcher::{self, Event};
use tokio_util::task::AbortOnDropHandle;

use self::kubelet_log::{PodIdentity, lines_about};
use self::steps::{LoggedPod, RestartTimes, RestartTrace, STEPS, steps, summary};
use super::failures::FailingGroup;
use super::mode::ModeCase;
use crate::observe::follow;

/// The kubelet's verbosity at which it logs each relist, each sync of a Pod and each probe.
const VERBOSITY: &str = "5";

/// Lets workers fail, and gives the table of the medians of all steps. Writes the steps of each restart as JSON, and what the
/// kubelet logged about the Pod whose worker started last.
pub(super) async fn measure(cluster: &Cluster, case: ModeCase, restarts: usize, results: &Path) -> Result<String> {
    for node in cluster.nodes() {
        set_verbosity(cluster, node).await.with_context(|| node.clone())?;
    }
    let (mut traces, mut logs) = (Vec::new(), Vec::new());
    while traces.len() < restarts {
        let namespace = format!("trace-{}", traces.len());
        let mut group = FailingGroup::start(cluster, &namespace, case).await?;
        for index in 0..case.restarts_of_a_group().min(restarts - traces.len()) {
            let (trace, logged) = restart(cluster, &mut group, index).await?;
            logs.push(format!("== restart {} ==\n{logged}", logs.len() + 1));
            let shown: Vec<String> = trace.seconds.iter().map(|second| format!("{second:.2}")).collect();
            progress(&format!("restart {}: {}", traces.len() + 1, shown.join(" ")));
            traces.push(trace);
        }
        group.group().remove().await?;
    }
    let json = serde_json::json!({"steps": STEPS, "restarts": traces});
    let files = [("agent-trace.json", serde_json::to_string_pretty(&json)? + "\n"), ("agent-trace.log", logs.concat())];
    let mut written = vec![summary(&traces)];
    for (name, text) in files {
        let path = results.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(format!("written: {}\n", path.display()));
    }
    Ok(written.concat())
}

/// Raises the verbosity of a node's kubelet while it runs.
async fn set_verbosity(cluster: &Cluster, node: &str) -> Result<()> {
    let path = format!("/api/v1/nodes/{node}/proxy/debug/flags/v");
    let request = http::Request::put(path).body(VERBOSITY.as_bytes().to_vec())?;
    let answer = cluster.client().request_text(request).await.context("cannot raise the kubelet's verbosity")?;
    ensure!(answer.contains("successfully"), "the kubelet answered {answer:?}");
    Ok(())
}

/// Lets one worker fail. Gives the steps of the restart, and the log about the Pod whose worker started last.
async fn restart(cluster: &Cluster, group: &mut FailingGroup, index: usize) -> Result<(RestartTrace, String)> {
    let logs = Logs::of(cluster)?;
    let changes = StatusChanges::follow(group);
    let workers = group.group().workers().await?;
    let before = group.group().status().await?;
    let (exited, started) = group.fail_at_random(index).await?;
    let entries = group.group().journal()?;
    let worker = |event: &str, time: f64| -> Result<&Worker> {
        let entry = entries.iter().rfind(|entry| entry.event == event && (entry.time - time).abs() < 0.001);
        let entry = entry.with_context(|| format!("no {event} at {time}"))?;
        workers.values().find(|worker| worker.uid == entry.uid).with_context(|| format!("no worker in {}", entry.pod))
    };
    let failed = worker("exit", exited)?;
    let starts = journal::starts_after(&entries, exited);
    let last = worker("start", starts.last().context("no worker started")?.time)?;
    let times = RestartTimes {
        exited,
        deprecated: changes.first("deprecatedEpoch", |status| status.deprecated_epoch > before.deprecated_epoch)?,
        synced: changes.first("syncedEpoch", |status| status.synced_epoch > before.synced_epoch)?,
        started,
    };
    let identity = |worker: &Worker| PodIdentity {
        uid: worker.uid.clone(),
        namespaced_name: format!("{}/{}", group.group().namespace, worker.pod),
    };
    let (failed_identity, last_identity) = (identity(failed), identity(last));
    let (failed_log, last_log) = (logs.since(&failed.node)?, logs.since(&last.node)?);
    let seconds = steps(
        times,
        LoggedPod { pod: &failed_identity, log: &failed_log },
        LoggedPod { pod: &last_identity, log: &last_log },
    )?;
    let (on_the_same_node, is_the_failed_pod) = (failed.node == last.node, failed.uid == last.uid);
    let logged = lines_about(&last_log, &last_identity, exited);
    Ok((RestartTrace { seconds, on_the_same_node, is_the_failed_pod }, logged))
}

/// The logs of all kubelets, from the start of a restart on.
struct Logs(BTreeMap<String, (PathBuf, usize)>);

impl Logs {
    fn of(cluster: &Cluster) -> Result<Self> {
        let log = |node: &String| {
            let path = cluster.dir().join(format!("logs/kubelet-{node}.log"));
            let length = std::fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?.len();
            Ok((node.clone(), (path, usize::try_from(length)?)))
        };
        cluster.nodes().iter().map(log).collect::<Result<_>>().map(Self)
    }

    /// What the kubelet of this node has written since then.
    fn since(&self, node: &str) -> Result<String> {
        let (path, from) = self.0.get(node).with_context(|| format!("no log of a kubelet of {node}"))?;
        let log = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(log.get(*from..).unwrap_or_default()).into_owned())
    }
}

/// When a watch has observed each status of a JobSet.
struct StatusChanges {
    observed: Arc<Mutex<Vec<(f64, JobSetStatus)>>>,
    _watch: AbortOnDropHandle<()>,
}

impl StatusChanges {
    fn follow(group: &FailingGroup) -> Self {
        let observed = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&observed);
        let watch = follow(group.group().jobsets.clone(), watcher::Config::default(), move |event: Event<JobSet>| {
            if let Event::Apply(jobset) | Event::InitApply(jobset) = event {
                let status = jobset.status.unwrap_or_default();
                noted.lock().unwrap_or_else(PoisonError::into_inner).push((now(), status));
            }
        });
        Self { observed, _watch: watch }
    }

    /// The time of the first status that fulfils the condition.
    fn first(&self, field: &str, is_it: impl Fn(&JobSetStatus) -> bool) -> Result<f64> {
        let observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        let found = observed.iter().find(|(_, status)| is_it(status)).map(|(time, _)| *time);
        found.with_context(|| format!("no watch event has raised {field}"))
    }
}
