//! The failures that one JobSet blames on nodes.

use std::collections::BTreeMap;

use jobset_api::nodes::STRIKE_LASTS;
use jobset_api::{AvoidedNode, NodeStrike};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeTally {
    /// Failures of the last 24 hours that are blamed on the node.
    pub failures: u32,
    /// When the last of them was.
    pub last: Option<Timestamp>,
    /// The same failures by their reasons.
    pub reasons: BTreeMap<String, u32>,
    /// Until when new Pods of the JobSet keep away from it, if they do.
    pub avoided_until: Option<Timestamp>,
}

impl NodeTally {
    /// `2 failures in 24 h`; `None` without a failure.
    pub fn failures(&self) -> Option<String> {
        match self.failures {
            0 => None,
            1 => Some("1 failure in 24 h".to_owned()),
            failures => Some(format!("{failures} failures in 24 h")),
        }
    }
}

/// The nodes that a JobSet has trouble with now. The controller removes what is over only when it next writes the status.
pub fn tally(strikes: &[NodeStrike], avoided: &[AvoidedNode], now: Timestamp) -> BTreeMap<String, NodeTally> {
    let mut nodes: BTreeMap<String, NodeTally> = BTreeMap::new();
    for NodeStrike { node, time: MicroTime(time), reason, .. } in strikes {
        if now.duration_since(*time) < STRIKE_LASTS {
            let tally = nodes.entry(node.clone()).or_default();
            tally.failures += 1;
            tally.last = tally.last.max(Some(*time));
            *tally.reasons.entry(reason.clone()).or_default() += 1;
        }
    }
    for AvoidedNode { node, until: Time(until), .. } in avoided.iter().filter(|it| it.until.0 > now) {
        let tally = nodes.entry(node.clone()).or_default();
        tally.avoided_until = tally.avoided_until.max(Some(*until));
    }
    nodes
}
