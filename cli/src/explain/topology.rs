//! Which labels no node has, and who occupies the domains of exclusive placement.

use std::collections::{BTreeMap, BTreeSet};

use jobset_api::labels;
use jobset_objects::PartialPod;
use kube::ResourceExt as _;

use super::{CandidateNode, Facts};

/// The most domains in a finding.
const SHOWN: usize = 5;

/// What the nodes say about Pods that cannot be scheduled. `None` if the user may not read nodes.
pub(super) struct Topology<'a> {
    nodes: &'a [CandidateNode],
    occupants: &'a [PartialPod],
}

impl<'a> Topology<'a> {
    pub(super) fn of(facts: &'a Facts) -> Option<Self> {
        Some(Self { nodes: facts.nodes.as_deref()?, occupants: facts.occupants.as_deref().unwrap_or_default() })
    }

    /// The labels of the Pod's nodeSelector that no node has.
    pub(super) fn missing_labels(&self, pod: &PartialPod) -> Vec<String> {
        let has = |key: &str, value: &str| {
            self.nodes.iter().any(|node| node.labels().get(key).is_some_and(|label| label == value))
        };
        let wanted = pod.spec.node_selector.entries();
        wanted.filter(|(key, value)| !has(key, value)).map(|(key, value)| format!("{key}={value}")).collect()
    }

    /// Whether no node belongs to a domain of this key.
    pub(super) fn has_no_domain(&self, key: &str) -> bool {
        !self.nodes.iter().any(|node| node.labels().contains_key(key))
    }

    /// The domains of this key, how many of them other Jobs occupy, and these Jobs, those of the same JobSet included. As for the
    /// scheduler, a Job occupies a domain whether it asked for one or not. Jobs of other priorities do not count: they exclude nobody.
    pub(super) fn occupied(&self, key: &str, leader: &PartialPod) -> Vec<String> {
        let domain_of: BTreeMap<String, &str> =
            self.nodes.iter().filter_map(|node| Some((node.name_any(), node.labels().get(key)?.as_str()))).collect();
        let domains: BTreeSet<&str> = domain_of.values().copied().collect();
        let priority = leader.labels().get(labels::PRIORITY);
        let job_of = |pod: &PartialPod| (pod.namespace(), pod.labels().get(labels::JOB_NAME).cloned());
        let own = job_of(leader);
        let excludes = |pod: &&PartialPod| {
            !pod.has_ended() && pod.labels().get(labels::PRIORITY) == priority && job_of(pod) != own
        };
        let mut occupied: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for pod in self.occupants.iter().filter(excludes) {
            let domain = pod.spec.node_name.as_ref().and_then(|node| domain_of.get(node));
            if let Some(domain) = domain {
                let job = pod.labels().get(labels::JOB_NAME).map(String::as_str).unwrap_or_default();
                let asked = pod.annotations().contains_key(labels::EXCLUSIVE_TOPOLOGY);
                let remark = if asked { "" } else { " (did not ask for exclusive placement)" };
                let job = format!("{}/{job}{remark}", pod.namespace().unwrap_or_default());
                occupied.entry(domain).or_default().insert(job);
            }
        }
        let mut lines = vec![format!("{} of {} domains of {key} are occupied", occupied.len(), domains.len())];
        let line = |(domain, jobs): (&&str, &BTreeSet<String>)| {
            format!("{domain}: Job {}", jobs.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
        };
        lines.extend(occupied.iter().take(SHOWN).map(line));
        if occupied.len() > SHOWN {
            lines.push(format!("and {} more", occupied.len() - SHOWN));
        }
        lines
    }
}
