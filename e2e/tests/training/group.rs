//! The JobSet of the example, as it stands in its folder: nothing is changed but the image, the back-off between restarts,
//! and where the workers write their log, which the test reads from the host.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jobset_api::{JobSet, JobSetStatus, labels};
use jobset_harness::cluster::Cluster;
use jobset_harness::install;
use jobset_harness::process::{self, Process};
use jobset_harness::training::{IMAGE, sources};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::Workload;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::log::{self, Line, Log, WORKERS};

/// How long the training may take to get to a step, or to its end.
const LIMIT: Duration = Duration::from_mins(5);
/// The image in the manifest.
const PUBLISHED: &str = "registry.example.com/training:1";
/// Name of the JobSet.
const NAME: &str = "training";

/// A training that runs.
pub(super) struct Group {
    jobsets: Api<JobSet>,
    pods: Api<Pod>,
    folder: PathBuf,
    /// Name and UID of each Pod, by rank.
    workers: BTreeMap<usize, (String, String)>,
}

impl Group {
    /// Applies the manifest with this kind of agent in a new namespace, and waits until all workers have made a step.
    pub(super) async fn start(cluster: &Cluster, namespace: &str, shape: &str) -> Result<Self> {
        let client = cluster.client();
        install::create_namespace(&client, namespace).await?;
        let folder = cluster.shared_dir().join("training").join(namespace);
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777))?;
        let manifest = std::fs::read_to_string(sources().join("jobset.yaml"))?.replace(PUBLISHED, IMAGE);
        let no_waits = json!({"initialSeconds": 0, "stableSeconds": 0});
        let workload = Workload(serde_yaml_ng::from_str(&manifest)?).injected(shape).with_backoff(no_waits);
        let mut workload = workload;
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
    pub(super) async fn wait_for(&self, rank: usize, epoch: i32, step: usize) -> Result<Line> {
        wait::until_met(LIMIT, format!("step {step} of worker {rank} in epoch {epoch}"), || async {
            let newest = log::newest(&self.folder, rank)?;
            let done = newest.clone().filter(|line| line.is_step() && line.epoch == epoch && line.step >= step);
            match done {
                Some(line) => Ok(Check::Met(line)),
                None => Ok(Check::Unmet(format!("{newest:?}, {:?}", self.status().await?))),
            }
        })
        .await
    }

    /// The process of a worker in an epoch.
    pub(super) fn process(&self, rank: usize, epoch: i32) -> Result<Process> {
        let (_, uid) = self.workers.get(&rank).with_context(|| format!("there is no worker {rank}"))?;
        process::find_one("python3", &[("POD_UID", uid), ("JOBSET_EPOCH", &epoch.to_string())])
    }

    /// Name of the Pod of a worker.
    pub(super) fn pod(&self, rank: usize) -> &str {
        self.workers.get(&rank).map_or("", |(name, _)| name)
    }

    pub(super) async fn status(&self) -> Result<JobSetStatus> {
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
