//! The part of an AdmissionReview that is read from the wire. The rest is skipped while it is parsed: managedFields are
//! half of what the API server sends, and who asked with which options is nothing that admission goes by.
//!
//! There is no `flatten` here. What serde flattens it first reads into a tree, and from that a second time.

use jobset_api::weight::Weighed;
use jobset_api::{JobSet, JobSetSpec, JobSetStatus};
use jobset_objects::whole_metadata;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::admission::Operation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// A review, of a version that is yet to be looked at.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound = "K: Object")]
pub struct AdmissionReview<K> {
    /// API version of the review, and not of the object in it.
    pub api_version: String,
    pub kind: String,
    pub request: Option<AdmissionRequest<K>>,
}

/// What somebody wants to do with an object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound = "K: Object")]
pub struct AdmissionRequest<K> {
    /// Has to be in the answer.
    pub uid: String,
    pub operation: Operation,
    /// The subresource that it is done to; none for the object as a whole.
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// Name of the object; empty where the API server is yet to generate it.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub namespace: Option<String>,
    /// The object as it will be, with the weight of its specification; none in deletions.
    #[serde(default, deserialize_with = "object")]
    pub object: Option<Weighed<K>>,
    /// The object as it is, with the weight of its specification; none in creations.
    #[serde(default, deserialize_with = "object")]
    pub old_object: Option<Weighed<K>>,
}

impl<K> AdmissionRequest<K> {
    pub fn object(&self) -> Option<&K> {
        self.object.as_ref().map(|object| &object.value)
    }

    pub fn old_object(&self) -> Option<&K> {
        self.old_object.as_ref().map(|object| &object.value)
    }

    /// Whether it is about an object as a whole, and not about a subresource.
    pub fn is_whole(&self) -> bool {
        self.sub_resource.as_deref().unwrap_or_default().is_empty()
    }

    pub fn weight(&self) -> SpecWeight {
        let weight = |object: &Option<Weighed<K>>| object.as_ref().map_or(0, |object| object.weight);
        SpecWeight { new: weight(&self.object), old: weight(&self.old_object) }
    }
}

/// The memory that the specifications of the objects of a review take, in bytes; 0 for an object that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecWeight {
    pub new: usize,
    pub old: usize,
}

/// A kind of objects that are reviewed.
pub trait Object: Sized {
    type Spec: DeserializeOwned;
    type Status: DeserializeOwned;

    fn of(metadata: ObjectMeta, spec: Self::Spec, status: Option<Self::Status>) -> Self;
}

impl Object for JobSet {
    type Spec = JobSetSpec;
    type Status = JobSetStatus;

    fn of(metadata: ObjectMeta, spec: JobSetSpec, status: Option<JobSetStatus>) -> Self {
        Self { metadata, spec, status }
    }
}

impl Object for Pod {
    type Spec = PodSpec;
    type Status = PodStatus;

    fn of(metadata: ObjectMeta, spec: PodSpec, status: Option<PodStatus>) -> Self {
        Self { metadata, spec: Some(spec), status }
    }
}

#[derive(Deserialize)]
struct Sent<S, T> {
    #[serde(default, deserialize_with = "whole_metadata")]
    metadata: ObjectMeta,
    spec: Weighed<S>,
    status: Option<T>,
}

fn object<'de, D: Deserializer<'de>, K: Object>(deserializer: D) -> Result<Option<Weighed<K>>, D::Error> {
    let sent = Option::<Sent<K::Spec, K::Status>>::deserialize(deserializer)?;
    Ok(sent.map(|Sent { metadata, spec, status }| Weighed {
        value: K::of(metadata, spec.value, status),
        weight: spec.weight,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn review(object: &Value) -> AdmissionReview<JobSet> {
        let review = json!({ "apiVersion": "v", "kind": "k", "request": {
            "uid": "u", "operation": "CREATE", "object": object, "oldObject": null } });
        serde_json::from_value(review).unwrap()
    }

    /// Metadata with every field.
    fn metadata() -> Value {
        json!({
            "annotations": { "a": "1" }, "creationTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 1,
            "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["f"], "generateName": "g", "generation": 2,
            "labels": { "l": "2" }, "name": "n", "namespace": "ns", "resourceVersion": "3", "selfLink": "s", "uid": "u",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "ou" }],
        })
    }

    #[test]
    fn object_is_read_whole_without_managed_fields() {
        let mut object = json!({ "metadata": metadata(), "spec": { "suspend": true }, "status": { "restarts": 1 } });
        let wanted: JobSet = serde_json::from_value(object.clone()).unwrap();
        object["metadata"]["managedFields"] = json!([{ "manager": "kubectl", "fieldsV1": { "f:spec": {} } }]);
        let request = review(&object).request.unwrap();
        assert_eq!((request.object(), request.old_object()), (Some(&wanted), None));
        let read = serde_json::to_value(&wanted.metadata).unwrap();
        assert_eq!(read, metadata(), "no field is missing here");
    }

    #[test]
    fn null_is_what_is_absent() {
        let object = json!({ "metadata": { "creationTimestamp": null, "labels": null }, "spec": {}, "status": null });
        assert_eq!(review(&object).request.unwrap().object(), Some(&JobSet::default()));
        assert_eq!(review(&json!({ "spec": {} })).request.unwrap().object(), Some(&JobSet::default()));
    }
}
