//! Why a Pod is refused, in the words and codes that the Job controller and people get.
//!
//! The Job controller shows the message in an event of the Job and tries again, after any error. 409 says what it is: the
//! state of another object stands in the way for now. There is no `retryAfterSeconds`: a client of Kubernetes would then
//! repeat the request by itself, ten times, and a worker of the Job controller would wait for it.

use std::fmt;
use std::time::Duration;

use jobset_api::validation::Errors;
use kube::core::response::{Status, StatusCause, StatusDetails, StatusSummary, reason};

use super::leaders::NotPlaced;
use super::placement::Follower;

/// Why a Pod is refused.
#[derive(Debug)]
pub enum Refusal {
    /// It lacks what its role depends on, and will be refused again.
    Invalid(Errors),
    /// Its leader cannot be followed at present.
    Waits(Box<Follower>, Obstacle),
    /// What it depends on could not be read.
    Unread(Box<Follower>, Unread),
}

/// What stands between a follower and the domain of its leader.
#[derive(Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No leader has a node.
    NotPlaced(NotPlaced),
    /// The node is not there: leader, node.
    NodeGone(String, String),
    /// The node is in no domain: leader, node.
    NoDomain(String, String),
}

/// Why a Pod is refused, in a word: a label of metrics and, of what followers wait for, part of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The Pod lacks what its role depends on.
    Invalid,
    /// There is no leader.
    LeaderMissing,
    /// The leader has no node.
    LeaderPending,
    /// The leader is being deleted.
    LeaderTerminating,
    /// The leader has failed.
    LeaderFailed,
    /// There is more than one leader.
    LeaderAmbiguous,
    /// The leader's node is not there.
    LeaderNodeMissing,
    /// The leader's node is in no domain.
    LeaderNodeWithoutDomain,
    /// The API server did not say.
    Unread,
}

/// A request to the API server that did not succeed.
#[derive(Debug)]
pub struct Unread {
    /// What was read.
    pub what: String,
    /// What came of it.
    pub cause: ReadError,
}

/// How a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It failed or was refused.
    #[error("{0}")]
    Failed(#[source] kube::Error),
    /// It took too long.
    #[error("no answer in {0:?}")]
    Late(Duration),
    /// It is watched, and the watch has not begun or has failed.
    #[error("{0}")]
    OutOfTouch(String),
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Invalid,
        Self::LeaderMissing,
        Self::LeaderPending,
        Self::LeaderTerminating,
        Self::LeaderFailed,
        Self::LeaderAmbiguous,
        Self::LeaderNodeMissing,
        Self::LeaderNodeWithoutDomain,
        Self::Unread,
    ];

    /// Value of the label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::LeaderMissing => "leader_missing",
            Self::LeaderPending => "leader_pending",
            Self::LeaderTerminating => "leader_terminating",
            Self::LeaderFailed => "leader_failed",
            Self::LeaderAmbiguous => "leader_ambiguous",
            Self::LeaderNodeMissing => "leader_node_missing",
            Self::LeaderNodeWithoutDomain => "leader_node_without_domain",
            Self::Unread => "unread",
        }
    }
}

/// As reasons are written in a Status: its name.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Obstacle {
    fn reason(&self) -> Reason {
        match self {
            Self::NotPlaced(NotPlaced::Missing) => Reason::LeaderMissing,
            Self::NotPlaced(NotPlaced::Pending(..)) => Reason::LeaderPending,
            Self::NotPlaced(NotPlaced::Terminating(_)) => Reason::LeaderTerminating,
            Self::NotPlaced(NotPlaced::Failed(_)) => Reason::LeaderFailed,
            Self::NotPlaced(NotPlaced::Several(_)) => Reason::LeaderAmbiguous,
            Self::NodeGone(..) => Reason::LeaderNodeMissing,
            Self::NoDomain(..) => Reason::LeaderNodeWithoutDomain,
        }
    }

    fn text(&self, topology: &str) -> String {
        match self {
            Self::NotPlaced(why) => why.to_string(),
            Self::NodeGone(pod, node) => {
                format!("node {node} of Pod {pod} does not exist; the Pod is replaced once Kubernetes has noticed")
            }
            Self::NoDomain(pod, node) => {
                format!("node {node} of Pod {pod} has no label {topology}; label it, or delete the Pod")
            }
        }
    }
}

impl Refusal {
    /// Why, in a word.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Invalid(_) => Reason::Invalid,
            Self::Waits(_, obstacle) => obstacle.reason(),
            Self::Unread(..) => Reason::Unread,
        }
    }

    /// The status of the answer.
    pub fn status(&self) -> Status {
        let (code, reason, causes) = match self {
            Self::Invalid(errors) => (422, reason::INVALID, crate::review::causes(errors)),
            Self::Waits(_, obstacle) => {
                let cause = StatusCause {
                    reason: obstacle.reason().to_string(),
                    message: self.to_string(),
                    field: String::new(),
                };
                (409, reason::CONFLICT, vec![cause])
            }
            Self::Unread(..) => (503, reason::SERVICE_UNAVAILABLE, Vec::new()),
        };
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: "Pod".to_owned(),
            uid: String::new(),
            causes,
            retry_after_seconds: 0,
        };
        Status {
            status: Some(StatusSummary::Failure),
            code,
            message: self.to_string(),
            metadata: None,
            reason: reason.to_owned(),
            details: Some(details),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(errors) => write!(f, "Pod is invalid: {}", crate::review::aggregate(errors)),
            Self::Waits(follower, obstacle) => {
                let (job, topology) = (&follower.job_name, &follower.topology);
                let why = obstacle.text(topology);
                write!(f, "waits for the leader of Job {job} (completion index 0) to be placed by {topology}: {why}")
            }
            Self::Unread(follower, Unread { what, cause }) => {
                write!(f, "cannot find the leader of Job {}, try again: reading {what}: {cause}", follower.job_name)
            }
        }
    }
}
