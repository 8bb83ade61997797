//! The part of a Pod that is read.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

use jobset_api::partial::metadata;

use super::condition::{self, Condition};

/// A Pod as reports read it.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = Pod)]
pub struct PodWire {
    /// Name, labels, annotations, times.
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// Where it runs, and what.
    #[serde(default)]
    pub spec: PodSpec,
    /// How it is.
    #[serde(default)]
    pub status: PodStatus,
}

/// Where a Pod runs, and what.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Its node, once it has one.
    pub node_name: Option<String>,
    /// The containers that do its work.
    pub containers: Vec<Container>,
    /// The containers before them, and sidecars.
    pub init_containers: Vec<Container>,
}

/// One container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Always makes a sidecar of an init container.
    pub restart_policy: Option<String>,
}

impl Container {
    /// Whether it is an init container that runs beside the others.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// How a Pod is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed.
    pub phase: String,
    /// Why it failed as a whole, such as Evicted.
    pub reason: String,
    /// PodScheduled, Ready and others.
    pub conditions: Vec<Condition>,
    /// Init containers and sidecars.
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Containers.
    pub container_statuses: Vec<ContainerStatus>,
}

/// One container of a Pod, as its kubelet reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// Whether it passes its readiness probe.
    pub ready: bool,
    /// Whether it passed its startup probe. A sidecar that has not holds up the containers after it.
    pub started: Option<bool>,
    /// How often it was restarted.
    pub restart_count: i32,
    /// What it does now.
    pub state: State,
    /// What it did before.
    pub last_state: State,
}

/// What a container does: one of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct State {
    /// It waits to be started.
    pub waiting: Option<Waiting>,
    /// It runs.
    pub running: Option<serde::de::IgnoredAny>,
    /// It has ended.
    pub terminated: Option<Terminated>,
}

/// Why a container is not started.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// In one word, such as ImagePullBackOff.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// How a container ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Its exit code.
    pub exit_code: i32,
    /// In one word, such as Error or OOMKilled.
    pub reason: String,
    /// Its last words.
    pub message: String,
    /// When.
    pub finished_at: Option<Time>,
}

impl PodWire {
    /// The condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        condition::find(&self.status.conditions, type_)
    }

    /// Whether the Pod is ready.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(Condition::is_true)
    }
}
