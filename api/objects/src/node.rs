//! Partial Nodes. The status of a Node lists hundreds of images, which the parser skips.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

use crate::condition::PartialCondition;
use crate::metadata::metadata_with_labels;

/// The fields of a Node that the programs read.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = Node)]
pub struct PartialNode {
    /// Metadata with all labels, and of the rest what [`crate::metadata`] reads.
    #[serde(default, deserialize_with = "metadata_with_labels")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PartialNodeSpec,
    /// Status. The kubelet writes it.
    #[serde(default)]
    pub status: PartialNodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PartialNodeSpec {
    /// Whether it is cordoned: no Pods are scheduled there that do not tolerate it.
    pub unschedulable: bool,
    pub taints: Vec<NodeTaint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTaint {
    pub key: String,
    /// When the taint was added, if the control plane has added it.
    pub time_added: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialNodeStatus {
    pub node_info: NodeSystemInfo,
    pub conditions: Vec<PartialCondition>,
    /// What Pods can request of the node, as quantities by the names of resources.
    pub allocatable: BTreeMap<String, String>,
    /// Features that the kubelet declares (KEP-5328).
    pub declared_features: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSystemInfo {
    /// Version of the kubelet, such as `v1.36.0`.
    pub kubelet_version: String,
}
