//! The part of a leader Pod that is read from the wire. The rest, kilobytes of it, is skipped while it is parsed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Deserializer};

/// A Pod with completion index 0.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
pub struct LeaderPod {
    #[serde(default, deserialize_with = "metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Spec,
    #[serde(default)]
    pub(super) status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) node_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) phase: String,
    pub(super) conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) message: String,
}

fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Metadata {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
        owner_references: Option<Vec<OwnerReference>>,
        deletion_timestamp: Option<Time>,
    }
    let read = Metadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: read.name,
        namespace: read.namespace,
        resource_version: read.resource_version,
        owner_references: read.owner_references,
        deletion_timestamp: read.deletion_timestamp,
        ..ObjectMeta::default()
    })
}

/// The Job that controls a Pod.
pub(super) fn owner_job<K: Resource>(pod: &K) -> Option<&OwnerReference> {
    let controls = |it: &&OwnerReference| it.controller == Some(true) && it.kind == "Job";
    pod.owner_references().iter().find(controls)
}
