//! A running JobSet in a namespace of its own, and questions about it: what tests, benchmarks and the chaos program
//! know of a group of workers on real kubelets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jobset_api::{JobSet, JobSetStatus, labels};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};

use crate::cluster::Cluster;
use crate::install;
use crate::journal::{self, Entry};
use crate::order;
use crate::process::{self, Process, Signal};
use crate::wait::{self, Check};
use crate::workload::{WORKER_PORT, Workload, is_ready};

/// How long a change may take on a machine that runs all tests at once.
pub const LIMIT: Duration = Duration::from_mins(4);

#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    pub pod: String,
    pub uid: String,
    /// Node of the Pod; empty before it has one.
    pub node: String,
    /// Address of the Pod; empty before it has one.
    pub ip: String,
    /// How often its worker has started in this Pod.
    pub starts: usize,
}

/// A place for a worker: index of the Job in the JobSet, and completion index.
pub type Slot = (String, String);

pub type Workers = BTreeMap<Slot, Worker>;

pub struct Group {
    pub client: Client,
    /// Its namespace, which nobody else uses.
    pub namespace: String,
    pub name: String,
    pub workers: usize,
    pub pods: Api<Pod>,
    pub jobsets: Api<JobSet>,
    journals: PathBuf,
}

impl Group {
    /// Applies a manifest in a new namespace of a cluster on which the product is installed, after `change`.
    pub async fn apply(
        cluster: &Cluster,
        namespace: &str,
        manifest: &str,
        change: impl FnOnce(Workload) -> Workload,
    ) -> Result<Self> {
        install::create_namespace(&cluster.client(), namespace).await?;
        let workload = change(Workload::new(manifest, namespace, &cluster.shared_dir())?);
        let client = cluster.client();
        let jobsets: Api<JobSet> = Api::namespaced(client.clone(), namespace);
        let jobset: JobSet = serde_json::from_value(workload.0.clone())?;
        jobsets.create(&PostParams::default(), &jobset).await.context("the JobSet was rejected")?;
        Ok(Self::of(cluster, namespace, workload.name(), workload.pods()))
    }

    /// The JobSet of this name, which has this number of workers, and which others may have made.
    pub fn of(cluster: &Cluster, namespace: &str, name: &str, workers: usize) -> Self {
        let client = cluster.client();
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            workers,
            pods: Api::namespaced(client.clone(), namespace),
            jobsets: Api::namespaced(client.clone(), namespace),
            journals: cluster.shared_dir(),
            client,
        }
    }

    /// Waits until the epoch is synced and all workers run in it; the workers.
    pub async fn runs_in_epoch(&self, epoch: i32) -> Result<Workers> {
        wait::until_met(LIMIT, format!("{} workers of {} in epoch {epoch}", self.workers, self.namespace), || async {
            let synced = self.status().await?.synced_epoch;
            let pods = self.live_pods().await?;
            let epochs: Vec<_> = pods.iter().map(|pod| pod.annotations().get(labels::EPOCH).cloned()).collect();
            // A container runs before its worker does.
            let entries = self.journal()?;
            let restarts = |pod: &Pod| usize::try_from(restarts(pod)).unwrap_or(0);
            let begun = |pod: &&Pod| starts(&entries, pod) > restarts(pod) && has_started_in(&entries, pod, epoch);
            let ready = pods.iter().filter(|pod| is_ready(pod)).filter(begun).count();
            if synced != epoch || ready != self.workers || pods.len() != self.workers {
                return Ok(Check::Unmet(format!("syncedEpoch {synced}, {ready} Pods ready, epochs {epochs:?}")));
            }
            ensure!(epochs.iter().all(|observed| *observed == Some(epoch.to_string())), "epochs {epochs:?}");
            Ok(Check::Met(()))
        })
        .await?;
        self.workers().await
    }

    pub async fn workers(&self) -> Result<Workers> {
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
    pub async fn live_pods(&self) -> Result<Vec<Pod>> {
        let params = ListParams::default().labels(&format!("{}={}", labels::JOBSET_NAME, self.name));
        let mut pods = self.pods.list(&params).await?.items;
        let failed = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"));
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none() && !failed(pod));
        Ok(pods)
    }

    pub async fn status(&self) -> Result<JobSetStatus> {
        Ok(self.jobsets.get(&self.name).await?.status.unwrap_or_default())
    }

    /// What Events of this reason say about the JobSet.
    pub async fn events(&self, reason: &str) -> Result<Vec<String>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = events.list(&ListParams::default()).await?.items;
        Ok(all.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).filter_map(|it| it.note).collect())
    }

    /// Waits until the JobSet has finished; its status.
    pub async fn finished(&self) -> Result<JobSetStatus> {
        wait::until(LIMIT, format!("the end of {}", self.name), || async {
            let status = self.status().await?;
            Ok((!status.terminal_state.is_empty()).then_some(status))
        })
        .await
    }

    /// Deletes the JobSet, and waits until its Pods are gone.
    pub async fn remove(&self) -> Result<()> {
        self.jobsets.delete(&self.name, &DeleteParams::foreground()).await?;
        wait::until(LIMIT, format!("the end of {}", self.name), || async {
            Ok(self.jobsets.get_opt(&self.name).await?.is_none().then_some(()))
        })
        .await
    }

    /// What the workers wrote down.
    pub fn journal(&self) -> Result<Vec<Entry>> {
        journal::read(&self.journals, &self.namespace)
    }

    /// Makes the worker of a Pod end with this code.
    pub async fn exit(&self, worker: &Worker, code: u8) -> Result<()> {
        order::exit(&self.pods.get(&worker.pod).await?, WORKER_PORT, code).await
    }

    /// Makes the worker of a Pod end with this code, and to say this word before.
    pub async fn exit_saying(&self, worker: &Worker, code: u8, word: &str) -> Result<()> {
        order::exit_saying(&self.pods.get(&worker.pod).await?, WORKER_PORT, code, word).await
    }

    pub async fn get(&self, worker: &Worker, port: u16, path: &str) -> Result<String> {
        order::get(&self.pods.get(&worker.pod).await?, port, path).await
    }

    pub fn agent(&self, pod: &str) -> Result<Process> {
        process::find_one("jobset-agent", &[("POD_NAME", pod), ("NAMESPACE", &self.namespace)])
    }

    pub fn kill_agent(&self, worker: &Worker) -> Result<()> {
        self.agent(&worker.pod)?.signal(Signal::KILL).context("cannot kill an agent")
    }
}

/// How often the worker of a Pod has written down that it starts.
fn starts(entries: &[Entry], pod: &Pod) -> usize {
    let uid = pod.uid().unwrap_or_default();
    entries.iter().filter(|entry| entry.event == "start" && entry.uid == uid).count()
}

/// Whether the worker of a Pod has started in this epoch, by its environment. A worker without an epoch counts as started.
fn has_started_in(entries: &[Entry], pod: &Pod, epoch: i32) -> bool {
    let uid = pod.uid().unwrap_or_default();
    let last = entries.iter().rfind(|entry| entry.event == "start" && entry.uid == uid);
    last.is_some_and(|entry| entry.epoch.is_none_or(|known| known == epoch))
}

/// How often the kubelet has restarted the worker of a Pod.
pub fn restarts(pod: &Pod) -> i32 {
    let workers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    workers.iter().map(|worker| worker.restart_count).max().unwrap_or(0)
}
