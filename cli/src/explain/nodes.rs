//! Nodes that failures are blamed on.

use jobset_api::{RestartStrategy, labels};
use kube::ResourceExt as _;

use super::{Facts, Finding};
use crate::nodes::{NodeTally, tally};

/// Fewer failures say nothing of a node.
const SUSPECT: u32 = 2;

/// Remarks: nodes that the JobSet avoids, and those that it has reason to.
pub(super) fn bad(facts: &Facts) -> Vec<Finding> {
    let Some(status) = &facts.jobset.status else { return Vec::new() };
    let nodes = tally(&status.node_strikes, &status.avoided_nodes, facts.now);
    nodes.iter().filter_map(|(node, tally)| finding(facts, node, tally)).collect()
}

fn finding(facts: &Facts, node: &str, tally: &NodeTally) -> Option<Finding> {
    let see = "`kubectl jobset nodes -A` shows which other JobSets blame it.";
    if let Some(until) = tally.avoided_until {
        let blamed = tally.failures().map(|failures| format!("{failures} on it; ")).unwrap_or_default();
        let what = format!("New Pods keep away from node {node}: {blamed}avoided until {until:.0}.");
        return Some(Finding::new("NodeAvoided", what, see));
    }
    if tally.failures < SUSPECT || facts.jobset.move_after_failures().is_some() {
        return None;
    }
    let what = format!("{} are blamed on node {node}.", tally.failures()?);
    let in_place = facts.jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    let advice = if in_place {
        let (name, key) = (facts.jobset.name_any(), labels::MOVE_AFTER_FAILURES);
        let command = facts.kubectl(&format!("annotate jobset {name} {key}=2"));
        format!(
            "{see} To move Pods away after the second failure, whatever --move-after-failures of the controller says, run `{command}`."
        )
    } else {
        format!("{see} If it is bad, cordon it: the next Pods go elsewhere.")
    };
    Some(Finding::new("NodeSuspected", what, advice))
}
