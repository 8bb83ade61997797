//! Metadata of partial objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Deserializer};

/// Metadata without `managedFields`, which are half of a Pod.
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
    finalizers: Option<Vec<String>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<Vec<String>>,
}

/// Reads `metadata` and skips `managedFields` and the other fields that no program reads. For
/// `#[serde(deserialize_with)]`.
///
/// # Errors
/// If a field that is read has another type.
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
        finalizers: read.finalizers,
        creation_timestamp: read.creation_timestamp,
        deletion_timestamp: read.deletion_timestamp,
        deletion_grace_period_seconds: read.deletion_grace_period_seconds,
        finalizers: read.finalizers,
        ..ObjectMeta::default()
    })
}

/// All of [`ObjectMeta`] but `managedFields`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WholeMetadata {
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    generate_name: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    name: Option<String>,
    namespace: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    resource_version: Option<String>,
    self_link: Option<String>,
    uid: Option<String>,
}

impl From<WholeMetadata> for ObjectMeta {
    fn from(sent: WholeMetadata) -> Self {
        Self {
            annotations: sent.annotations,
            creation_timestamp: sent.creation_timestamp,
            deletion_grace_period_seconds: sent.deletion_grace_period_seconds,
            deletion_timestamp: sent.deletion_timestamp,
            finalizers: sent.finalizers,
            generate_name: sent.generate_name,
            generation: sent.generation,
            labels: sent.labels,
            managed_fields: None,
            name: sent.name,
            namespace: sent.namespace,
            owner_references: sent.owner_references,
            resource_version: sent.resource_version,
            self_link: sent.self_link,
            uid: sent.uid,
        }
    }
}

/// Reads `metadata` and skips `managedFields`. For `#[serde(deserialize_with)]`.
///
/// # Errors
/// If a field has another type.
pub fn whole_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    WholeMetadata::deserialize(deserializer).map(ObjectMeta::from)
}

/// The Job that controls the object, if a Job does.
pub fn owner_job<K: Resource>(object: &K) -> Option<&OwnerReference> {
    let controls = |owner: &&OwnerReference| owner.controller == Some(true) && owner.kind == "Job";
    object.owner_references().iter().find(controls)
}
