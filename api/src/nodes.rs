//! Bad, cordoned and lost nodes: the values of their annotations, and what the status keeps of them.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LaterFields;

/// Largest value of [`MOVE_AFTER_FAILURES`](crate::labels::MOVE_AFTER_FAILURES): as many strikes as the status keeps.
pub const MOST_FAILURES: u32 = 16;
/// Maximum number of strikes, of avoided nodes, and of Pods that move from one node, in a status.
pub const KEPT: usize = 16;

/// For how long a failure that is blamed on a node is a strike.
pub const STRIKE_LASTS: SignedDuration = SignedDuration::from_hours(24);
/// For how long a node is avoided, and for how long the strikes of one index on several nodes speak against the index.
pub const COOL_DOWN: SignedDuration = SignedDuration::from_hours(1);

/// Shortest duration of [`NODE_LOST_AFTER`](crate::labels::NODE_LOST_AFTER).
pub const LEAST_NODE_LOST: Duration = Duration::from_secs(10);
/// Longest one.
pub const LONGEST_NODE_LOST: Duration = Duration::from_hours(720);

/// How new Pods keep away from avoided nodes. The names are the values of [`AVOID_NODES`](crate::labels::AVOID_NODES).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AvoidNodes {
    /// The scheduler prefers other nodes.
    #[default]
    Preferred,
    /// The scheduler takes other nodes only, until a Pod has been unschedulable for a minute.
    Required,
}

impl AvoidNodes {
    /// The value of the annotation; `None` for another text.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Preferred" => Some(Self::Preferred),
            "Required" => Some(Self::Required),
            _ => None,
        }
    }
}

/// When Pods leave a node that is cordoned. The names are the values of [`LEAVE_CORDONED`](crate::labels::LEAVE_CORDONED).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaveCordoned {
    /// They stay: a cordon promises that running Pods do.
    #[default]
    Never,
    /// When the group restarts for another reason.
    AtNextRestart,
    /// By a restart that does not count.
    Now,
}

impl LeaveCordoned {
    /// The value of the annotation; `None` for another text.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Never" => Some(Self::Never),
            "AtNextRestart" => Some(Self::AtNextRestart),
            "Now" => Some(Self::Now),
            _ => None,
        }
    }
}

/// A failure that is blamed on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStrike {
    /// node is the name of the node.
    #[schemars(length(max = 253))]
    pub node: String,
    /// time is when the worker ended, or when the controller saw that it had.
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub time: MicroTime,
    /// job is the name of the Job of the Pod.
    #[schemars(length(max = 63))]
    pub job: String,
    /// index is the completion index of the Pod.
    pub index: i32,
    /// reason is what happened, in one word, as in the label reason of the metric jobset_restart_triggers_total: container_exit, pod_failed,
    /// refused, node_lost or job_failed.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

impl NodeStrike {
    /// Whether it speaks against the index of its Pod, and not against its node: the index has struck on another node within the cool-down.
    pub fn is_of_index(&self, strikes: &[Self]) -> bool {
        strikes.iter().any(|other| self.speaks_against_index_with(other))
    }

    /// Whether this strike and the other one speak against the index that they have in common.
    pub fn speaks_against_index_with(&self, other: &Self) -> bool {
        let is_same = (&self.job, self.index) == (&other.job, other.index);
        is_same && self.node != other.node && self.time.0.duration_since(other.time.0).abs() <= COOL_DOWN
    }
}

/// A node that new Pods of a JobSet keep away from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AvoidedNode {
    /// node is the name of the node.
    #[schemars(length(max = 253))]
    pub node: String,
    /// since is when the controller began to avoid it.
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub since: Time,
    /// until is when it is no longer avoided.
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub until: Time,
    /// failures is the number of strikes for which it is avoided.
    pub failures: i32,
    /// reason is why, in one word: Failures.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// domain is the topology domain of the node, where the JobSet is placed exclusively and a Job has to leave the domain as a whole: new
    /// Pods keep away from all nodes whose label topologyKey has this value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub domain: String,
    /// topologyKey is the label of nodes that names the domain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 317))]
    pub topology_key: String,
    /// relaxed says that Pods found no node because of the annotation `jobset.sigs.k8s.io/avoid-nodes: Required`. While any entry has it,
    /// new Pods of the JobSet only prefer other nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relaxed: bool,
    /// moving are the names of the first 16 Pods that the restart moves away from the node. Empty once their successors run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub moving: Vec<String>,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

impl AvoidedNode {
    /// Value of `reason`: failures are blamed on the node.
    pub const FAILURES: &str = "Failures";
}

/// How new Pods of a JobSet keep away from `avoided` now, if `asked` is what its annotation says.
///
/// The Pod webhook gives a Pod the hard form only if this is `Required`, and then annotates the Pod [`AVOID_NODES`](crate::labels::AVOID_NODES)
/// `Required`. By that annotation the controller tells which Pods to replace that find no node: it writes `relaxed` first.
pub fn avoidance(asked: AvoidNodes, avoided: &[AvoidedNode]) -> AvoidNodes {
    if avoided.iter().any(|it| it.relaxed) { AvoidNodes::Preferred } else { asked }
}
