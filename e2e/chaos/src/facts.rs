//! The observed state of a group at one moment.

use anyhow::Result;
use jobset_api::{JobSetStatus, agent, labels};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use jobset_harness::group::{Group, restarts};
use jobset_harness::journal::Entry;
use jobset_harness::process;

/// Variable in the environment of all workers of a group: its [`mark`].
pub(super) const GROUP: &str = "CHAOS_GROUP";

/// What tells the workers of a group from all others on this machine, where others may also let faults happen.
pub(super) fn mark(namespace: &str) -> String {
    format!("{namespace}-{}", std::process::id())
}

#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) status: JobSetStatus,
    /// The Pods that have neither failed nor are being deleted, by slot.
    pub(super) pods: Vec<PodFacts>,
    pub(super) running: Vec<WorkerProcess>,
    /// What the workers wrote down, all of it.
    pub(super) entries: Vec<Entry>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodFacts {
    pub(super) slot: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) epoch: Option<i32>,
    /// How often the kubelet has restarted its worker's container.
    pub(super) restarts: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct WorkerProcess {
    pub(super) uid: String,
    pub(super) epoch: Option<i32>,
}

impl Facts {
    /// Looks at a group.
    pub(super) async fn of(group: &Group) -> Result<Self> {
        let status = group.status().await?;
        let mut pods: Vec<PodFacts> = group.live_pods().await?.iter().map(PodFacts::of).collect();
        pods.sort_by(|a, b| (&a.slot, &a.uid).cmp(&(&b.slot, &b.uid)));
        let workers = process::find("jobset-test-worker", &[(GROUP, &mark(&group.namespace))])?;
        let running = workers.iter().map(|worker| WorkerProcess {
            uid: worker.variable("POD_UID").unwrap_or_default().to_owned(),
            epoch: epoch(worker),
        });
        Ok(Self { status, pods, running: running.collect(), entries: group.journal()? })
    }

    /// When the last worker of the epoch that runs has started, in seconds since 1970.
    pub(super) fn last_start(&self) -> Option<f64> {
        let epoch = Some(self.status.synced_epoch);
        let starts = self.entries.iter().filter(|entry| entry.event == "start" && entry.epoch == epoch);
        starts.map(|entry| entry.time).max_by(f64::total_cmp)
    }
}

impl PodFacts {
    fn of(pod: &Pod) -> Self {
        let name = pod.name_any();
        Self {
            slot: slot(&name).to_owned(),
            uid: pod.uid().unwrap_or_default(),
            epoch: pod.annotations().get(labels::EPOCH).and_then(|epoch| epoch.parse().ok()),
            restarts: restarts(pod),
            name,
        }
    }
}

/// The slot of a Pod: its Job and completion index, which its name begins with. The Job controller adds a random end.
pub(super) fn slot(pod: &str) -> &str {
    pod.rsplit_once('-').map_or(pod, |(slot, _)| slot)
}

pub(super) fn epoch(worker: &process::Process) -> Option<i32> {
    worker.variable(agent::EPOCH)?.parse().ok()
}
