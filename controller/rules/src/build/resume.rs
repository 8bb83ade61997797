//! Resumes a suspended Job, with the changes of its template since its creation.

use jobset_api::labels;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::json;

use super::owned::{Owned, appended, merged};

/// Labels that the Job API adds to the template of a Job, and by which the Job selects its Pods.
const OF_JOB_API: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

/// The JSON Patch (RFC 6902) that resumes `live` with the labels, annotations, node selector, tolerations and scheduling gates
/// that its template has in `desired`, and `with_resources` with requests and limits of its containers (KEP-1150).
///
/// The execution attempt of `desired` replaces that of `live`, in the Job and in its template (KEP-1282). If `desired` has none,
/// both stay.
///
/// The patch removes entries that came from the template of the JobSet and are no longer in it, for example those that a
/// queue added for an earlier admission. It keeps entries that mutating admission or others added to the Job, and the labels
/// of the Job API. A Job without a record of its template, such as one of the Go JobSet, keeps all entries. Requests and limits
/// are replaced as a whole, and claims stay. The patch fails on another Job of the same name, and can be applied to this one twice.
///
/// Kubernetes (1.36) accepts such a change only for a Job that is suspended, has no active Pod, and either has never started
/// or has the condition Suspended.
pub fn resume(live: &Job, desired: &Job, with_resources: bool) -> Patch {
    let mut operations = Operations(Vec::new());
    operations.test(["metadata", "uid"], &live.metadata.uid);
    let (before, after) = (Owned::remembered(live), Owned::remembered(desired));
    let owned = (before != after).then(|| (labels::OWNED_BY_POD_TEMPLATE, after.text()));
    let execution = execution(desired).filter(|attempt| execution(live) != Some(*attempt));
    let annotations = owned.into_iter().chain(execution.map(|it| (labels::EXECUTION_ATTEMPT, it.to_owned())));
    for (place, (key, value)) in annotations.enumerate() {
        if place == 0 && live.metadata.annotations.is_none() {
            operations.add(["metadata", "annotations"], &json!({}));
        }
        operations.add(["metadata", "annotations", key], &value);
    }
    if let (Some(live), Some(desired)) = (&live.spec, &desired.spec) {
        operations.set(["spec", "suspend"], live.suspend.as_ref(), &false);
        let (live, desired) = (&live.template, &desired.template);
        if let (Some(live), Some(desired)) = (&live.metadata, &desired.metadata) {
            metadata(&mut operations, &before, live, desired);
        }
        if let (Some(live), Some(desired)) = (&live.spec, &desired.spec) {
            pod(&mut operations, &before, live, desired);
            if with_resources {
                resources(&mut operations, "containers", &live.containers, &desired.containers);
                let [live, desired] = [live, desired].map(|pod| pod.init_containers.as_deref().unwrap_or_default());
                resources(&mut operations, "initContainers", live, desired);
            }
        }
    }
    Patch(operations.0)
}

/// The execution attempt in the annotation of a Job.
fn execution(job: &Job) -> Option<&str> {
    Some(job.metadata.annotations.as_ref()?.get(labels::EXECUTION_ATTEMPT)?.as_str())
}

fn metadata(operations: &mut Operations, owned: &Owned, live: &ObjectMeta, desired: &ObjectMeta) {
    let mut labels = merged(&owned.labels, &live.labels, &desired.labels);
    let of_job_api = |key: &String| OF_JOB_API.contains(&key.as_str());
    labels.retain(|key, _| !of_job_api(key));
    let kept = live.labels.iter().flatten().filter(|(key, _)| of_job_api(key));
    labels.extend(kept.map(|(key, value)| (key.clone(), value.clone())));

    let field = |name| ["spec", "template", "metadata", name];
    operations.set(field("labels"), live.labels.as_ref(), &labels);
    let annotations = merged(&owned.annotations, &live.annotations, &desired.annotations);
    operations.set(field("annotations"), live.annotations.as_ref(), &annotations);
}

fn pod(operations: &mut Operations, owned: &Owned, live: &PodSpec, desired: &PodSpec) {
    let field = |name| ["spec", "template", "spec", name];
    let selector = merged(&owned.node_selector, &live.node_selector, &desired.node_selector);
    operations.set(field("nodeSelector"), live.node_selector.as_ref(), &selector);
    let tolerations = appended(&owned.tolerations, live.tolerations.as_ref(), desired.tolerations.as_ref());
    operations.set(field("tolerations"), live.tolerations.as_ref(), &tolerations);
    let (live, desired) = (live.scheduling_gates.as_ref(), desired.scheduling_gates.as_ref());
    let gates = appended(&owned.scheduling_gates, live, desired);
    operations.set(field("schedulingGates"), live, &gates);
}

/// Requests and limits of containers, by name. Claims stay: they belong to the `resourceClaims` of the Pod, which cannot change.
/// Compares quantities as text. If only their form differs, the patch has an operation that changes nothing.
fn resources(operations: &mut Operations, list: &str, live: &[Container], desired: &[Container]) {
    for (index, live) in live.iter().enumerate() {
        if let Some(desired) = desired.iter().find(|desired| desired.name == live.name) {
            let path = ["spec", "template", "spec", list, &index.to_string(), "resources"];
            let claims = live.resources.as_ref().and_then(|resources| resources.claims.clone());
            let ResourceRequirements { requests, limits, .. } = desired.resources.clone().unwrap_or_default();
            operations.set(path, live.resources.as_ref(), &ResourceRequirements { claims, limits, requests });
        }
    }
}

struct Operations(Vec<PatchOperation>);

impl Operations {
    fn test<const N: usize>(&mut self, path: [&str; N], value: &impl Serialize) {
        self.0.push(PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path), value: json!(value) }));
    }

    /// Sets a field that differs from the desired value. Absent and empty are equal. The patch writes an empty value with
    /// `add`, which also replaces a field: `remove` would fail when the patch is applied again.
    fn set<T, const N: usize>(&mut self, path: [&str; N], live: Option<&T>, desired: &T)
    where
        T: Default + PartialEq + Serialize,
    {
        if live.unwrap_or(&T::default()) != desired {
            self.add(path, desired);
        }
    }

    fn add<const N: usize>(&mut self, path: [&str; N], value: &impl Serialize) {
        self.0.push(PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path), value: json!(value) }));
    }
}

#[cfg(test)]
mod tests;
