//! What exclusive placement puts on a Job and on its Pods.
//!
//! By affinity, the default: annotations that admission of Pods reads, and the label that says among which Pods they
//! exclude each other. By node selector: somebody has labelled and tainted the nodes, and the Pods select and tolerate
//! them; admission has nothing to do.

use std::collections::BTreeMap;

use jobset_api::{JobSet, ReplicatedJob, labels, names};
use k8s_openapi::api::core::v1::{PodSpec, Toleration};

use crate::store::PriorityClasses;

/// Annotations of the Job and of its Pods: those of the JobSet, and over them those of the Job template. The strategy
/// counts only where its topology is written.
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

/// Whether annotations ask for exclusive placement by node selector.
pub(super) fn by_node_selector(annotations: &BTreeMap<String, String>) -> bool {
    annotations.contains_key(labels::EXCLUSIVE_TOPOLOGY) && annotations.contains_key(labels::NODE_SELECTOR_STRATEGY)
}

/// Sends a Pod to the nodes that are labelled for its Job.
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

/// Value of [`labels::PRIORITY`]. The Go JobSet reads it from each Pod as it is created; known here, it costs no call to
/// admission. A Pod whose class does not exist is not created, so its value does not matter before somebody makes one.
pub(super) fn priority(pod: &PodSpec, classes: &PriorityClasses) -> String {
    let of_class = || classes.priority(pod.priority_class_name.as_deref());
    names::priority(pod.priority.or_else(of_class).unwrap_or(0))
}
