//! What the rules read of nodes: where they are, whether they are lost, and what their kubelet can do.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jobset_api::in_place::kubelet_can;
use jobset_objects::PartialNode;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

/// Taint of a node that the control plane cannot reach. A node that is merely not ready has another.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Taint that the control plane gives to a node that is cordoned.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Labels: topology domains are named by them.
    labels: BTreeMap<Arc<str>, Arc<str>>,
    /// When it joined the cluster. A machine that is repaired may join again by the same name.
    pub created: Option<Timestamp>,
    /// Since when it carries the taint, if it does.
    pub unreachable_since: Option<Timestamp>,
    /// Since when it is cordoned, as its taint says, if it is.
    pub cordoned_since: Option<Timestamp>,
    /// Whether its kubelet says that it is ready, and the control plane has heard of it.
    pub ready: bool,
    /// Whether its kubelet cannot restart Pods in place: it is too old, or the feature is switched off. One that does
    /// not tell is trusted.
    pub cannot_restart_in_place: bool,
}

impl NodeView {
    pub fn domain(&self, topology_key: &str) -> Option<&str> {
        self.labels.get(topology_key).map(|value| &**value)
    }
}

#[derive(Debug, Default)]
pub struct Nodes {
    by_name: HashMap<Arc<str>, NodeView>,
    /// Texts of labels, each once: thousands of nodes share them.
    texts: HashSet<Arc<str>>,
    unreachable: BTreeSet<Arc<str>>,
    cordoned: BTreeSet<Arc<str>>,
    outdated: BTreeSet<Arc<str>>,
}

impl Nodes {
    /// A node was observed. Returns whether a rule could decide differently because of it.
    pub fn apply(&mut self, node: &PartialNode) -> bool {
        let name: Arc<str> = node.name_any().into();
        let view = self.reduce(node);
        let sets = [
            (&mut self.unreachable, view.unreachable_since.is_some()),
            (&mut self.cordoned, view.cordoned_since.is_some()),
            (&mut self.outdated, view.cannot_restart_in_place),
        ];
        for (set, holds) in sets {
            if holds {
                set.insert(name.clone());
            } else {
                set.remove(&name);
            }
        }
        let before = self.by_name.insert(name.clone(), view);
        before.as_ref() != self.by_name.get(&name)
    }

    pub fn delete(&mut self, name: &str) {
        self.by_name.remove(name);
        self.unreachable.remove(name);
        self.cordoned.remove(name);
        self.outdated.remove(name);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
    }

    pub fn get(&self, name: &str) -> Option<&NodeView> {
        self.by_name.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &NodeView)> {
        self.by_name.iter().map(|(name, view)| (&**name, view))
    }

    pub fn any_unreachable(&self) -> bool {
        !self.unreachable.is_empty()
    }

    pub fn any_cordoned(&self) -> bool {
        !self.cordoned.is_empty()
    }

    /// Whether any node has a kubelet that cannot restart Pods in place.
    pub fn any_outdated(&self) -> bool {
        !self.outdated.is_empty()
    }

    /// Whether there are nodes, and none of them can restart Pods in place.
    pub fn all_outdated(&self) -> bool {
        !self.by_name.is_empty() && self.outdated.len() == self.by_name.len()
    }

    fn reduce(&mut self, node: &PartialNode) -> NodeView {
        // A node may carry a taint twice, with two effects, and without a time where no controller has added it.
        let since = |key: &str| {
            let taints = node.spec.taints.iter().filter(|it| it.key == key);
            taints.filter_map(|it| it.time_added.as_ref()).min().map(|time| time.0)
        };
        let labels = node.labels().iter().map(|(key, value)| (self.text(key), self.text(value))).collect();
        NodeView {
            labels,
            created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
            unreachable_since: since(UNREACHABLE),
            cordoned_since: since(UNSCHEDULABLE).filter(|_| node.spec.unschedulable),
            ready: node.status.conditions.iter().any(|it| it.type_ == "Ready" && it.is_true()),
            cannot_restart_in_place: !kubelet_can(
                &node.status.declared_features,
                &node.status.node_info.kubelet_version,
            ),
        }
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }
}

#[cfg(test)]
mod tests {
    use jobset_api::in_place::FEATURE;
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, part: &Value) -> PartialNode {
        let mut node = json!({"metadata": {"name": name, "labels": {"rack": "r1"}}});
        json_patch::merge(&mut node, part);
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn node_with_taint_is_unreachable_unready_one_is_not() {
        let mut nodes = Nodes::default();
        let tainted = |key: &str| {
            node(
                "a",
                &json!({"spec": {"taints": [{"key": key, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]}}),
            )
        };
        assert!(nodes.apply(&tainted("node.kubernetes.io/not-ready")));
        assert!(!nodes.any_unreachable());
        let unscheduled = json!({"spec": {"taints": [{"key": UNREACHABLE, "effect": "NoSchedule"}]}});
        nodes.apply(&node("a", &unscheduled));
        assert!(!nodes.any_unreachable(), "nothing is done before it is known since when");
        assert!(nodes.apply(&tainted(UNREACHABLE)));
        assert!(!nodes.apply(&tainted(UNREACHABLE)), "nothing new");
        assert_eq!(nodes.get("a").unwrap().unreachable_since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        nodes.apply(&node("a", &json!({})));
        assert!(!nodes.any_unreachable());
    }

    #[test]
    fn node_is_cordoned_since_its_taint_was_added() {
        let mut nodes = Nodes::default();
        let taint = json!([{"key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]);
        for (spec, since) in [
            (json!({"unschedulable": true}), None),
            (json!({"unschedulable": true, "taints": taint}), Some("2026-01-01T00:00:00Z".parse().unwrap())),
            (json!({"taints": taint}), None),
            (json!({"unschedulable": true, "taints": [{"key": UNSCHEDULABLE, "effect": "NoSchedule"}]}), None),
        ] {
            nodes.apply(&node("a", &json!({ "spec": spec })));
            assert_eq!(
                (nodes.get("a").unwrap().cordoned_since, nodes.any_cordoned()),
                (since, since.is_some()),
                "{spec}"
            );
        }
        nodes.apply(&node("a", &json!({"spec": {"unschedulable": true, "taints": taint}})));
        nodes.delete("a");
        assert!(!nodes.any_cordoned());
    }

    #[test]
    fn kubelet_without_feature_cannot_restart_in_place() {
        let mut nodes = Nodes::default();
        for (status, cannot) in [
            (json!({"nodeInfo": {"kubeletVersion": "v1.35.2"}}), true),
            (json!({"nodeInfo": {"kubeletVersion": "v1.36.0"}}), false),
            (json!({"nodeInfo": {"kubeletVersion": "v1.36.0"}, "declaredFeatures": ["Another"]}), true),
            (json!({"nodeInfo": {"kubeletVersion": "v1.35.2"}, "declaredFeatures": [FEATURE]}), false),
        ] {
            nodes.apply(&node("a", &json!({"status": status})));
            assert_eq!(nodes.get("a").map(|node| node.cannot_restart_in_place), Some(cannot), "{status}");
        }
    }
}
