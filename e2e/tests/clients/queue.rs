//! A cluster with Kueue, and questions about what it has admitted.

use anyhow::{Context, Result};
use jobset_e2e::clients::kueue;
use jobset_e2e::manifests;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::Group;
use jobset_harness::install::{self, kubectl};
use jobset_harness::workload::Workload;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::untyped;
use crate::kubelet::binaries;

/// Names of the queue that a JobSet asks for, and of the one behind it.
pub(super) const LOCAL_QUEUE: &str = "main";
pub(super) const CLUSTER_QUEUE: &str = "training";

/// What the label of a queue is called.
pub(super) const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// The label with the name of a priority.
pub(super) const PRIORITY: &str = "kueue.x-k8s.io/priority-class";

/// The flavors, each with the node that has its label.
pub(super) const FLAVORS: [&str; 2] = ["on-demand", "spot"];
/// The label that tells the flavors' nodes apart.
pub(super) const INSTANCE_TYPE: &str = "instance-type";

/// How soon Kueue evicts a JobSet whose Pods are not ready: at first, and once they have been.
const WAIT_FOR_PODS_READY: &str = "\nwaitForPodsReady:\n  timeout: 5m\n  recoveryTimeout: 30s\n";

/// A cluster on which the product and Kueue are installed, with a node for each flavor and a queue that has 2 CPUs of each.
pub(super) async fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start(FLAVORS.len()).await?;
    for (node, flavor) in cluster.nodes().iter().zip(FLAVORS) {
        kubectl(&cluster, &["label", "node", node, &format!("{INSTANCE_TYPE}={flavor}")]).await?;
    }
    install::install(&cluster, binaries().await?).await?;
    kueue::install(&cluster, &kueue::configuration(WAIT_FOR_PODS_READY)?).await?;
    let mut objects: Vec<Value> = FLAVORS.iter().map(|flavor| self::flavor(flavor)).collect();
    objects.push(queue_of_flavors([2, 2]));
    objects.extend([("low", 1), ("high", 100)].map(|(name, value)| {
        json!({"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})
    }));
    manifests::apply(&cluster, "queues.yaml", &objects).await?;
    Ok(cluster)
}

/// Group and version of Kueue's objects.
pub(super) const VERSION: &str = "kueue.x-k8s.io/v1beta2";

fn flavor(name: &str) -> Value {
    json!({
        "apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": name},
        "spec": {"nodeLabels": {INSTANCE_TYPE: name}},
    })
}

/// The queue, with so many CPUs of each of [`FLAVORS`].
fn queue_of_flavors(cpus: [u32; 2]) -> Value {
    cluster_queue(FLAVORS.into_iter().zip(cpus))
}

/// The queue, with so many CPUs of each flavor.
pub(super) fn cluster_queue<'a>(flavors: impl IntoIterator<Item = (&'a str, u32)>) -> Value {
    let flavors: Vec<Value> = flavors
        .into_iter()
        .map(|(flavor, cpus)| {
            // The injected agent requests memory, too.
            let resources = json!([{"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "4Gi"}]);
            json!({"name": flavor, "resources": resources})
        })
        .collect();
    json!({
        "apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": CLUSTER_QUEUE},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
        },
    })
}

/// Gives the queue so many CPUs of each flavor.
pub(super) async fn set_quota(cluster: &Cluster, cpus: [u32; 2]) -> Result<()> {
    manifests::apply(cluster, "quota.yaml", &[queue_of_flavors(cpus)]).await
}

/// Applies a JobSet with a queue in a new namespace.
pub(super) async fn apply(
    cluster: &Cluster,
    namespace: &str,
    manifest: &str,
    change: impl FnOnce(Workload) -> Workload,
) -> Result<Group> {
    let group = wait_for_queue(cluster, namespace, manifest, change).await?;
    open(cluster, namespace).await?;
    Ok(group)
}

/// Applies a JobSet in a new namespace, whose queue does not exist yet.
pub(super) async fn wait_for_queue(
    cluster: &Cluster,
    namespace: &str,
    manifest: &str,
    change: impl FnOnce(Workload) -> Workload,
) -> Result<Group> {
    let queued = |workload: Workload| change(workload).labelled(QUEUE_NAME, LOCAL_QUEUE).requesting_cpu("200m");
    Group::apply(cluster, namespace, manifest, queued).await
}

pub(super) async fn open(cluster: &Cluster, namespace: &str) -> Result<()> {
    let queue = json!({
        "apiVersion": VERSION, "kind": "LocalQueue", "metadata": {"name": LOCAL_QUEUE, "namespace": namespace},
        "spec": {"clusterQueue": CLUSTER_QUEUE},
    });
    manifests::apply(cluster, "local-queue.yaml", &[queue]).await
}

pub(super) fn workloads(group: &Group) -> Api<DynamicObject> {
    untyped(group.client.clone(), &group.namespace, "kueue.x-k8s.io", "v1beta2", "Workload")
}

/// What Kueue knows of a JobSet that has its namespace for itself.
pub(super) async fn workload(group: &Group) -> Result<DynamicObject> {
    let all = workloads(group).list(&ListParams::default()).await?.items;
    all.into_iter().next().with_context(|| format!("Kueue has no Workload in {}", group.namespace))
}

/// How often Kueue has evicted the JobSet, for any reason.
pub(super) fn evictions(workload: &DynamicObject) -> u64 {
    let all = workload.data["status"]["schedulingStats"]["evictions"].as_array();
    all.into_iter().flatten().filter_map(|eviction| eviction["count"].as_u64()).sum()
}

/// Has Kueue take the JobSet's admission back, or give it one again.
pub(super) async fn set_active(group: &Group, active: bool) -> Result<()> {
    let name = workload(group).await?.metadata.name.context("a Workload without a name")?;
    let patch = Patch::Merge(json!({"spec": {"active": active}}));
    workloads(group).patch(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}
