//! The node affinity of a Pod that keeps away from some nodes. Pure.
//!
//! Nodes are named by the field `metadata.name`, and not by the label `kubernetes.io/hostname`: the label is the host's own name, which
//! is not the node's on some clouds, and which several nodes may share. The API takes one name for each requirement on a field;
//! requirements of one term hold together.

use std::collections::BTreeMap;

use jobset_api::AvoidNodes;
use jobset_objects::{NODE_NAME, Pin};
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSchedulingGate, PreferredSchedulingTerm,
};
use serde::{Deserialize, Serialize};

use super::avoidance::{Avoidance, Domain};

/// The largest weight of a preference.
const WEIGHT: i32 = 100;

/// The fields of a Pod's specification that choose its node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    #[serde(skip_serializing_if = "Option::is_none")]
    node_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_selector: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity: Option<PlacementAffinity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
}

/// The affinity to nodes. That to Pods is left alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PlacementAffinity {
    #[serde(skip_serializing_if = "Option::is_none")]
    node_affinity: Option<NodeAffinity>,
}

impl Placement {
    /// Whether somebody else has chosen the one node of the Pod, or will. To keep away from that node would leave it without any.
    pub fn is_pinned(&self) -> bool {
        let affinity = self.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let gates = self.scheduling_gates.as_deref();
        Pin::of(self.node_name.as_deref(), self.node_selector.as_ref(), affinity, gates).is_some()
    }

    /// The same with an affinity that keeps away from these nodes. What is there stays. Doing it twice changes nothing.
    pub fn keep_away(&self, avoidance: &Avoidance) -> Self {
        let mut placement = self.clone();
        let affinity = placement.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
        match avoidance.how {
            AvoidNodes::Preferred => prefer(affinity, elsewhere(avoidance)),
            AvoidNodes::Required => require(affinity, elsewhere(avoidance)),
        }
        placement
    }
}

/// The nodes that are neither among those that are avoided, nor in their domains.
fn elsewhere(avoidance: &Avoidance) -> NodeSelectorTerm {
    let not = |key: &str, value: &str| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(vec![value.to_owned()]),
    };
    let nodes = avoidance.nodes.iter().map(|node| not(NODE_NAME, node)).collect();
    let domains: Vec<_> = avoidance.domains.iter().map(|Domain { key, value }| not(key, value)).collect();
    let match_expressions = (!domains.is_empty()).then_some(domains);
    NodeSelectorTerm { match_fields: Some(nodes), match_expressions }
}

fn prefer(affinity: &mut NodeAffinity, elsewhere: NodeSelectorTerm) {
    let term = PreferredSchedulingTerm { weight: WEIGHT, preference: elsewhere };
    let terms = affinity.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
    if !terms.contains(&term) {
        terms.push(term);
    }
}

/// One term is enough for the scheduler, so each of them gets the requirements. A term without any requirement matches no node, and a
/// selector without terms is invalid: both are left as they are.
fn require(affinity: &mut NodeAffinity, elsewhere: NodeSelectorTerm) {
    let required = &mut affinity.required_during_scheduling_ignored_during_execution;
    let Some(selector) = required else {
        *required = Some(NodeSelector { node_selector_terms: vec![elsewhere] });
        return;
    };
    for term in selector.node_selector_terms.iter_mut().filter(|term| requirements(term).next().is_some()) {
        add(&mut term.match_fields, elsewhere.match_fields.as_deref());
        add(&mut term.match_expressions, elsewhere.match_expressions.as_deref());
    }
}

fn add(requirements: &mut Option<Vec<NodeSelectorRequirement>>, more: Option<&[NodeSelectorRequirement]>) {
    for requirement in more.unwrap_or_default() {
        let requirements = requirements.get_or_insert_default();
        if !requirements.contains(requirement) {
            requirements.push(requirement.clone());
        }
    }
}

fn requirements(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    [&term.match_expressions, &term.match_fields].into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn placement(spec: Value) -> Placement {
        serde_json::from_value(spec).unwrap()
    }

    fn avoidance(how: AvoidNodes) -> Avoidance {
        Avoidance { nodes: vec!["bad".to_owned(), "worse".to_owned()], domains: Vec::new(), how }
    }

    fn is_not(node: &str) -> Value {
        json!({ "key": "metadata.name", "operator": "NotIn", "values": [node] })
    }

    fn required(terms: &Value) -> Value {
        json!({ "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } })
    }

    fn in_zone(zone: &str) -> Value {
        json!({ "key": "zone", "operator": "In", "values": [zone] })
    }

    /// The node affinity of a Pod that keeps away.
    fn kept_away(how: AvoidNodes, spec: Value) -> Value {
        let kept = placement(spec).keep_away(&avoidance(how));
        assert_eq!(kept.keep_away(&avoidance(how)), kept, "twice is once");
        serde_json::to_value(kept).unwrap()["affinity"]["nodeAffinity"].take()
    }

    #[rstest]
    #[case::nothing(json!({ "containers": [] }))]
    #[case::empty(json!({ "affinity": {} }))]
    #[case::of_pods(json!({ "affinity": { "podAffinity": { "a": 1 }, "nodeAffinity": null } }))]
    fn preference_names_all_nodes_in_one_term(#[case] spec: Value) {
        let term = json!({ "weight": 100, "preference": { "matchFields": [is_not("bad"), is_not("worse")] } });
        let expected = json!({ "preferredDuringSchedulingIgnoredDuringExecution": [term] });
        assert_eq!(kept_away(AvoidNodes::Preferred, spec), expected);
    }

    #[test]
    fn preferences_and_requirements_of_the_user_stay() {
        let own = json!({ "weight": 7, "preference": { "matchExpressions": [in_zone("a")] } });
        let mut spec = required(&json!([{ "matchExpressions": [in_zone("b")] }]));
        spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([own]);
        let kept = kept_away(AvoidNodes::Preferred, spec.clone());
        let preferred = &kept["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!((&preferred[0], preferred.as_array().unwrap().len()), (&own, 2));
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        assert_eq!(kept[required], spec["affinity"]["nodeAffinity"][required]);
    }

    #[test]
    fn requirement_goes_into_each_term() {
        let terms = json!([
            { "matchExpressions": [in_zone("a")] },
            { "matchFields": [is_not("bad")] },
        ]);
        let expected = json!([
            { "matchExpressions": [in_zone("a")], "matchFields": [is_not("bad"), is_not("worse")] },
            { "matchFields": [is_not("bad"), is_not("worse")] },
        ]);
        let kept = kept_away(AvoidNodes::Required, required(&terms));
        assert_eq!(kept["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"], expected);
        let alone = kept_away(AvoidNodes::Required, json!({}));
        let term = &alone["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        assert_eq!(*term, json!([{ "matchFields": [is_not("bad"), is_not("worse")] }]));
    }

    #[test]
    fn domain_is_kept_away_from_by_its_label() {
        let domains = vec![Domain { key: "rack".to_owned(), value: "r1".to_owned() }];
        let avoidance = |how| Avoidance { domains: domains.clone(), ..avoidance(how) };
        let expected = json!({ "matchFields": [is_not("bad"), is_not("worse")],
            "matchExpressions": [{ "key": "rack", "operator": "NotIn", "values": ["r1"] }] });
        let kept = |how| serde_json::to_value(placement(json!({})).keep_away(&avoidance(how))).unwrap();
        let preferred = "/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/preference";
        assert_eq!(kept(AvoidNodes::Preferred).pointer(preferred), Some(&expected));
        let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
        assert_eq!(kept(AvoidNodes::Required).pointer(required), Some(&expected));
    }

    #[rstest]
    #[case::term_that_matches_nothing(json!([{}]))]
    #[case::no_term(json!([]))]
    fn term_without_requirement_is_left_alone(#[case] terms: Value) {
        let kept = kept_away(AvoidNodes::Required, required(&terms));
        assert_eq!(kept["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"], terms);
    }

    #[rstest]
    #[case::node(json!({ "nodeName": "a" }), true)]
    #[case::host(json!({ "nodeSelector": { "kubernetes.io/hostname": "a" } }), true)]
    #[case::gate(json!({ "schedulingGates": [{ "name": "kueue.x-k8s.io/topology" }] }), true)]
    #[case::required_host(required(&json!([{ "matchExpressions": [
        { "key": "kubernetes.io/hostname", "operator": "In", "values": ["a"] }] }])), true)]
    #[case::rack(json!({ "nodeSelector": { "rack": "r1" }, "schedulingGates": [{ "name": "example.com/gate" }] }), false)]
    #[case::nothing(json!({ "nodeName": "" }), false)]
    fn pod_with_one_possible_node_is_pinned(#[case] spec: Value, #[case] expected: bool) {
        assert_eq!(placement(spec).is_pinned(), expected);
    }
}
