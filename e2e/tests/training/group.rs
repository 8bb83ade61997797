//! The JobSet of the example, as it stands in its folder: nothing is changed but the image, the back-off between restarts,
//! and where the workers write their log, which the test reads from the host.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jobset_api::{JobSet, JobSetStatus, conditions, labels};
use jobset_harness::cluster::Cluster;
use jobset_harness::install;
use jobset_harness::process::{self, Process};
use jobset_harness::training::{IMAGE, sources};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::Workload;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::log::{self, Line, Log, WORKERS};

/// How long the training may take to get to a step, or to its end.
const LIMIT: Duration = Duration::from_mins(5);
const PUBLISHED: &str = "registry.example.com/training:1";
pub(crate) const NAME: &str = "training";

pub(crate) struct Group {
    jobsets: Api<JobSet>,
    pods: Api<Pod>,
    folder: PathBuf,
    /// Name and UID of each Pod, by rank.
    workers: BTreeMap<usize, (String, String)>,
}

impl Group {
    /// Applies the manifest in a new namespace, after `change`, and waits until all workers have made a step.
    pub(crate) async fn start(
        cluster: &Cluster,
        namespace: &str,
        change: impl FnOnce(Workload) -> Workload,
    ) -> Result<Self> {
        let client = cluster.client();
        install::create_namespace(&client, namespace).await?;
        let folder = cluster.shared_dir().join("training").join(namespace);
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777))?;
        let manifest = std::fs::read_to_string(sources().join("jobset.yaml"))?.replace(PUBLISHED, IMAGE);
        let no_waits = json!({"initialSeconds": 0, "stableSeconds": 0});
        let mut workload = change(Workload(serde_yaml_ng::from_str(&manifest)?).with_backoff(no_waits));
        workload.each_pod(|pod| observe(pod, &folder));
        let jobsets: Api<JobSet> = Api::namespaced(client.clone(), namespace);
        let jobset: JobSet = serde_json::from_value(workload.0)?;
        jobsets.create(&PostParams::default(), &jobset).await.context("the JobSet was rejected")?;
        let mut group = Self { jobsets, pods: Api::namespaced(client, namespace), folder, workers: BTreeMap::new() };
        for rank in 0..WORKERS {
            group.wait_for(rank, 1, 1).await?;
        }
        group.workers = group.pods().await?;
        ensure!(group.workers.keys().copied().eq(0..WORKERS), "Pods {:?}", group.workers);
        Ok(group)
    }

    /// Waits until a worker has made this step, or a later one, in this epoch.
    pub(crate) async fn wait_for(&self, rank: usize, epoch: i32, step: usize) -> Result<Line> {
        wait::until_met(LIMIT, format!("step {step} of worker {rank} in epoch {epoch}"), || async {
            let last = log::last_step(&self.folder, rank)?;
            match last.clone().filter(|line| line.epoch == epoch && line.step >= step) {
                Some(line) => Ok(Check::Met(line)),
                None => Ok(Check::Unmet(format!("{last:?}, {:?}", self.status().await?))),
            }
        })
        .await
    }

    pub(crate) fn process(&self, rank: usize, epoch: i32) -> Result<Process> {
        let (_, uid) = self.workers.get(&rank).with_context(|| format!("there is no worker {rank}"))?;
        process::find_one("python3", &[("POD_UID", uid), ("JOBSET_EPOCH", &epoch.to_string())])
    }

    /// The last step that a worker has made, in this epoch.
    pub(crate) fn last_step(&self, rank: usize, epoch: i32) -> Result<Line> {
        let last = log::last_step(&self.folder, rank)?;
        last.filter(|line| line.epoch == epoch).with_context(|| format!("no step of worker {rank} in epoch {epoch}"))
    }

    /// Waits until the group is said to stall in an epoch; what the condition says.
    pub(crate) async fn stalled_in(&self, epoch: i32) -> Result<String> {
        let stalls = move |jobset: Option<&JobSet>| Some(stall(jobset?.status.as_ref()?, epoch)?.message.clone());
        let is_met = move |jobset: Option<&JobSet>| stalls(jobset).is_some();
        let jobset = await_condition(self.jobsets.clone(), NAME, is_met).await?;
        stalls(jobset.as_ref()).with_context(|| format!("{NAME} is gone"))
    }

    /// The worker that this verdict blames; `None`: nobody knows.
    pub(crate) fn blamed(&self, verdict: &str) -> Result<Option<usize>> {
        let is_blamed = |name: &str| verdict.contains(&format!(": Pod {name} on node "));
        let blamed = self.workers.iter().find(|(_, (name, _))| is_blamed(name)).map(|(rank, _)| *rank);
        ensure!(blamed.is_some() != verdict.contains(": unknown "), "it is no verdict: {verdict}");
        Ok(blamed)
    }

    /// Deletes the JobSet. Its Pods may still be ending.
    pub(crate) async fn remove(&self) -> Result<()> {
        self.jobsets.delete(NAME, &DeleteParams::background()).await.map(drop).context("cannot delete a training")
    }

    pub(super) fn pod(&self, rank: usize) -> &str {
        self.workers.get(&rank).map_or("", |(name, _)| name)
    }

    pub(crate) async fn status(&self) -> Result<JobSetStatus> {
        Ok(self.jobsets.get(NAME).await?.status.unwrap_or_default())
    }

    /// Fails unless the group has restarted so often, always in place, and each restart was counted.
    pub(super) async fn ensure_restarts(&self, restarts: usize) -> Result<JobSetStatus> {
        let (status, restarts) = (self.status().await?, i32::try_from(restarts)?);
        let observed = (status.group_restarts, status.restarts_count_towards_max, status.synced_epoch);
        ensure!(observed == (restarts, restarts, restarts + 1), "not {restarts} restarts: {status:?}");
        ensure!(self.pods().await? == self.workers, "other Pods: {:?}", self.workers);
        Ok(status)
    }

    /// Waits until the JobSet has completed, after so many restarts in place.
    pub(super) async fn finished(&self, restarts: usize) -> Result<(Log, JobSetStatus)> {
        wait::until_met(LIMIT, "the training to complete", || async {
            let status = self.status().await?;
            Ok(if status.terminal_state == "Completed" { Check::Met(()) } else { Check::Unmet(format!("{status:?}")) })
        })
        .await?;
        let status = self.ensure_restarts(restarts).await?;
        Ok((Log::read(&self.folder)?, status))
    }

    async fn pods(&self) -> Result<BTreeMap<usize, (String, String)>> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let worker = |pod: &Pod| {
            let index = pod.annotations().get(labels::COMPLETION_INDEX).and_then(|index| index.parse().ok());
            Ok((index.context("a Pod without index")?, (pod.name_any(), pod.uid().unwrap_or_default())))
        };
        pods.iter().map(worker).collect()
    }
}

/// The condition by which a group is said to stall in this epoch.
fn stall(status: &JobSetStatus, epoch: i32) -> Option<&Condition> {
    let is_met = |it: &&Condition| it.type_ == conditions::PROGRESS_STALLED && it.status == "True";
    status.conditions.iter().filter(|_| status.synced_epoch == epoch).find(is_met)
}

/// Has a worker write its log to the host, and its process say which Pod it belongs to.
fn observe(pod: &mut Value, folder: &std::path::Path) {
    let worker = &mut pod["containers"][0];
    if let Some(environment) = worker["env"].as_array_mut() {
        environment.push(json!({"name": "LOG_DIR", "value": "/log"}));
        environment.push(json!({"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}));
    }
    if let Some(mounts) = worker["volumeMounts"].as_array_mut() {
        mounts.push(json!({"name": "log", "mountPath": "/log"}));
    }
    if let Some(volumes) = pod["volumes"].as_array_mut() {
        volumes.push(json!({"name": "log", "hostPath": {"path": folder, "type": "Directory"}}));
    }
}
