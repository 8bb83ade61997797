//! What of a Pod's specification pins it to nodes by their names.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::PartialPod;

/// Node label with the name of the host.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

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

/// The terms of a node selector, of which one has to match. `Some` if there are any: whether all of them list names of nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Terms(Option<bool>);

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    match_expressions: Requirements,
    match_fields: Requirements,
}

/// The requirements of a term, all of which have to match.
#[derive(Clone, Copy, Debug, Default)]
struct Requirements {
    /// Whether one lists values.
    lists: bool,
    /// Whether one lists names of hosts.
    lists_hosts: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
}

impl Terms {
    fn with(self, term: Term) -> Self {
        // The only field of a node that can be selected is its name.
        let lists_nodes = term.match_fields.lists || term.match_expressions.lists_hosts;
        Self(Some(self.0.unwrap_or(true) && lists_nodes))
    }
}

impl Requirements {
    fn with(self, requirement: &Requirement) -> Self {
        let lists = requirement.operator == "In";
        Self { lists: self.lists || lists, lists_hosts: self.lists_hosts || lists && requirement.key == HOSTNAME }
    }
}

impl<'de> Deserialize<'de> for Terms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fold(deserializer, Self::with)
    }
}

impl<'de> Deserialize<'de> for Requirements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fold(deserializer, |all, requirement| Self::with(all, &requirement))
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

impl PartialPod {
    /// Whether its own specification names the nodes that it may run on: by a selector, as Kueue's topology-aware scheduling sets
    /// it, or by a required affinity.
    pub fn is_pinned(&self) -> bool {
        let by_affinity = self.spec.affinity.node_affinity.required.node_selector_terms.0 == Some(true);
        by_affinity || self.spec.node_selector.get(HOSTNAME).is_some()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn required(terms: &Value) -> Value {
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        json!({"affinity": {"nodeAffinity": required}})
    }

    fn expression(key: &str, operator: &str) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": ["a"]}]})
    }

    #[rstest]
    #[case::nothing(json!({}), false)]
    #[case::another_selector(json!({"nodeSelector": {"rack": "r1"}}), false)]
    #[case::host(json!({"nodeSelector": {"rack": "r1", HOSTNAME: "a"}}), true)]
    #[case::affinity_to_hosts(required(&json!([expression(HOSTNAME, "In")])), true)]
    #[case::affinity_to_names(required(&json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}])), true)]
    #[case::away_from_hosts(required(&json!([expression(HOSTNAME, "NotIn")])), false)]
    #[case::affinity_to_racks(required(&json!([expression("rack", "In")])), false)]
    #[case::host_or_rack(required(&json!([expression(HOSTNAME, "In"), expression("rack", "In")])), false)]
    #[case::preferred(json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": expression(HOSTNAME, "In")}]}}}), false)]
    fn pod_that_names_its_nodes_is_pinned(#[case] spec: Value, #[case] pinned: bool) {
        let pod: PartialPod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        assert_eq!(pod.is_pinned(), pinned);
    }
}
