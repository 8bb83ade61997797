//! Metadata of objects that are read in part, for those who keep or show thousands of them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// Metadata without the bookkeeping of field managers, which is half of a Pod.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
}

/// Reads metadata, and skips what no rule reads and no report shows: for `#[serde(deserialize_with)]`.
///
/// # Errors
/// If it is no metadata.
pub fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let read = Metadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: read.name,
        namespace: read.namespace,
        uid: read.uid,
        resource_version: read.resource_version,
        labels: read.labels,
        annotations: read.annotations,
        owner_references: read.owner_references,
        creation_timestamp: read.creation_timestamp,
        deletion_timestamp: read.deletion_timestamp,
        deletion_grace_period_seconds: read.deletion_grace_period_seconds,
        ..ObjectMeta::default()
    })
}
