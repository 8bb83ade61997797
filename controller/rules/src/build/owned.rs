//! The fields of a Job that came from the Pod template of its JobSet, of those that may change while the Job is suspended.
//!
//! A queue sets such fields in the template of the JobSet and later removes them. Mutating admission and others set some of
//! them in the Job itself, and the controller keeps those. An annotation of the Job records which ones came from the template.

use std::collections::{BTreeMap, BTreeSet};

use jobset_api::labels;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PodSchedulingGate, PodTemplateSpec, Toleration};
use serde::{Deserialize, Serialize};

type Map = Option<BTreeMap<String, String>>;

/// Prefixes of the keys that the controller writes itself, but for [`labels::EXECUTION_ATTEMPT`]: while its feature gate is off,
/// the controller leaves the annotation alone.
const OF_CONTROLLER: [&str; 2] = ["jobset.sigs.k8s.io/", "alpha.jobset.sigs.k8s.io/"];

/// The fields of a Job template that came from the template of its JobSet. Maps are recorded by key only, because a key has
/// one owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Owned {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) labels: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) annotations: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) node_selector: BTreeSet<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tolerations: Vec<Toleration>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) scheduling_gates: Vec<PodSchedulingGate>,
}

impl Owned {
    /// The fields that a Job gets from this template of its JobSet.
    pub(super) fn of(template: &PodTemplateSpec) -> Self {
        let keys = |map: Option<&BTreeMap<String, String>>| map.into_iter().flat_map(BTreeMap::keys).cloned().collect();
        let (metadata, pod) = (template.metadata.as_ref(), template.spec.as_ref());
        Self {
            labels: keys(metadata.and_then(|metadata| metadata.labels.as_ref())),
            annotations: keys(metadata.and_then(|metadata| metadata.annotations.as_ref())),
            node_selector: keys(pod.and_then(|pod| pod.node_selector.as_ref())),
            tolerations: pod.and_then(|pod| pod.tolerations.clone()).unwrap_or_default(),
            scheduling_gates: pod.and_then(|pod| pod.scheduling_gates.clone()).unwrap_or_default(),
        }
    }

    /// The record in the annotation of the Job. Empty without the annotation, as in a Job of the Go JobSet.
    pub(super) fn remembered(job: &Job) -> Self {
        let annotations = job.metadata.annotations.as_ref();
        let text = annotations.and_then(|annotations| annotations.get(labels::OWNED_BY_POD_TEMPLATE));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Value of the annotation.
    pub(super) fn text(&self) -> String {
        // The serialization of strings and lists cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Labels, annotations or node selector of a resumed Job: the live ones but for those `owned` before, and the desired ones.
pub(super) fn merged(owned: &BTreeSet<String>, live: &Map, desired: &Map) -> BTreeMap<String, String> {
    let is_written = |key: &str| OF_CONTROLLER.iter().any(|domain| key.starts_with(domain));
    let is_ours = |key: &String| owned.contains(key) || is_written(key) && key != labels::EXECUTION_ATTEMPT;
    let kept = live.iter().flatten().filter(|(key, _)| !is_ours(key));
    kept.chain(desired.iter().flatten()).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The same of a list.
pub(super) fn appended<T: Clone + PartialEq>(owned: &[T], live: Option<&Vec<T>>, desired: Option<&Vec<T>>) -> Vec<T> {
    let [live, desired] = [live, desired].map(|list| list.map(Vec::as_slice).unwrap_or_default());
    let stays = |item: &&T| desired.contains(item) || !owned.contains(item);
    let mut items: Vec<T> = live.iter().filter(stays).cloned().collect();
    let new: Vec<T> = desired.iter().filter(|item| !items.contains(item)).cloned().collect();
    items.extend(new);
    items
}
