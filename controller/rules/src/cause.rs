//! Why a group restarts, and whether the restart counts.

use k8s_openapi::jiff::Timestamp;

use crate::types::Trigger;

/// Whether a restart counts towards `maxRestarts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// The restart counts, and fails the JobSet when the budget is spent.
    Counted,
    /// The restart does not count.
    Ignored,
    /// The restart has been counted already: it began as an in-place restart.
    Already,
}

/// Why the group restarts.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    /// Condition reason.
    pub reason: String,
    pub message: String,
    /// Label of the metrics.
    pub trigger: Trigger,
    /// When the first failure happened, if the controller observed it.
    pub failed_at: Option<Timestamp>,
    /// Whether nobody's worker has failed: all Pods that ended were deleted, disrupted, or refused by their node.
    pub is_loss: bool,
}
