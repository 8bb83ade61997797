//! What a JobSet says of the nodes that its Pods avoid. Pure.

use jobset_api::nodes::{self, AvoidedNode};
use jobset_api::{AvoidNodes, JobSet, is_dns1123_subdomain, is_label_key, labels};
use jobset_objects::metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;

/// The fields of a JobSet that are read. The parser skips its specification, which may have a megabyte.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = JobSet)]
pub struct AvoidingJobSet {
    #[serde(default, deserialize_with = "metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: AvoidingStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AvoidingStatus {
    avoided_nodes: Vec<AvoidedNode>,
}

/// What a new Pod keeps away from, at least one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Avoidance {
    pub nodes: Vec<String>,
    /// Topology domains that a Job leaves as a whole.
    pub domains: Vec<Domain>,
    pub how: AvoidNodes,
}

/// The nodes with this label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    pub key: String,
    pub value: String,
}

impl AvoidingJobSet {
    /// What a Pod keeps away from that belongs to the JobSet with this UID. `None` if that is another JobSet, or it avoids no node.
    ///
    /// A node whose time is over counts no longer, whether or not the controller has removed it from the status. The API server
    /// refuses a Pod whose affinity has something else than names and labels of nodes, so nothing else gets there.
    pub fn avoidance(&self, uid: &str, now: Timestamp) -> Option<Avoidance> {
        if self.metadata.uid.as_deref() != Some(uid) {
            return None;
        }
        let all = &self.status.avoided_nodes;
        let is_avoided = |it: &&AvoidedNode| now < it.until.0 && is_dns1123_subdomain(&it.node);
        let avoided: Vec<_> = all.iter().filter(is_avoided).take(nodes::KEPT).collect();
        let asked = self.annotations().get(labels::AVOID_NODES).and_then(|text| AvoidNodes::parse(text));
        let how = nodes::avoidance(asked.unwrap_or_default(), all);
        let domains = avoided.iter().filter_map(|it| domain(it)).collect();
        let nodes = avoided.iter().map(|it| it.node.clone()).collect();
        (!avoided.is_empty()).then_some(Avoidance { nodes, domains, how })
    }
}

fn domain(avoided: &AvoidedNode) -> Option<Domain> {
    let AvoidedNode { topology_key: key, domain: value, .. } = avoided;
    // A value of a label has the syntax of a key without a prefix.
    let is_label = is_label_key(key) && is_label_key(value) && !value.contains('/');
    is_label.then(|| Domain { key: key.clone(), value: value.clone() })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-01T12:00:00Z";
    const LATER: &str = "2026-01-01T13:00:00Z";

    fn jobset(annotations: &Value, avoided: &Value) -> AvoidingJobSet {
        let jobset = json!({ "metadata": { "name": "train", "uid": "u1", "annotations": annotations },
            "spec": { "replicatedJobs": [{ "name": "w", "from-the-future": [1] }] },
            "status": { "restarts": 3, "avoidedNodes": avoided } });
        serde_json::from_value(jobset).unwrap()
    }

    fn avoided(node: &str, until: &str) -> Value {
        json!({ "node": node, "since": "2026-01-01T11:30:00Z", "until": until, "failures": 2, "reason": "Failures", "later": 1 })
    }

    fn avoidance(jobset: &AvoidingJobSet, uid: &str) -> Option<Avoidance> {
        jobset.avoidance(uid, NOW.parse().unwrap())
    }

    #[test]
    fn node_is_avoided_until_its_time_is_over() {
        let list = json!([avoided("over", NOW), avoided("bad", "2026-01-01T12:00:01Z"), avoided("worse", LATER)]);
        assert_eq!(avoidance(&jobset(&json!({}), &list), "u1").unwrap().nodes, ["bad", "worse"]);
        assert_eq!(avoidance(&jobset(&json!({}), &json!([avoided("over", NOW)])), "u1"), None);
    }

    #[test]
    fn jobset_of_other_uid_avoids_nothing() {
        assert_eq!(avoidance(&jobset(&json!({}), &json!([avoided("bad", LATER)])), "u2"), None);
    }

    #[test]
    fn what_is_no_name_is_left_out() {
        let names = ["", "Upper", "a/b", "a..b", &"a".repeat(254)];
        let list: Value = names.iter().map(|name| avoided(name, LATER)).collect();
        assert_eq!(avoidance(&jobset(&json!({}), &list), "u1"), None);
    }

    #[test]
    fn at_most_sixteen_nodes_are_avoided() {
        let list: Value = (0..40).map(|index| avoided(&format!("n{index}"), LATER)).collect();
        assert_eq!(avoidance(&jobset(&json!({}), &list), "u1").unwrap().nodes.len(), nodes::KEPT);
    }

    #[rstest]
    #[case::rack("example.com/rack", "R_1", true)]
    #[case::none("", "", false)]
    #[case::no_value("example.com/rack", "", false)]
    #[case::path("example.com/rack", "a/b", false)]
    #[case::no_key("not a key", "r1", false)]
    fn domain_is_avoided_with_its_node(#[case] key: &str, #[case] value: &str, #[case] expected: bool) {
        let mut entry = avoided("bad", LATER);
        (entry["topologyKey"], entry["domain"]) = (json!(key), json!(value));
        let avoidance = avoidance(&jobset(&json!({}), &json!([entry])), "u1").unwrap();
        assert_eq!(avoidance.nodes, ["bad"]);
        let domain = Domain { key: key.to_owned(), value: value.to_owned() };
        assert_eq!(avoidance.domains, Vec::from_iter(expected.then_some(domain)));
    }

    #[rstest]
    #[case::absent(json!({}), false, AvoidNodes::Preferred)]
    #[case::preferred(json!({ labels::AVOID_NODES: "Preferred" }), false, AvoidNodes::Preferred)]
    #[case::required(json!({ labels::AVOID_NODES: "Required" }), false, AvoidNodes::Required)]
    #[case::relaxed(json!({ labels::AVOID_NODES: "Required" }), true, AvoidNodes::Preferred)]
    #[case::unknown(json!({ labels::AVOID_NODES: "Perhaps" }), false, AvoidNodes::Preferred)]
    fn annotation_says_how(#[case] annotations: Value, #[case] relaxed: bool, #[case] expected: AvoidNodes) {
        let mut entry = avoided("bad", LATER);
        entry["relaxed"] = json!(relaxed);
        let jobset = jobset(&annotations, &json!([avoided("worse", LATER), entry]));
        assert_eq!(avoidance(&jobset, "u1").unwrap().how, expected);
    }

    #[test]
    fn jobset_without_status_avoids_nothing() {
        let jobset: AvoidingJobSet = serde_json::from_value(json!({ "metadata": { "uid": "u1" } })).unwrap();
        assert_eq!(avoidance(&jobset, "u1"), None);
    }
}
