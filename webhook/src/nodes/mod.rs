//! Pods that keep away from the nodes that their JobSet avoids (`status.avoidedNodes`).
//!
//! ```text
//! Pod --> its JobSet's name --> known (I/O): what the JobSet says --> avoidance (pure) --> affinity (pure): the Pod's node affinity
//! ```
//!
//! Only Pods with the label [`AVOIDS_NODES`](jobset_api::labels::AVOIDS_NODES) come here, and none of them is refused: the webhook is
//! registered with `failurePolicy: Ignore`. A Pod whose JobSet cannot be read in time is created as it was sent.

use jobset_api::{AvoidNodes, is_dns1123_label, is_dns1123_subdomain, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::admission::Operation;
use serde::Serialize;
use serde::de::IgnoredAny;

pub mod affinity;
pub mod avoidance;
pub mod known;

use affinity::Placement;
use avoidance::Avoidance;

use crate::wire::{AdmissionRequest, Object};

/// The part of a Pod by which its node is chosen. The rest is skipped while it is parsed.
#[derive(Clone, Debug, Serialize)]
pub struct PlacedPod {
    metadata: ObjectMeta,
    spec: Placement,
}

impl Object for PlacedPod {
    type Spec = Placement;
    type Status = IgnoredAny;

    fn of(metadata: ObjectMeta, spec: Placement, _: Option<IgnoredAny>) -> Self {
        Self { metadata, spec }
    }
}

/// The JobSet that a Pod names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobSetKey {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl PlacedPod {
    /// The UID of its JobSet. Another JobSet of the same name says nothing about this Pod.
    pub fn jobset_uid(&self) -> &str {
        self.label(labels::JOBSET_UID)
    }

    /// The Pod with an affinity that keeps away from these nodes; `None` if it has that already. The hard form shows in an annotation: the
    /// controller replaces such a Pod if it finds no node.
    pub fn keep_away(&self, avoidance: &Avoidance) -> Option<Self> {
        let spec = self.spec.keep_away(avoidance);
        if spec == self.spec {
            return None;
        }
        let mut metadata = self.metadata.clone();
        if avoidance.how == AvoidNodes::Required {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert(labels::AVOID_NODES.to_owned(), "Required".to_owned());
        }
        Some(Self { metadata, spec })
    }

    fn label(&self, key: &str) -> &str {
        self.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
    }
}

/// The JobSet of a Pod that is created and may go to any of several nodes. `None` for any other Pod.
///
/// The names are those of a request to the API server: what cannot be a name asks for nothing.
pub fn jobset(request: &AdmissionRequest<PlacedPod>) -> Option<JobSetKey> {
    let is_created = request.operation == Operation::Create && request.is_whole();
    let pod = request.object().filter(|pod| is_created && !pod.spec.is_pinned())?;
    let (namespace, name) = (request.namespace.as_deref()?, pod.label(labels::JOBSET_NAME));
    let is_named = is_dns1123_label(namespace) && is_dns1123_subdomain(name) && !pod.jobset_uid().is_empty();
    is_named.then(|| JobSetKey { namespace: namespace.into(), name: name.into() })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::AdmissionReview;

    fn request(operation: &str, namespace: &str, labels: &Value, spec: &Value) -> AdmissionRequest<PlacedPod> {
        let review = json!({ "apiVersion": "v", "kind": "k", "request": {
            "uid": "u", "operation": operation, "namespace": namespace,
            "object": { "metadata": { "labels": labels }, "spec": spec, "status": { "phase": "Pending" } } } });
        serde_json::from_value::<AdmissionReview<PlacedPod>>(review).unwrap().request.unwrap()
    }

    fn of(name: &str, uid: &str) -> Value {
        json!({ labels::JOBSET_NAME: name, labels::JOBSET_UID: uid })
    }

    #[test]
    fn created_pod_names_its_jobset() {
        let request = request("CREATE", "ml", &of("train", "u1"), &json!({ "containers": [{ "name": "w" }] }));
        assert_eq!(jobset(&request), Some(JobSetKey { namespace: "ml".into(), name: "train".into() }));
        assert_eq!(request.object().unwrap().jobset_uid(), "u1");
    }

    #[rstest]
    #[case::preferred(AvoidNodes::Preferred, None)]
    #[case::required(AvoidNodes::Required, Some("Required"))]
    fn hard_form_is_annotated(#[case] how: AvoidNodes, #[case] expected: Option<&str>) {
        let request = request("CREATE", "ml", &of("train", "u1"), &json!({}));
        let avoidance = Avoidance { nodes: vec!["bad".to_owned()], domains: Vec::new(), how };
        let kept = request.object().unwrap().keep_away(&avoidance).unwrap();
        let annotations = kept.metadata.annotations.clone().unwrap_or_default();
        assert_eq!(annotations.get(labels::AVOID_NODES).map(String::as_str), expected);
        assert!(kept.keep_away(&avoidance).is_none(), "twice is once");
    }

    #[rstest]
    #[case::update("UPDATE", "ml", of("train", "u1"), json!({}))]
    #[case::no_name("CREATE", "ml", json!({ labels::JOBSET_UID: "u1" }), json!({}))]
    #[case::no_uid("CREATE", "ml", json!({ labels::JOBSET_NAME: "train" }), json!({}))]
    #[case::path_as_name("CREATE", "ml", of("../secrets/a", "u1"), json!({}))]
    #[case::path_as_namespace("CREATE", "ml/jobsets/a?b=", of("train", "u1"), json!({}))]
    #[case::pinned("CREATE", "ml", of("train", "u1"), json!({ "nodeName": "n1" }))]
    fn other_pods_ask_for_nothing(
        #[case] operation: &str,
        #[case] namespace: &str,
        #[case] labels: Value,
        #[case] spec: Value,
    ) {
        assert_eq!(jobset(&request(operation, namespace, &labels, &spec)), None);
    }
}
