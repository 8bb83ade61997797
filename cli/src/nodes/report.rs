//! The nodes that JobSets have trouble with.

use std::collections::BTreeMap;

use jobset_api::JobSet;
use jobset_objects::{PartialCondition, PartialNode};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::tally::{NodeTally, tally};

/// Nodes, those with most failures first.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// The namespace of the JobSets; none for all namespaces.
    pub namespace: Option<String>,
    pub nodes: Vec<NodeRow>,
}

/// A node on which failures of the last 24 hours are blamed, or which JobSets avoid.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    pub name: String,
    /// Failures of the last 24 hours that are blamed on it. Each JobSet keeps its last sixteen.
    pub failures: u32,
    /// The same by their reasons.
    pub reasons: BTreeMap<String, u32>,
    /// When the last of them was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
    /// The JobSets that blame it for a failure.
    pub jobsets: Vec<JobSetName>,
    /// The JobSets whose new Pods keep away from it.
    pub avoided_by: Vec<Avoidance>,
    /// What its Node object says; none if the user may not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSetName {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Avoidance {
    #[serde(flatten)]
    pub jobset: JobSetName,
    pub until: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedNode {
    pub exists: bool,
    pub cordoned: bool,
    pub ready: bool,
}

/// The nodes that these JobSets have trouble with now. `nodes` are all nodes, if the user may read them.
pub fn report(
    jobsets: &[JobSet],
    nodes: Option<&[PartialNode]>,
    namespace: Option<&str>,
    now: Timestamp,
) -> NodeReport {
    let mut rows: BTreeMap<String, NodeRow> = BTreeMap::new();
    for jobset in jobsets {
        let Some(status) = &jobset.status else { continue };
        for (node, tally) in tally(&status.node_strikes, &status.avoided_nodes, now) {
            let row = rows.entry(node.clone()).or_insert_with(|| NodeRow { name: node, ..NodeRow::default() });
            row.add(jobset, tally);
        }
    }
    let mut rows: Vec<NodeRow> = rows.into_values().collect();
    for row in &mut rows {
        row.observed = nodes.map(|nodes| ObservedNode::of(nodes.iter().find(|node| node.name_any() == row.name)));
        row.jobsets.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        row.avoided_by.sort_by_key(|avoidance| std::cmp::Reverse(avoidance.until));
    }
    rows.sort_by(|a, b| (b.failures, &a.name).cmp(&(a.failures, &b.name)));
    NodeReport { namespace: namespace.map(str::to_owned), nodes: rows }
}

impl NodeRow {
    fn add(&mut self, jobset: &JobSet, tally: NodeTally) {
        let jobset = JobSetName { namespace: jobset.namespace().unwrap_or_default(), name: jobset.name_any() };
        self.failures += tally.failures;
        self.last = self.last.max(tally.last);
        for (reason, failures) in tally.reasons {
            *self.reasons.entry(reason).or_default() += failures;
        }
        if tally.failures > 0 {
            self.jobsets.push(jobset.clone());
        }
        self.avoided_by.extend(tally.avoided_until.map(|until| Avoidance { jobset, until }));
    }
}

impl ObservedNode {
    fn of(node: Option<&PartialNode>) -> Self {
        let is_ready = |it: &PartialCondition| it.type_ == "Ready" && it.is_true();
        Self {
            exists: node.is_some(),
            cordoned: node.is_some_and(|node| node.spec.unschedulable),
            ready: node.is_some_and(|node| node.status.conditions.iter().any(is_ready)),
        }
    }
}
