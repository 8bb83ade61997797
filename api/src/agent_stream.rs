//! How many Pods have their agent on the agent stream.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LaterFields;

/// How many Pods have their agent connected to a relay of the agent stream, as the leading controller knew when it last wrote this.
/// An agent without a connection reports through the API server: restarts of large groups take longer then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStreamStatus {
    /// connectedPods is the number of Pods whose agent is connected.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub connected_pods: i32,
    /// expectedPods is the number of Pods that run and whose agent has reported an epoch, over the stream or not.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub expected_pods: i32,
    /// missingPods are the names of the first three Pods whose agent is not connected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "atomic"))]
    pub missing_pods: Vec<String>,
    /// lastUpdateTime is when the controller last wrote these numbers. It writes them with other changes of the status. For their own
    /// sake it writes them when agents have been missing for a minute, and when all are connected again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub last_update_time: Option<Time>,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

impl AgentStreamStatus {
    /// Whether the agents of some Pods are not connected.
    pub fn misses_agents(&self) -> bool {
        self.connected_pods < self.expected_pods
    }
}
