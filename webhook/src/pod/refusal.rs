//! Why a Pod is refused, in the words and codes that the Job controller and people get.
//!
//! The Job controller shows the message in an event of the Job and tries again, after any error. 409 says what it is: the
//! state of another object stands in the way for now. There is no `retryAfterSeconds`: a client of Kubernetes would then
//! repeat the request by itself, ten times, and a worker of the Job controller would wait for it.

use std::fmt;
use std::time::Duration;

use jobset_api::validation::Errors;
use kube::core::response::{Status, StatusCause, StatusDetails, reason};

use super::placement::Follower;

/// Why a Pod is refused.
#[derive(Debug)]
pub enum Refusal {
    /// It lacks what its role depends on, and will be refused again.
    Invalid(Errors),
    /// Its leader cannot be followed at present.
    Waits(Box<Follower>, Obstacle),
    /// What it depends on could not be read: what, and why.
    Unread(Box<Follower>, String, ReadError),
}

/// What stands between a follower and the domain of its leader. Pods are given by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    Missing,
    /// The leader has no node, with the scheduler's message, which may be empty.
    Pending(String, String),
    /// The leader is being deleted, and its successor is not there.
    Terminating(String),
    /// The leader has failed, and its successor is not there.
    Failed(String),
    Several(Vec<String>),
    /// The node of the leader is not there: leader, node.
    NodeGone(String, String),
    /// The node of the leader is in no domain: leader, node, the label that it lacks.
    NoDomain(String, String, String),
}

/// Why a Pod is refused, in a word: a label of metrics and, of what followers wait for, part of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Invalid,
    LeaderMissing,
    LeaderPending,
    LeaderTerminating,
    LeaderFailed,
    LeaderAmbiguous,
    LeaderNodeMissing,
    LeaderNodeWithoutDomain,
    Unread,
}

/// How a request to the API server did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{0}")]
    Failed(#[source] kube::Error),
    #[error("no answer in {0:?}")]
    Late(Duration),
    /// It is watched, and the watch has not begun or has failed.
    #[error("{0}")]
    OutOfTouch(String),
}

impl Reason {
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
            Self::Missing => Reason::LeaderMissing,
            Self::Pending(..) => Reason::LeaderPending,
            Self::Terminating(_) => Reason::LeaderTerminating,
            Self::Failed(_) => Reason::LeaderFailed,
            Self::Several(_) => Reason::LeaderAmbiguous,
            Self::NodeGone(..) => Reason::LeaderNodeMissing,
            Self::NoDomain(..) => Reason::LeaderNodeWithoutDomain,
        }
    }

    /// Whether it is what followers of a new leader meet, and over in a moment. Once the scheduler has found no room, that
    /// lasts: until other Pods go, or nodes come. The watch may be about to tell of a successor.
    pub fn may_pass_soon(&self) -> bool {
        !matches!(self, Self::Pending(_, message) if !message.is_empty())
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no such Pod yet"),
            Self::Pending(pod, message) if message.is_empty() => {
                write!(f, "Pod {pod} is pending; the scheduler has not said why")
            }
            Self::Pending(pod, message) => write!(f, "Pod {pod} is pending: {message}"),
            Self::Terminating(pod) => write!(f, "Pod {pod} is terminating, and its successor is not there yet"),
            Self::Failed(pod) => write!(f, "Pod {pod} has failed, and its successor is not there yet"),
            Self::Several(pods) => write!(f, "there are several: Pods {}", pods.join(", ")),
            Self::NodeGone(pod, node) => {
                write!(f, "node {node} of Pod {pod} does not exist; the Pod is replaced once Kubernetes has noticed")
            }
            Self::NoDomain(pod, node, topology) => {
                write!(f, "node {node} of Pod {pod} has no label {topology}; label it, or delete the Pod")
            }
        }
    }
}

impl Refusal {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Invalid(_) => Reason::Invalid,
            Self::Waits(_, obstacle) => obstacle.reason(),
            Self::Unread(..) => Reason::Unread,
        }
    }

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
        let details = StatusDetails { causes, ..crate::review::details("Pod") };
        Status::failure(&self.to_string(), reason).with_code(code).with_details(details)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(errors) => write!(f, "Pod is invalid: {}", crate::review::aggregate(errors)),
            Self::Waits(follower, obstacle) => {
                let (job, topology) = (&follower.job_name, &follower.topology);
                write!(
                    f,
                    "waits for the leader of Job {job} (completion index 0) to be placed by {topology}: {obstacle}"
                )
            }
            Self::Unread(follower, what, cause) => {
                write!(f, "cannot find the leader of Job {}, try again: reading {what}: {cause}", follower.job_name)
            }
        }
    }
}
