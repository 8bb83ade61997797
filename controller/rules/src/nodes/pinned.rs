//! Pods that cannot leave their node, whatever their JobSet asks for.

use jobset_objects::HOSTNAME;
use jobset_store::pods::PodView;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};

use crate::cause::Blame;
use crate::reconciliation::Reconciliation;

/// Annotations by which Kueue places the Pods of a workload by topology: it assigns nodes, and assigns the same ones again.
const OF_KUEUE: [&str; 4] = [
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
];

/// Why the Pod cannot leave its node, if so.
pub(super) fn why(reconciliation: &Reconciliation<'_>, blame: &Blame) -> Option<&'static str> {
    let current = reconciliation.current.iter().find(|current| current.name == blame.job)?;
    let template = &reconciliation.groups()[current.group].template.spec.template;
    let pod = reconciliation.observed.pods().named(&blame.pod);
    of_template(template).or_else(|| pod.and_then(|(_, pod)| of_pod(pod)))
}

/// The same of a Pod whose template is not looked at: somebody has selected its node.
pub(super) fn of_pod(pod: &PodView) -> Option<&'static str> {
    pod.selects_host.then_some("it selects its node by name")
}

fn of_template(template: &PodTemplateSpec) -> Option<&'static str> {
    let annotations = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    if annotations.is_some_and(|annotations| OF_KUEUE.iter().any(|key| annotations.contains_key(*key))) {
        return Some("Kueue has assigned its node by topology");
    }
    let spec = template.spec.as_ref()?;
    selects_host(spec).then_some("its template selects the node by name")
}

fn selects_host(spec: &PodSpec) -> bool {
    let by_selector = spec.node_selector.iter().flatten().any(|(key, _)| key == HOSTNAME);
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let by_affinity = required.into_iter().flat_map(|it| &it.node_selector_terms).any(|term| {
        let excludes = |operator: &str| ["NotIn", "DoesNotExist"].contains(&operator);
        let fields = term.match_fields.iter().flatten().filter(|it| it.key == "metadata.name");
        let labels = term.match_expressions.iter().flatten().filter(|it| it.key == HOSTNAME);
        fields.chain(labels).any(|it| !excludes(&it.operator) && it.operator != "Exists")
    });
    spec.node_name.is_some() || by_selector || by_affinity
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn affinity(term: &Value) -> Value {
        let required = json!({"nodeSelectorTerms": [term]});
        json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}})
    }

    fn expression(operator: &str) -> Value {
        affinity(&json!({"matchExpressions": [{"key": HOSTNAME, "operator": operator, "values": ["n"]}]}))
    }

    #[rstest]
    #[case::nothing(json!({"spec": {}}), false)]
    #[case::selector(json!({"spec": {"nodeSelector": {(HOSTNAME): "n"}}}), true)]
    #[case::other_selector(json!({"spec": {"nodeSelector": {"zone": "z"}}}), false)]
    #[case::name(json!({"spec": {"nodeName": "n"}}), true)]
    #[case::expression(expression("In"), true)]
    #[case::exclusion(expression("NotIn"), false)]
    #[case::field(affinity(&json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})), true)]
    #[case::kueue(json!({"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}}), true)]
    fn template_that_selects_its_node_pins_pods(#[case] template: Value, #[case] expected: bool) {
        let template: PodTemplateSpec = serde_json::from_value({
            let mut whole = json!({"spec": {"containers": []}});
            json_patch::merge(&mut whole, &template);
            whole
        })
        .unwrap();
        assert_eq!(of_template(&template).is_some(), expected);
    }
}
