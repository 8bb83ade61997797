//! Partial Pods.

use k8s_openapi::api::core::v1::{ContainerRestartRule, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;

use crate::affinity::PartialAffinity;
use crate::condition::{self, PartialCondition};
use crate::kept::CompactMap;
use crate::metadata;

/// Finalizer by which the Job controller keeps a Pod until it has counted its end.
pub const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Condition of a Pod whose containers the kubelet restarts, all of them.
pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
/// Reason of a container that was ended only because another restarted the whole Pod. The true exit code is lost.
pub const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";

/// The fields of a Pod that the programs read.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = Pod)]
pub struct PartialPod {
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PartialPodSpec,
    /// Status. The kubelet writes it.
    #[serde(default)]
    pub status: PartialPodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialPodSpec {
    /// Node that the Pod is bound to. The scheduler sets it.
    pub node_name: Option<String>,
    /// Name of the ServiceAccount whose token the containers have.
    pub service_account_name: String,
    /// `Always`, `OnFailure` or `Never`.
    pub restart_policy: String,
    pub node_selector: CompactMap,
    pub affinity: PartialAffinity,
    pub containers: Vec<PartialContainer>,
    /// Init containers, sidecars included.
    pub init_containers: Vec<PartialContainer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialContainer {
    pub name: String,
    /// `Always` makes a sidecar of an init container.
    pub restart_policy: Option<String>,
    /// Rules by which an exit restarts the container or the whole Pod (KEP-5532).
    pub restart_policy_rules: Vec<ContainerRestartRule>,
}

impl PartialContainer {
    /// Whether an init container is a sidecar: one that always restarts, and runs beside the main containers.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialPodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// Why the Pod as a whole failed, such as `Evicted`.
    pub reason: String,
    pub message: String,
    pub conditions: Vec<PartialCondition>,
    pub init_container_statuses: Vec<PartialContainerStatus>,
    pub container_statuses: Vec<PartialContainerStatus>,
}

/// Status of a container, as the kubelet reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialContainerStatus {
    pub name: String,
    /// Identity of the container's current run.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// Whether the container passes its readiness probe.
    pub ready: bool,
    /// Whether the container has passed its startup probe. A sidecar that has not delays the containers after it.
    pub started: Option<bool>,
    pub restart_count: i32,
    pub state: ContainerState,
    pub last_state: ContainerState,
}

/// State of a container. At most one field is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub waiting: Option<ContainerWaiting>,
    pub running: Option<ContainerRunning>,
    pub terminated: Option<ContainerTerminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerWaiting {
    /// Reason in one word, such as `ImagePullBackOff`.
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRunning {
    pub started_at: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerTerminated {
    pub exit_code: i32,
    /// Reason in one word, such as `Error` or `OOMKilled`.
    pub reason: String,
    /// Termination message that the container wrote.
    pub message: String,
    /// When the container started. Absent if the kubelet has no record of a run.
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
}

impl PartialPod {
    /// Whether the Pod has succeeded or failed.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub fn condition(&self, type_: &str) -> Option<&PartialCondition> {
        condition::find(&self.status.conditions, type_)
    }

    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(PartialCondition::is_true)
    }

    /// The first finalizer that is not the Job controller's.
    pub fn foreign_finalizer(&self) -> Option<&str> {
        self.finalizers().iter().map(String::as_str).find(|finalizer| *finalizer != JOB_TRACKING)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_without_status_reads_defaults() {
        let pod: PartialPod = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!((pod.metadata.name.as_deref(), pod.is_ready(), pod.spec.containers.len()), (Some("a"), false, 0));
    }

    #[test]
    fn pod_unknown_fields_are_skipped() {
        let pod = json!({
            "metadata": {"name": "a", "managedFields": [{"manager": "kubelet"}]},
            "spec": {"volumes": [{"name": "v"}], "containers": [{"name": "w", "image": "i"}]},
            "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}],
                       "containerStatuses": [{"name": "w", "containerID": "c1", "state": {"running": {}}}]},
        });
        let pod: PartialPod = serde_json::from_value(pod).unwrap();
        assert!(pod.metadata.managed_fields.is_none() && pod.is_ready());
        let status = &pod.status.container_statuses[0];
        assert_eq!((status.container_id.as_str(), status.state.running.is_some()), ("c1", true));
    }
}
