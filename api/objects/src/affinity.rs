//! What of a Pod's specification leaves it no choice between nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use jobset_protocol::labels;
use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodSchedulingGate};
use kube::ResourceExt as _;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::PartialPod;

/// Node label with the name of the host.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The field of a node with its name.
pub const NODE_NAME: &str = "metadata.name";

/// Kueue's topology-aware scheduling has its Pods wait at this gate. It opens it with a selector for the node that it has assigned, and assigns
/// the same one again.
const KUEUE_TOPOLOGY: &str = "kueue.x-k8s.io/topology";

/// Who leaves a Pod one node to run on, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// Its specification: a node, a selector for a host, or a required affinity all of whose terms name one and the same node.
    Specification,
    /// Kueue's topology-aware scheduling.
    Kueue,
}

/// The part of an affinity that the programs read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialAffinity {
    node_affinity: PartialNodeAffinity,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PartialNodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: PartialNodeSelector,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialNodeSelector {
    node_selector_terms: Terms,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Names {
    #[default]
    None,
    One(Box<str>),
    /// Several, or none where each counts.
    Other,
}

/// The terms of a node selector, of which one has to match: the nodes that they name.
#[derive(Clone, Debug, Default)]
struct Terms(Names);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    match_expressions: Requirements,
    match_fields: Requirements,
}

/// The requirements of a term, all of which have to match: the node of the first that names one alone.
#[derive(Clone, Debug, Default)]
struct Requirements(Option<Box<str>>);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Values,
}

#[derive(Clone, Debug, Default)]
struct Values(Names);

impl Names {
    fn with(self, name: Box<str>) -> Self {
        match self {
            Self::None => Self::One(name),
            Self::One(known) if known == name => Self::One(known),
            Self::One(_) | Self::Other => Self::Other,
        }
    }

    fn only(self) -> Option<Box<str>> {
        if let Self::One(name) = self { Some(name) } else { None }
    }
}

impl Terms {
    fn with(self, term: Term) -> Self {
        let node = term.match_fields.0.or(term.match_expressions.0);
        Self(node.map_or(Names::Other, |node| self.0.with(node)))
    }
}

impl Requirements {
    fn with(self, requirement: Requirement) -> Self {
        let names_node = requirement.operator == "In" && [HOSTNAME, NODE_NAME].contains(&&*requirement.key);
        Self(self.0.or_else(|| requirement.values.0.only().filter(|_| names_node)))
    }
}

impl Values {
    fn with(self, value: String) -> Self {
        Self(self.0.with(value.into()))
    }
}

impl<'de> Deserialize<'de> for Terms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fold(deserializer, Self::with)
    }
}

impl<'de> Deserialize<'de> for Requirements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fold(deserializer, Self::with)
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fold(deserializer, Self::with)
    }
}

impl From<&NodeSelectorTerm> for Term {
    fn from(term: &NodeSelectorTerm) -> Self {
        let requirements = |list: &Option<Vec<NodeSelectorRequirement>>| {
            list.iter().flatten().map(Requirement::from).fold(Requirements::default(), Requirements::with)
        };
        Self {
            match_expressions: requirements(&term.match_expressions),
            match_fields: requirements(&term.match_fields),
        }
    }
}

impl From<&NodeSelectorRequirement> for Requirement {
    fn from(requirement: &NodeSelectorRequirement) -> Self {
        let NodeSelectorRequirement { key, operator, values } = requirement;
        let values = values.iter().flatten().cloned().fold(Values::default(), Values::with);
        Self { key: key.clone(), operator: operator.clone(), values }
    }
}

/// Reads a list item by item, and keeps none: its length is up to whoever writes the object.
fn fold<'de, D, T, A>(deserializer: D, with: impl Fn(A, T) -> A) -> Result<A, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    A: Default,
{
    deserializer.deserialize_seq(Fold { with, item: PhantomData })
}

struct Fold<T, A, F: Fn(A, T) -> A> {
    with: F,
    item: PhantomData<(T, A)>,
}

impl<'de, T: Deserialize<'de>, A: Default, F: Fn(A, T) -> A> Visitor<'de> for Fold<T, A, F> {
    type Value = A;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<A, S::Error> {
        let mut read = A::default();
        while let Some(item) = list.next_element()? {
            read = (self.with)(read, item);
        }
        Ok(read)
    }
}

impl Pin {
    /// Who pins Pods that are created with this specification, if somebody does.
    pub fn of(
        node_name: Option<&str>,
        selector: Option<&BTreeMap<String, String>>,
        affinity: Option<&NodeAffinity>,
        gates: Option<&[PodSchedulingGate]>,
    ) -> Option<Self> {
        if gates.unwrap_or_default().iter().any(|gate| gate.name == KUEUE_TOPOLOGY) {
            return Some(Self::Kueue);
        }
        let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = required.into_iter().flat_map(|it| &it.node_selector_terms).map(Term::from);
        let is_pinned = node_name.is_some_and(|node| !node.is_empty())
            || selector.is_some_and(|selector| selector.contains_key(HOSTNAME))
            || terms.fold(Terms::default(), Terms::with).0.only().is_some();
        is_pinned.then_some(Self::Specification)
    }
}

impl PartialPod {
    /// Whether its specification has left it the one node that it is bound to, as [`Pin`] says. The selector that exclusive placement adds
    /// does not pin: it follows the leader of the Job wherever that goes.
    pub fn is_pinned(&self) -> bool {
        let terms = &self.spec.affinity.node_affinity.required.node_selector_terms;
        let follows = self.annotations().get(labels::EXCLUSIVE_TOPOLOGY).is_some_and(|key| key == HOSTNAME);
        let selects = self.spec.node_selector.get(HOSTNAME).is_some() && !follows;
        matches!(terms.0, Names::One(_)) || selects
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn required(terms: &Value) -> Value {
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        json!({"affinity": {"nodeAffinity": required}})
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    fn named(node: &str) -> Value {
        json!({"matchFields": [{"key": NODE_NAME, "operator": "In", "values": [node]}]})
    }

    #[rstest]
    #[case::nothing(json!({}), false)]
    #[case::another_selector(json!({"nodeSelector": {"rack": "r1"}}), false)]
    #[case::host(json!({"nodeSelector": {"rack": "r1", HOSTNAME: "a"}}), true)]
    #[case::affinity_to_host(required(&json!([expression(HOSTNAME, "In", &["a"])])), true)]
    #[case::affinity_to_host_of_rack(required(&json!([{"matchExpressions": [
        {"key": "rack", "operator": "Exists"}, {"key": HOSTNAME, "operator": "In", "values": ["a"]}]}])), true)]
    #[case::affinity_to_name(required(&json!([named("a")])), true)]
    #[case::affinity_to_two_hosts(required(&json!([expression(HOSTNAME, "In", &["a", "b"])])), false)]
    #[case::same_node_in_two_terms(required(&json!([named("a"), expression(HOSTNAME, "In", &["a"])])), true)]
    #[case::two_nodes_in_two_terms(required(&json!([named("a"), named("b"), named("a")])), false)]
    #[case::away_from_hosts(required(&json!([expression(HOSTNAME, "NotIn", &["a"])])), false)]
    #[case::has_host(required(&json!([expression(HOSTNAME, "Exists", &[])])), false)]
    #[case::affinity_to_racks(required(&json!([expression("rack", "In", &["a"])])), false)]
    #[case::host_or_rack(required(&json!([expression(HOSTNAME, "In", &["a"]), expression("rack", "In", &["a"])])), false)]
    #[case::rack_or_host(required(&json!([expression("rack", "In", &["a"]), expression(HOSTNAME, "In", &["a"])])), false)]
    #[case::no_term(required(&json!([])), false)]
    #[case::preferred(json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": expression(HOSTNAME, "In", &["a"])}]}}}), false)]
    fn pod_that_has_one_node_to_run_on_is_pinned(#[case] spec: Value, #[case] pinned: bool) {
        let pod: PartialPod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        assert_eq!(pod.is_pinned(), pinned);
        assert_eq!(pin_of(spec).is_some(), pinned);
    }

    #[rstest]
    #[case::host(HOSTNAME, json!({"nodeSelector": {HOSTNAME: "a"}}), false)]
    #[case::rack("rack", json!({"nodeSelector": {HOSTNAME: "a"}}), true)]
    #[case::affinity(HOSTNAME, required(&json!([named("a")])), true)]
    fn follower_is_not_pinned_by_its_own_topology(#[case] key: &str, #[case] spec: Value, #[case] pinned: bool) {
        let annotations = json!({(labels::EXCLUSIVE_TOPOLOGY): key});
        let pod = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        assert_eq!(serde_json::from_value::<PartialPod>(pod).unwrap().is_pinned(), pinned);
    }

    fn pin_of(mut spec: Value) -> Option<Pin> {
        spec["containers"] = json!([]);
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let affinity = spec.affinity.and_then(|it| it.node_affinity);
        let gates = spec.scheduling_gates.as_deref();
        Pin::of(spec.node_name.as_deref(), spec.node_selector.as_ref(), affinity.as_ref(), gates)
    }

    #[rstest]
    #[case::node(json!({"nodeName": "a"}), Some(Pin::Specification))]
    #[case::no_name(json!({"nodeName": ""}), None)]
    #[case::gate_of_kueue(json!({"schedulingGates": [{"name": KUEUE_TOPOLOGY}]}), Some(Pin::Kueue))]
    #[case::another_gate(json!({"schedulingGates": [{"name": "example.com/gate"}]}), None)]
    fn pod_that_is_not_scheduled_yet_is_pinned(#[case] spec: Value, #[case] pin: Option<Pin>) {
        assert_eq!(pin_of(spec), pin);
    }
}
