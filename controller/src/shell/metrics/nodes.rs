//! Nodes that JobSets avoid, and nodes that several JobSets blame.
//!
//! Each reconciliation keeps the nodes of its JobSet, and a scrape makes the series from them. A node has a series of its own only while
//! two or more JobSets blame it. One failure is little: JobSets that blame one each count once for their namespace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use jobset_api::nodes::STRIKE_LASTS;
use jobset_api::{JobSet, JobSetStatus};
use jobset_metrics::{Family, register_families};
use jobset_program::lock;
use jobset_store::Key;
use k8s_openapi::jiff::Timestamp;
use prometheus::Registry;

const MOST_NODES: usize = 100;

/// The nodes that JobSets blame and avoid as of their last reconciliation, shared with the scrapes.
#[derive(Clone, Default)]
pub(in crate::shell) struct NodeMetrics(Arc<Mutex<HashMap<Key, NodesOfJobSet>>>);

#[derive(Clone, Debug, Default)]
struct NodesOfJobSet {
    /// Each node that the JobSet blames, and for failures of which times.
    blamed: BTreeMap<String, Vec<Timestamp>>,
    avoided: Vec<Timestamp>,
}

impl NodeMetrics {
    pub(in crate::shell) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self::default();
        let scraped = metrics.clone();
        register_families(registry, move || {
            // The loop waits for the copy, and not until the series are made.
            let nodes = lock(&scraped.0).clone();
            families(&nodes, Timestamp::now())
        })?;
        Ok(metrics)
    }

    /// A reconciliation of the JobSet begins.
    pub(in crate::shell) fn see(&self, key: &Key, jobset: &JobSet) {
        let nodes = jobset.status.as_ref().and_then(NodesOfJobSet::of);
        let mut all = lock(&self.0);
        match nodes {
            Some(nodes) => drop(all.insert(key.clone(), nodes)),
            None => drop(all.remove(key)),
        }
    }

    /// The JobSet is gone.
    pub(in crate::shell) fn forget(&self, key: &Key) {
        lock(&self.0).remove(key);
    }
}

impl NodesOfJobSet {
    /// `None` if the JobSet blames and avoids none.
    fn of(status: &JobSetStatus) -> Option<Self> {
        let mut nodes = Self::default();
        for strike in status.node_strikes.iter().filter(|strike| !strike.is_of_index(&status.node_strikes)) {
            nodes.blamed.entry(strike.node.clone()).or_default().push(strike.time.0);
        }
        // A JobSet that has finished has no new Pods.
        if !status.is_finished() {
            nodes.avoided = status.avoided_nodes.iter().map(|it| it.until.0).collect();
        }
        (!nodes.blamed.is_empty() || !nodes.avoided.is_empty()).then_some(nodes)
    }
}

fn families(nodes: &HashMap<Key, NodesOfJobSet>, now: Timestamp) -> Vec<Family> {
    let mut avoided = Family::gauge(
        "jobset_avoided_nodes",
        "Nodes that JobSets of the namespace avoid, those of each JobSet counted by themselves.",
        &["namespace"],
    );
    let mut blaming = Family::gauge(
        "jobset_node_blaming_jobsets",
        "JobSets that blame failures of the last 24 h on the node, where there are two or more; those that blame one failure count once \
         for their namespace, and failures of an index that fails on other nodes as well do not count; at most 100 nodes.",
        &["node"],
    );
    let mut by_namespace = BTreeMap::<&str, u32>::new();
    // Namespaces, with the JobSets of each that blame several failures.
    let mut by_node = BTreeMap::<&str, BTreeMap<&str, BTreeSet<&str>>>::new();
    for (key, nodes) in nodes {
        let lasting = nodes.avoided.iter().filter(|until| **until > now).count();
        *by_namespace.entry(&key.namespace).or_default() += u32::try_from(lasting).unwrap_or(u32::MAX);
        for (node, failures) in &nodes.blamed {
            match failures.iter().filter(|at| now.duration_since(**at) < STRIKE_LASTS).count() {
                0 => {}
                count => {
                    let jobsets = by_node.entry(node).or_default().entry(&*key.namespace).or_default();
                    jobsets.extend((count > 1).then_some(&*key.name));
                }
            }
        }
    }
    for (namespace, number) in by_namespace {
        avoided.add(&[namespace], number.into());
    }
    let count =
        |namespaces: BTreeMap<&str, BTreeSet<&str>>| namespaces.values().map(|it| it.len().max(1)).sum::<usize>();
    let several = by_node.into_iter().map(|(node, namespaces)| (node, count(namespaces)));
    let mut several: Vec<(&str, usize)> = several.filter(|(_, jobsets)| *jobsets > 1).collect();
    several.sort_by_key(|(_, jobsets)| std::cmp::Reverse(*jobsets));
    for (node, jobsets) in several.into_iter().take(MOST_NODES) {
        blaming.add(&[node], u32::try_from(jobsets).unwrap_or(u32::MAX).into());
    }
    vec![avoided, blaming]
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;
    use prometheus::proto::MetricFamily;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn series(metrics: &NodeMetrics, now: &str) -> Vec<String> {
        let families = families(&lock(&metrics.0), now.parse().unwrap()).into_iter().map(MetricFamily::from);
        // As registries do.
        let families: Vec<MetricFamily> = families.filter(|family| !family.get_metric().is_empty()).collect();
        let text = TextEncoder::new().encode_to_string(&families).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(ToOwned::to_owned).collect()
    }

    /// A JobSet `namespace/name` that blames so many failures on the node, one of each index.
    fn see_failures(metrics: &NodeMetrics, jobset: &str, node: &str, failures: u32) {
        let strike = |index| json!({"node": node, "time": "2026-01-01T00:00:00.000000Z", "job": "j", "index": index, "reason": "refused"});
        see_strikes(metrics, jobset, node, &(0..failures).map(strike).collect::<Vec<_>>());
    }

    fn see_strikes(metrics: &NodeMetrics, jobset: &str, node: &str, strikes: &[Value]) {
        let avoided = json!({"node": node, "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T01:00:00Z", "failures": 2, "reason": "Failures"});
        let key = key(jobset);
        let jobset = json!({
            "metadata": {"name": key.name, "namespace": key.namespace}, "spec": {},
            "status": {"nodeStrikes": strikes, "avoidedNodes": [avoided]},
        });
        metrics.see(&key, &serde_json::from_value(jobset).unwrap());
    }

    fn key(jobset: &str) -> Key {
        let (namespace, name) = jobset.split_once('/').unwrap();
        Key { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    const NOW: &str = "2026-01-01T00:30:00Z";

    #[test]
    fn node_has_series_while_several_jobsets_blame_it() {
        let metrics = NodeMetrics::default();
        let at = |now| series(&metrics, now);
        see_failures(&metrics, "ml/a", "node-1", 2);
        see_failures(&metrics, "ml/c", "node-2", 2);
        assert_eq!(at(NOW), [r#"jobset_avoided_nodes{namespace="ml"} 2"#]);
        see_failures(&metrics, "ml/b", "node-1", 2);
        let both = [r#"jobset_avoided_nodes{namespace="ml"} 3"#, r#"jobset_node_blaming_jobsets{node="node-1"} 2"#];
        assert_eq!(at(NOW), both);
        assert_eq!(at("2026-01-02T00:00:00Z"), [r#"jobset_avoided_nodes{namespace="ml"} 0"#]);
        metrics.forget(&key("ml/b"));
        assert_eq!(at(NOW), [r#"jobset_avoided_nodes{namespace="ml"} 2"#]);
    }

    #[rstest]
    #[case::one_failure_each_of_one_namespace(&[("ml/a", 1), ("ml/b", 1), ("ml/c", 1)], None)]
    #[case::one_failure_each_of_two_namespaces(&[("ml/a", 1), ("ml/b", 1), ("nlp/c", 1)], Some(2))]
    #[case::one_failure_beside_several(&[("ml/a", 1), ("ml/b", 2)], None)]
    #[case::several_each_of_one_namespace(&[("ml/a", 2), ("ml/b", 2)], Some(2))]
    fn single_failures_count_once_for_namespace(#[case] jobsets: &[(&str, u32)], #[case] expected: Option<u32>) {
        let metrics = NodeMetrics::default();
        for (jobset, failures) in jobsets {
            see_failures(&metrics, jobset, "node-1", *failures);
        }
        let expected = expected.map(|count| format!(r#"jobset_node_blaming_jobsets{{node="node-1"}} {count}"#));
        assert_eq!(series(&metrics, NOW).into_iter().find(|line| line.contains("blaming")), expected);
    }

    #[test]
    fn failures_of_index_at_fault_do_not_count() {
        let metrics = NodeMetrics::default();
        let strike = |node| json!({"node": node, "time": "2026-01-01T00:00:00.000000Z", "job": "j", "index": 0, "reason": "container_exit"});
        for jobset in ["ml/a", "nlp/b"] {
            see_strikes(&metrics, jobset, "node-1", &[strike("node-1"), strike("node-2")]);
        }
        assert!(!series(&metrics, NOW).iter().any(|line| line.contains("blaming")));
    }

    #[test]
    fn many_nodes_that_are_blamed_have_hundred_series() {
        let metrics = NodeMetrics::default();
        for node in 0..150 {
            let node = format!("node-{node}");
            for jobset in ["a", "b"] {
                see_failures(&metrics, &format!("ml/{node}-{jobset}"), &node, 2);
            }
        }
        assert_eq!(series(&metrics, NOW).len(), 1 + MOST_NODES);
    }
}
