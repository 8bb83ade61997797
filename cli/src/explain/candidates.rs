//! Which nodes a Pod may use: by its node selector, its required node affinity and its tolerations.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;

/// Domains of taints that Kubernetes sets while a node is not ready, cordoned or short of something: they go.
const OF_KUBERNETES: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// What the scheduler reads of a node.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = Node)]
pub struct CandidateNode {
    #[serde(default, deserialize_with = "jobset_objects::whole_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: CandidateSpec,
    #[serde(default)]
    pub(super) status: CandidateStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CandidateSpec {
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CandidateStatus {
    /// What Pods can request of the node, as quantities by the names of resources.
    pub(super) allocatable: BTreeMap<String, String>,
}

/// The nodes that a Pod may use.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NodeChoice {
    selector: BTreeMap<String, String>,
    /// Terms of which one has to match, if there are any.
    terms: Option<Vec<NodeSelectorTerm>>,
    tolerations: Vec<Toleration>,
}

impl NodeChoice {
    pub(super) fn of(pod: &PodSpec) -> Self {
        let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        Self {
            selector: pod.node_selector.clone().unwrap_or_default(),
            terms: required.map(|required| required.node_selector_terms.clone()),
            tolerations: pod.tolerations.clone().unwrap_or_default(),
        }
    }

    /// Those of these nodes that the Pod may use, and which they are, in words; nothing if these are all.
    ///
    /// # Errors
    /// If there is none: why.
    pub(super) fn narrow<'a>(
        &self,
        mut nodes: Vec<&'a CandidateNode>,
    ) -> Result<(Vec<&'a CandidateNode>, String), String> {
        let selected: Vec<String> = self.selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let selected = selected.join(", ");
        let all = nodes.len();
        nodes.retain(|node| self.selector.iter().all(|(key, value)| node.labels().get(key) == Some(value)));
        if nodes.is_empty() {
            return Err(format!("no node has {selected}"));
        }
        let mut which = if nodes.len() < all { vec![format!(" with {selected}")] } else { Vec::new() };
        let left = nodes.len();
        nodes.retain(|node| self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| matches(term, node))));
        if nodes.is_empty() {
            return Err(format!("no node{} matches its required node affinity", which.concat()));
        }
        which.extend((nodes.len() < left).then(|| " that its required node affinity allows".to_owned()));
        let (left, first) = (nodes.len(), nodes.first().and_then(|node| self.untolerated(node)));
        nodes.retain(|node| self.untolerated(node).is_none());
        match first {
            Some(Taint { key, value, effect, .. }) if nodes.is_empty() => {
                let value = value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
                let which = which.join(" and");
                let text = "has a taint that it does not tolerate, such as";
                return Err(format!("each node{which} {text} {key}{value}:{effect}"));
            }
            _ => which.extend((nodes.len() < left).then(|| " whose taints it tolerates".to_owned())),
        }
        Ok((nodes, which.join(" and")))
    }

    /// A taint of the node that keeps the Pod away for good.
    fn untolerated<'a>(&self, node: &'a CandidateNode) -> Option<&'a Taint> {
        let stays = |taint: &&Taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
                && !OF_KUBERNETES.iter().any(|domain| taint.key.starts_with(domain))
        };
        let tolerated = |taint: &Taint| self.tolerations.iter().any(|toleration| tolerates(toleration, taint));
        node.spec.taints.iter().filter(stays).find(|taint| !tolerated(taint))
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_any = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    let has = |text: &Option<String>, wanted: &str| text.as_deref() == Some(wanted);
    let of_effect = is_any(&toleration.effect) || has(&toleration.effect, &taint.effect);
    let of_key = is_any(&toleration.key) || has(&toleration.key, &taint.key);
    let of_value = match toleration.operator.as_deref() {
        None | Some("" | "Equal") => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        // Exists, or a comparison, of which the scheduler knows.
        Some(_) => true,
    };
    of_effect && of_key && of_value
}

/// Whether a node matches a term, all of its requirements. One without any matches none.
fn matches(term: &NodeSelectorTerm, node: &CandidateNode) -> bool {
    let (expressions, fields) = (term.match_expressions.as_deref(), term.match_fields.as_deref());
    let (expressions, fields) = (expressions.unwrap_or_default(), fields.unwrap_or_default());
    let name = node.name_any();
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|it| holds(it, node.labels().get(&it.key).map(String::as_str)))
        && fields.iter().all(|it| it.key != jobset_objects::NODE_NAME || holds(it, Some(&name)))
}

/// Whether a label or field of a node has what is required.
fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_in = || value.is_some_and(|value| values.iter().any(|it| it == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => is_in(),
        "NotIn" => !is_in(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, limit)| value > limit),
        "Lt" => numbers().is_some_and(|(value, limit)| value < limit),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::is_in(json!({"key": "rack", "operator": "In", "values": ["a", "b"]}), true)]
    #[case::is_not_in(json!({"key": "rack", "operator": "NotIn", "values": ["b"]}), true)]
    #[case::absent_is_in_nothing(json!({"key": "pool", "operator": "NotIn", "values": ["b"]}), true)]
    #[case::absent(json!({"key": "pool", "operator": "Exists"}), false)]
    #[case::must_be_absent(json!({"key": "rack", "operator": "DoesNotExist"}), false)]
    #[case::greater(json!({"key": "gpus", "operator": "Gt", "values": ["4"]}), true)]
    #[case::less(json!({"key": "gpus", "operator": "Lt", "values": ["8"]}), false)]
    #[case::later_operator(json!({"key": "rack", "operator": "Later"}), true)]
    fn requirement_holds_as_for_the_scheduler(#[case] requirement: Value, #[case] expected: bool) {
        let labels = json!({"rack": "a", "gpus": "8"});
        let node = serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).unwrap();
        let term = |of: Value| -> NodeSelectorTerm { serde_json::from_value(of).unwrap() };
        assert_eq!(matches(&term(json!({"matchExpressions": [requirement]})), &node), expected);
        assert!(!matches(&term(json!({})), &node), "a term without requirements");
        let named = |name| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(matches(&term(named("n")), &node) && !matches(&term(named("m")), &node));
    }

    #[rstest]
    #[case::equal(json!({"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}), true)]
    #[case::default_operator(json!({"key": "team", "value": "x"}), true)]
    #[case::another_value(json!({"key": "team", "value": "y"}), false)]
    #[case::exists(json!({"key": "team", "operator": "Exists"}), true)]
    #[case::all(json!({"operator": "Exists"}), true)]
    #[case::another_key(json!({"key": "pool", "operator": "Exists"}), false)]
    #[case::another_effect(json!({"key": "team", "operator": "Exists", "effect": "NoExecute"}), false)]
    fn taint_is_tolerated_as_for_the_scheduler(#[case] toleration: Value, #[case] expected: bool) {
        let taint = serde_json::from_value(json!({"key": "team", "value": "x", "effect": "NoSchedule"})).unwrap();
        assert_eq!(tolerates(&serde_json::from_value(toleration).unwrap(), &taint), expected);
    }
}
