//! Exclusive placement: the annotations, labels, node selector and tolerations of a Job and of its Pods.
//!
//! The default strategy uses affinity: the annotations that Pod admission reads, and a label with the priority, by which Pods
//! exclude each other. The node selector strategy needs no admission: the user labels and taints the nodes, and the Pods
//! select and tolerate them.

use std::collections::BTreeMap;

use jobset_api::{JobSet, ReplicatedJob, labels, names};
use jobset_store::PriorityClasses;
use k8s_openapi::api::core::v1::{PodSpec, Toleration};

/// Annotations of the Job and of its Pods. Those of the Job template replace those of the JobSet. The strategy annotation is
/// valid only in an object that also has the topology annotation.
pub(super) fn annotations(jobset: &JobSet, group: &ReplicatedJob) -> BTreeMap<String, String> {
    let template = group.template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let mut all = BTreeMap::new();
    for source in jobset.metadata.annotations.iter().chain(template) {
        if let Some(topology) = source.get(labels::EXCLUSIVE_TOPOLOGY) {
            all.insert(labels::EXCLUSIVE_TOPOLOGY.to_owned(), topology.clone());
            if let Some(strategy) = source.get(labels::NODE_SELECTOR_STRATEGY) {
                all.insert(labels::NODE_SELECTOR_STRATEGY.to_owned(), strategy.clone());
            }
        }
    }
    all
}

/// Whether the annotations request exclusive placement by node selector.
pub(super) fn by_node_selector(annotations: &BTreeMap<String, String>) -> bool {
    annotations.contains_key(labels::EXCLUSIVE_TOPOLOGY) && annotations.contains_key(labels::NODE_SELECTOR_STRATEGY)
}

/// Makes a Pod select and tolerate the nodes that are labelled for its Job.
pub(super) fn select_nodes(pod: &mut PodSpec, namespace: &str, job: &str) {
    let selector = pod.node_selector.get_or_insert_default();
    selector.insert(labels::NAMESPACED_JOB.to_owned(), names::namespaced_job(namespace, job));
    pod.tolerations.get_or_insert_default().push(Toleration {
        key: Some(labels::NO_SCHEDULE_TAINT.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    });
}

/// Value of [`labels::PRIORITY`]. The Go JobSet reads the priority when admission creates the Pod; set here, the label needs no
/// admission call. The API server rejects a Pod whose PriorityClass does not exist, so the value for it does not matter.
pub(super) fn priority(pod: Option<&PodSpec>, classes: &PriorityClasses) -> String {
    let of_class = || classes.priority(pod.and_then(|pod| pod.priority_class_name.as_deref()));
    names::priority(pod.and_then(|pod| pod.priority).or_else(of_class).unwrap_or(0))
}
