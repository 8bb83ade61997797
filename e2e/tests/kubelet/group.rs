//! A running JobSet in a namespace of its own, and questions about it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jobset_api::{JobSet, JobSetStatus, labels};
use jobset_e2e::cluster::{self, Cluster};
use jobset_e2e::install::{self, install};
use jobset_e2e::journal::{self, Entry};
use jobset_e2e::order;
use jobset_e2e::process::{self, Signal};
use jobset_e2e::programs::rust_binaries;
use jobset_e2e::wait::{self, Seen};
use jobset_e2e::workload::{WORKER_PORT, Workload, is_ready};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use tokio::sync::{OnceCell, RwLock, RwLockWriteGuard};

/// How long a change may take on a machine that runs all tests at once.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);

/// Held by those who create JobSets, and alone by the test that takes the admission service away.
static ADMISSION: RwLock<()> = RwLock::const_new(());

/// One worker Pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Worker {
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) node: String,
    pub(crate) ip: String,
    /// How often its worker has started in this Pod.
    pub(crate) starts: usize,
}

/// The workers by slot: index of the Job in the JobSet, and completion index.
pub(crate) type Workers = BTreeMap<(String, String), Worker>;

/// A JobSet, applied.
pub(crate) struct Group {
    pub(crate) cluster: &'static Cluster,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) pods: Api<Pod>,
    pub(crate) jobsets: Api<JobSet>,
}

impl Group {
    /// Applies a manifest in a new namespace of the shared cluster, after `change`.
    pub(crate) async fn apply(
        namespace: &str,
        manifest: &str,
        change: impl FnOnce(Workload) -> Workload,
    ) -> Result<Self> {
        let cluster = installed().await?;
        install::namespace(cluster, namespace).await?;
        let workload = change(Workload::new(manifest, namespace, &cluster.shared_dir())?);
        let jobsets: Api<JobSet> = Api::namespaced(cluster.client(), namespace);
        let jobset: JobSet = serde_json::from_value(workload.0.clone())?;
        let _admission = ADMISSION.read().await;
        jobsets.create(&PostParams::default(), &jobset).await.context("the JobSet was refused")?;
        Ok(Self {
            cluster,
            namespace: namespace.to_owned(),
            name: workload.name().to_owned(),
            workers: workload.pods(),
            pods: Api::namespaced(cluster.client(), namespace),
            jobsets,
        })
    }

    /// As [`Group::apply`], and waits until all workers run in the first epoch.
    pub(crate) async fn start(
        namespace: &str,
        manifest: &str,
        change: impl FnOnce(Workload) -> Workload,
    ) -> Result<(Self, Workers)> {
        let group = Self::apply(namespace, manifest, change).await?;
        let workers = group.runs_in_epoch(1).await?;
        Ok((group, workers))
    }

    /// Waits until the epoch is synced and all workers run in it; the workers.
    pub(crate) async fn runs_in_epoch(&self, epoch: i32) -> Result<Workers> {
        wait::until_seen(LIMIT, format!("{} workers of {} in epoch {epoch}", self.workers, self.namespace), || async {
            let synced = self.status().await?.synced_epoch;
            let pods = self.live_pods().await?;
            let epochs: Vec<_> = pods.iter().map(|pod| pod.annotations().get(labels::EPOCH).cloned()).collect();
            // A container runs before its worker does.
            let entries = self.journal()?;
            let begun = |pod: &&Pod| starts(&entries, pod) > restarts(pod) && was_told(&entries, pod, epoch);
            let ready = pods.iter().filter(|pod| is_ready(pod)).filter(begun).count();
            if synced != epoch || ready != self.workers || pods.len() != self.workers {
                return Ok(Seen::NotYet(format!("syncedEpoch {synced}, {ready} Pods ready, epochs {epochs:?}")));
            }
            ensure!(epochs.iter().all(|seen| *seen == Some(epoch.to_string())), "epochs {epochs:?}");
            Ok(Seen::Yes(()))
        })
        .await?;
        self.workers().await
    }

    /// The workers, as they are.
    pub(crate) async fn workers(&self) -> Result<Workers> {
        let entries = self.journal()?;
        let worker = |pod: &Pod| Worker {
            pod: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            ip: pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default(),
            starts: starts(&entries, pod),
        };
        let slot = |pod: &Pod| {
            let label = |key: &str| pod.annotations().get(key).cloned().unwrap_or_default();
            (label(labels::JOB_GLOBAL_INDEX), label(labels::COMPLETION_INDEX))
        };
        Ok(self.live_pods().await?.iter().map(|pod| (slot(pod), worker(pod))).collect())
    }

    /// The Pods that are neither failed nor being deleted.
    pub(crate) async fn live_pods(&self) -> Result<Vec<Pod>> {
        let params = ListParams::default().labels(&format!("{}={}", labels::JOBSET_NAME, self.name));
        let mut pods = self.pods.list(&params).await?.items;
        let failed = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"));
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none() && !failed(pod));
        Ok(pods)
    }

    pub(crate) async fn status(&self) -> Result<JobSetStatus> {
        Ok(self.jobsets.get(&self.name).await?.status.unwrap_or_default())
    }

    /// What Events of this reason say about the JobSet.
    pub(crate) async fn events(&self, reason: &str) -> Result<Vec<String>> {
        let events: Api<Event> = Api::namespaced(self.cluster.client(), &self.namespace);
        let all = events.list(&ListParams::default()).await?.items;
        Ok(all.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).filter_map(|it| it.note).collect())
    }

    /// Waits until the JobSet has finished; its status.
    pub(crate) async fn finished(&self) -> Result<JobSetStatus> {
        wait::until(LIMIT, format!("the end of {}", self.name), || async {
            let status = self.status().await?;
            Ok((!status.terminal_state.is_empty()).then_some(status))
        })
        .await
    }

    /// What the workers wrote down.
    pub(crate) fn journal(&self) -> Result<Vec<Entry>> {
        journal::read(&self.cluster.shared_dir(), &self.namespace)
    }

    /// Keeps other tests from creating JobSets.
    pub(crate) async fn without_admission() -> RwLockWriteGuard<'static, ()> {
        ADMISSION.write().await
    }

    /// Tells the worker of a Pod to end with this code.
    pub(crate) async fn exit(&self, worker: &Worker, code: u8) -> Result<()> {
        order::exit(&self.pods.get(&worker.pod).await?, WORKER_PORT, code).await
    }

    /// Tells the worker of a Pod to end with this code, and to say this word before.
    pub(crate) async fn exit_saying(&self, worker: &Worker, code: u8, word: &str) -> Result<()> {
        order::exit_saying(&self.pods.get(&worker.pod).await?, WORKER_PORT, code, word).await
    }

    /// The answer of the worker of a Pod.
    pub(crate) async fn get(&self, worker: &Worker, port: u16, path: &str) -> Result<String> {
        order::get(&self.pods.get(&worker.pod).await?, port, path).await
    }

    /// Kills the agent process of a Pod.
    pub(crate) fn kill_agent(&self, worker: &Worker) -> Result<()> {
        let environment = [("POD_NAME", worker.pod.as_str()), ("NAMESPACE", &self.namespace)];
        process::signal("jobset-agent", &environment, Signal::KILL)
    }
}

/// How often the worker of a Pod has written down that it starts.
fn starts(entries: &[Entry], pod: &Pod) -> usize {
    let uid = pod.uid().unwrap_or_default();
    entries.iter().filter(|entry| entry.event == "start" && entry.uid == uid).count()
}

/// Whether the worker of a Pod has started in this epoch, by what it was told, if it was.
fn was_told(entries: &[Entry], pod: &Pod, epoch: i32) -> bool {
    let uid = pod.uid().unwrap_or_default();
    let last = entries.iter().rfind(|entry| entry.event == "start" && entry.uid == uid);
    last.is_some_and(|entry| entry.epoch.is_none_or(|told| told == epoch))
}

/// How often the kubelet has restarted the worker of a Pod.
fn restarts(pod: &Pod) -> usize {
    let workers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    workers.iter().map(|worker| usize::try_from(worker.restart_count).unwrap_or(0)).max().unwrap_or(0)
}

/// Asserts that every worker restarted in place, once.
pub(crate) fn assert_in_place(before: &Workers, after: &Workers) {
    let mut wanted = before.clone();
    for worker in wanted.values_mut() {
        worker.starts += 1;
    }
    assert_eq!(after, &wanted, "every Pod keeps UID, node and IP, and each worker starts exactly once more");
}

/// The shared cluster, with the product installed.
pub(super) async fn installed() -> Result<&'static Cluster> {
    static INSTALLED: OnceCell<Result<(), String>> = OnceCell::const_new();
    let cluster = cluster::shared().await?;
    let install = || async {
        let binaries = rust_binaries().await.map_err(|error| format!("{error:#}"))?;
        install(cluster, &binaries).await.map_err(|error| format!("{error:#}"))
    };
    if let Err(error) = INSTALLED.get_or_init(install).await {
        bail!("the product is not installed: {error}");
    }
    Ok(cluster)
}
