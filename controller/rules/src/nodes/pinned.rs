//! Pods that cannot leave their node, whatever their JobSet asks for.

use jobset_objects::Pin;
use jobset_store::pods::PodView;
use k8s_openapi::api::core::v1::PodTemplateSpec;

/// Why no Pod of this template, or not this one, can leave its node, if so.
pub(crate) fn why(template: &PodTemplateSpec, pod: Option<&PodView>) -> Option<&'static str> {
    let by_template = template.spec.as_ref().and_then(|spec| {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let gates = spec.scheduling_gates.as_deref();
        Pin::of(spec.node_name.as_deref(), spec.node_selector.as_ref(), affinity, gates)
    });
    match by_template {
        Some(Pin::Kueue) => Some("Kueue places it by topology"),
        Some(Pin::Specification) => Some("its template names the one node that it may run on"),
        None => pod.is_some_and(|pod| pod.pinned).then_some("its specification names the one node that it may run on"),
    }
}
