//! Nodes that JobSets avoid, and nodes that several JobSets blame.
//!
//! Each reconciliation keeps the nodes of its JobSet, and a scrape makes the series from them. A node has a series of its own only while
//! two or more JobSets blame it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use jobset_api::nodes::STRIKE_LASTS;
use jobset_api::{JobSet, JobSetStatus};
use jobset_metrics::{Family, register_families};
use jobset_program::lock;
use jobset_store::Key;
use k8s_openapi::jiff::Timestamp;
use prometheus::Registry;

/// Most nodes that have a series.
const MOST_NODES: usize = 100;

/// The nodes that JobSets blame and avoid as of their last reconciliation, shared with the scrapes.
#[derive(Clone, Default)]
pub(in crate::shell) struct NodeMetrics(Arc<Mutex<HashMap<Key, NodesOfJobSet>>>);

#[derive(Clone, Debug, Default)]
struct NodesOfJobSet {
    /// Each node that the JobSet blames, and for what last.
    blamed: BTreeMap<String, Timestamp>,
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
        for strike in &status.node_strikes {
            let newest = nodes.blamed.entry(strike.node.clone()).or_insert(strike.time.0);
            *newest = strike.time.0.max(*newest);
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
        "JobSets that blame failures of the last 24 h on the node, where there are two or more; at most 100 nodes.",
        &["node"],
    );
    let (mut by_namespace, mut by_node) = (BTreeMap::<&str, u32>::new(), BTreeMap::<&str, u32>::new());
    for (key, nodes) in nodes {
        let lasting = nodes.avoided.iter().filter(|until| **until > now).count();
        *by_namespace.entry(&key.namespace).or_default() += u32::try_from(lasting).unwrap_or(u32::MAX);
        for (node, _) in nodes.blamed.iter().filter(|(_, at)| now.duration_since(**at) < STRIKE_LASTS) {
            *by_node.entry(node).or_default() += 1;
        }
    }
    for (namespace, number) in by_namespace {
        avoided.add(&[namespace], number.into());
    }
    let mut several: Vec<(&str, u32)> = by_node.into_iter().filter(|(_, jobsets)| *jobsets > 1).collect();
    several.sort_by_key(|(_, jobsets)| std::cmp::Reverse(*jobsets));
    for (node, jobsets) in several.into_iter().take(MOST_NODES) {
        blaming.add(&[node], jobsets.into());
    }
    vec![avoided, blaming]
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;
    use prometheus::proto::MetricFamily;
    use serde_json::json;

    use super::*;

    fn series(metrics: &NodeMetrics, now: &str) -> Vec<String> {
        let families = families(&lock(&metrics.0), now.parse().unwrap()).into_iter().map(MetricFamily::from);
        // As registries do.
        let families: Vec<MetricFamily> = families.filter(|family| !family.get_metric().is_empty()).collect();
        let text = TextEncoder::new().encode_to_string(&families).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(ToOwned::to_owned).collect()
    }

    fn see(metrics: &NodeMetrics, name: &str, node: &str) {
        let strike =
            json!({"node": node, "time": "2026-01-01T00:00:00.000000Z", "job": "j", "index": 0, "reason": "refused"});
        let avoided = json!({"node": node, "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T01:00:00Z", "failures": 2, "reason": "Failures"});
        let jobset = json!({
            "metadata": {"name": name, "namespace": "ml"}, "spec": {},
            "status": {"nodeStrikes": [strike, strike], "avoidedNodes": [avoided]},
        });
        let key = Key { namespace: "ml".to_owned(), name: name.to_owned() };
        metrics.see(&key, &serde_json::from_value(jobset).unwrap());
    }

    #[test]
    fn node_has_series_while_several_jobsets_blame_it() {
        let metrics = NodeMetrics::default();
        let at = |now| series(&metrics, now);
        see(&metrics, "a", "node-1");
        see(&metrics, "c", "node-2");
        assert_eq!(at("2026-01-01T00:30:00Z"), [r#"jobset_avoided_nodes{namespace="ml"} 2"#]);
        see(&metrics, "b", "node-1");
        let both = [r#"jobset_avoided_nodes{namespace="ml"} 3"#, r#"jobset_node_blaming_jobsets{node="node-1"} 2"#];
        assert_eq!(at("2026-01-01T00:30:00Z"), both);
        assert_eq!(at("2026-01-02T00:00:00Z"), [r#"jobset_avoided_nodes{namespace="ml"} 0"#]);
        metrics.forget(&Key { namespace: "ml".to_owned(), name: "b".to_owned() });
        assert_eq!(at("2026-01-01T00:30:00Z"), [r#"jobset_avoided_nodes{namespace="ml"} 2"#]);
    }

    #[test]
    fn many_nodes_that_are_blamed_have_hundred_series() {
        let metrics = NodeMetrics::default();
        for node in 0..150 {
            let node = format!("node-{node}");
            for jobset in ["a", "b"] {
                see(&metrics, &format!("{node}-{jobset}"), &node);
            }
        }
        assert_eq!(series(&metrics, "2026-01-01T00:30:00Z").len(), 1 + MOST_NODES);
    }
}
