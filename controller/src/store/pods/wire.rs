//! The part of a Pod that is read from the wire. The rest is skipped while it is parsed: a Pod of 9 kB costs the parser a
//! few allocations, thousands of times a restart.

use std::collections::BTreeMap;

use jobset_api::partial::metadata;
use jobset_api::restart_rules::{RESTART_ALL_CONTAINERS, restarts_pod};
use k8s_openapi::api::core::v1::ContainerRestartRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

/// A Pod as the controller reads it.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
pub struct PodWire {
    #[serde(default, deserialize_with = "metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: Spec,
    #[serde(default)]
    pub(crate) status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    pub node_name: Option<String>,
    pub node_selector: BTreeMap<String, String>,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub name: String,
    pub restart_policy: Option<String>,
    pub restart_policy_rules: Vec<ContainerRestartRule>,
}

impl Container {
    /// Whether it is a sidecar whose exit can restart the whole Pod: the agent (KEP-467).
    pub(super) fn is_agent(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always") && self.restart_policy_rules.iter().any(restarts_pod)
    }

    /// Whether this exit code restarts the whole Pod. The first rule that matches decides.
    pub(super) fn restarts_pod_on(&self, exit_code: i32) -> bool {
        use jobset_api::restart_rules::ExitCodes;

        let matches = |rule: &&ContainerRestartRule| ExitCodes::of(rule).is_some_and(|codes| codes.contains(exit_code));
        self.restart_policy_rules.iter().find(matches).is_some_and(|rule| rule.action == RESTART_ALL_CONTAINERS)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub phase: String,
    pub conditions: Vec<Condition>,
    pub init_container_statuses: Vec<ContainerStatus>,
    pub container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub name: String,
    #[serde(rename = "containerID")]
    pub container_id: String,
    pub restart_count: i32,
    pub state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub running: Option<Running>,
    pub terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Running {
    pub started_at: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    pub finished_at: Option<Time>,
}
