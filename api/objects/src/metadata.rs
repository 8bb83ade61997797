//! Metadata of partial objects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Deserializer};

use crate::kept::{Controllers, KeptFinalizers, OwnEntries};

/// Metadata without `managedFields`, which are half of a Pod.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "L: Default + Deserialize<'de>")]
struct Metadata<L> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<L>,
    annotations: Option<OwnEntries>,
    owner_references: Option<Controllers>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<KeptFinalizers>,
}

/// Reads `metadata` and skips what no program reads, so that nobody's labels, annotations or owners take memory: `managedFields`,
/// labels and annotations that are neither of JobSets nor of Jobs, all but two finalizers that are neither, owners that are not the
/// controller, and other fields. For `#[serde(deserialize_with)]`.
pub fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Ok(Metadata::<OwnEntries>::deserialize(deserializer)?.reduced(|OwnEntries(labels)| labels))
}

pub(crate) fn metadata_with_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Ok(Metadata::<BTreeMap<String, String>>::deserialize(deserializer)?.reduced(|labels| labels))
}

impl<L> Metadata<L> {
    fn reduced(self, labels: impl FnOnce(L) -> BTreeMap<String, String>) -> ObjectMeta {
        ObjectMeta {
            name: self.name,
            namespace: self.namespace,
            uid: self.uid,
            resource_version: self.resource_version,
            labels: self.labels.map(labels),
            annotations: self.annotations.map(|OwnEntries(annotations)| annotations),
            owner_references: self.owner_references.map(|Controllers(owners)| owners),
            creation_timestamp: self.creation_timestamp,
            deletion_timestamp: self.deletion_timestamp,
            deletion_grace_period_seconds: self.deletion_grace_period_seconds,
            finalizers: self.finalizers.map(|KeptFinalizers(finalizers)| finalizers),
            ..ObjectMeta::default()
        }
    }
}

/// An object of the kind `K` of which only metadata is read. Requests for it ask the API server for nothing else.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(bound = "")]
pub struct PartialMetadata<K> {
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(skip)]
    kind: PhantomData<K>,
}

impl<K: Resource> Resource for PartialMetadata<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn metadata_api() -> bool {
        true
    }

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// All of [`ObjectMeta`] but `managedFields`.
#[derive(Deserialize)]
#[serde(remote = "ObjectMeta", rename_all = "camelCase")]
struct WholeMetadata {
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    generate_name: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(skip)]
    managed_fields: Option<Vec<ManagedFieldsEntry>>,
    name: Option<String>,
    namespace: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    resource_version: Option<String>,
    self_link: Option<String>,
    uid: Option<String>,
}

/// Reads `metadata` and skips `managedFields`. For `#[serde(deserialize_with)]`.
pub fn whole_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    WholeMetadata::deserialize(deserializer)
}

/// The Job that controls the object, if a Job does.
pub fn owner_job<K: Resource>(object: &K) -> Option<&OwnerReference> {
    let controls = |owner: &&OwnerReference| owner.controller == Some(true) && owner.kind == "Job";
    object.owner_references().iter().find(controls)
}
