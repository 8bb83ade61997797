//! Partial Pods.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

use crate::condition::{self, PartialCondition};
use crate::kept::CompactMap;
use crate::metadata;

/// The fields of a Pod that the programs read.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = Pod)]
pub struct PartialPod {
    /// Metadata as [`metadata`] reads it.
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// Specification.
    #[serde(default)]
    pub spec: PartialPodSpec,
    /// Status. The kubelet writes it.
    #[serde(default)]
    pub status: PartialPodStatus,
}

/// Fields of `spec` of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialPodSpec {
    /// Node that the Pod is bound to. The scheduler sets it.
    pub node_name: Option<String>,
    /// Name of the ServiceAccount whose token the containers have.
    pub service_account_name: String,
    /// `Always`, `OnFailure` or `Never`.
    pub restart_policy: String,
    /// Labels that the node must have.
    pub node_selector: CompactMap,
    /// Main containers.
    pub containers: Vec<PartialContainer>,
    /// Init containers, sidecars included.
    pub init_containers: Vec<PartialContainer>,
}

/// Fields of a container of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialContainer {
    /// Name of the container.
    pub name: String,
    /// `Always` makes a sidecar of an init container.
    pub restart_policy: Option<String>,
    /// Rules by which an exit restarts the container or the whole Pod (KEP-5532).
    pub restart_policy_rules: Vec<ContainerRestartRule>,
}

impl From<&Container> for PartialContainer {
    fn from(container: &Container) -> Self {
        Self {
            name: container.name.clone(),
            restart_policy: container.restart_policy.clone(),
            restart_policy_rules: container.restart_policy_rules.clone().unwrap_or_default(),
        }
    }
}

impl PartialContainer {
    /// Whether an init container is a sidecar: one that always restarts, and runs beside the main containers.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// Fields of `status` of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialPodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// Why the Pod as a whole failed, such as `Evicted`.
    pub reason: String,
    /// The same, for people.
    pub message: String,
    /// PodScheduled, Ready and others.
    pub conditions: Vec<PartialCondition>,
    /// Statuses of init containers and sidecars.
    pub init_container_statuses: Vec<PartialContainerStatus>,
    /// Statuses of main containers.
    pub container_statuses: Vec<PartialContainerStatus>,
}

/// Status of a container, as the kubelet reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialContainerStatus {
    /// Name of the container.
    pub name: String,
    /// Identity of the container's current run.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// Whether the container passes its readiness probe.
    pub ready: bool,
    /// Whether the container has passed its startup probe. A sidecar that has not delays the containers after it.
    pub started: Option<bool>,
    /// Number of restarts.
    pub restart_count: i32,
    /// Current state.
    pub state: ContainerState,
    /// Previous state.
    pub last_state: ContainerState,
}

/// State of a container. At most one field is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// The container waits for its start.
    pub waiting: Option<ContainerWaiting>,
    /// The container runs.
    pub running: Option<ContainerRunning>,
    /// The container has ended.
    pub terminated: Option<ContainerTerminated>,
}

/// Why a container waits for its start.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerWaiting {
    /// Reason in one word, such as `ImagePullBackOff`.
    pub reason: String,
    /// Message for people.
    pub message: String,
}

/// A run of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRunning {
    /// When the container started.
    pub started_at: Option<Time>,
}

/// The end of a container.
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
    /// When the container ended.
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

    /// Whether the Pod is ready.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(PartialCondition::is_true)
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
