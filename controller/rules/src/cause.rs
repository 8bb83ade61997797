//! Why a group restarts, and whether the restart counts.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::types::Trigger;

/// Whether a restart counts towards `maxRestarts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// The restart counts, and fails the JobSet when the budget is spent.
    Counted,
    Ignored,
    /// The restart has been counted already: it began as an in-place restart.
    Already,
}

/// Why the group restarts.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    pub reason: String,
    pub message: String,
    /// Label of the metrics.
    pub trigger: Trigger,
    /// When the first failure happened, if the controller observed it.
    pub failed_at: Option<Timestamp>,
    /// Whether nobody's worker has failed: all Pods that ended were deleted, disrupted, or refused by their node.
    pub is_loss: bool,
    /// The Pod that a failure is blamed on, and its node, if both are known and the blame is sure.
    pub blame: Option<Blame>,
}

impl Cause {
    /// Whether a worker has failed.
    pub(super) fn is_failure(&self) -> bool {
        !self.is_loss && !matches!(self.trigger, Trigger::Requested | Trigger::RestartRequest | Trigger::Cordoned)
    }
}

/// A Pod that failed first, and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blame {
    pub pod: String,
    pub job: String,
    pub index: i32,
    pub node: Arc<str>,
    /// When its worker ended, or when that was observed.
    pub at: Timestamp,
    /// Why its worker ended.
    pub trigger: Trigger,
}
