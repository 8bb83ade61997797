//! Restarts: how one of the whole group is counted, and what previous attempts left.

use std::ops::ControlFlow;

use jobset_api::{FailurePolicyAction, RestartStrategy, Scope, conditions, labels};
use k8s_openapi::jiff::Timestamp;

use super::pass::{Pass, is_current};
use super::{Fact, Note, Trigger, budget};

/// Whether a restart counts towards `maxRestarts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// It does, and fails the JobSet when the budget is spent.
    Counted,
    /// It does not.
    Ignored,
    /// It has been counted: it began as a restart in place.
    Already,
}

/// Why the group restarts.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    /// Reason of the condition.
    pub reason: String,
    /// For people.
    pub message: String,
    /// For the metrics.
    pub trigger: Trigger,
    /// When the first failure happened, if that was seen.
    pub failed_at: Option<Timestamp>,
}

/// Counts the restarts of a JobSet that is taken over from the Go JobSet, which counts recreations alone and drops what it
/// does not know. Every status that this controller has written has the number of ready Jobs. In the dialect of the Go
/// JobSet, attempts in place have been counted by [`crate::store`], those of recreations among them.
pub(super) fn take_over(pass: &mut Pass<'_>) {
    let status = &mut pass.status;
    if status.jobs_ready.is_empty() && status.current_in_place_restart_attempt.is_none() {
        status.group_restarts = status.group_restarts.max(status.restarts);
    }
}

/// Deletes the Jobs of earlier attempts. Their names become free, and the Jobs of this attempt take them.
///
/// One whose label does not say its attempt may be of this one, with work of days in it: whoever took the label away
/// decides.
pub(super) fn delete_previous_attempts(pass: &mut Pass<'_>) {
    for (name, job) in pass.seen.jobs() {
        if job.deleting || is_current(&pass.status, job) {
            continue;
        }
        if job.attempt.is_some() {
            pass.delete_job(name, &job.uid);
        } else {
            let label = labels::RESTART_ATTEMPT;
            pass.warn(
                "JobMislabelled",
                format!("Job {name} is left alone: delete it or mend its label {label}, which is not the number of an attempt"),
            );
        }
    }
}

/// Restarts the JobSet by recreating all its Jobs, or fails it when the budget is spent.
///
/// Only the counters are raised: the pass that reads them back deletes the Jobs.
pub(super) fn recreate(pass: &mut Pass<'_>, counting: Counting, cause: &Cause) -> ControlFlow<()> {
    count(pass, counting, cause)?;
    let newest = pass.current.iter().filter_map(|current| current.job.attempt).max().unwrap_or(0);
    pass.status.restarts = pass.status.restarts.max(newest).saturating_add(1);
    // The new Pods report the next epoch because they are new. This restart is already counted.
    let _ = pass.announce_free_epoch();
    let message = format!("recreating all Jobs, attempt {}: {}", pass.status.restarts, cause.message);
    begin(pass, pass.recreation(), counting, cause, &message);
    ControlFlow::Break(())
}

/// Counts a restart of the whole group, by recreation or in place. Breaks when the budget was spent: the JobSet has
/// failed.
pub(super) fn count(pass: &mut Pass<'_>, counting: Counting, cause: &Cause) -> ControlFlow<()> {
    if counting == Counting::Already {
        return ControlFlow::Continue(());
    }
    if counting == Counting::Counted {
        budget::require(pass, Scope::JobSet, cause)?;
        pass.status.restarts_count_towards_max = pass.status.restarts_count_towards_max.saturating_add(1);
    }
    pass.status.group_restarts = pass.status.group_restarts.saturating_add(1);
    ControlFlow::Continue(())
}

/// Says that the whole group restarts, and how.
pub(super) fn begin(pass: &mut Pass<'_>, strategy: RestartStrategy, counting: Counting, cause: &Cause, message: &str) {
    pass.set_condition(conditions::RESTARTING, true, &cause.reason, message);
    let action = match counting {
        Counting::Ignored => FailurePolicyAction::RestartJobSetAndIgnoreMaxRestarts,
        Counting::Counted | Counting::Already => FailurePolicyAction::RestartJobSet,
    };
    let Cause { trigger, failed_at, .. } = *cause;
    pass.notes.push(Note { failed_at, ..Note::warning("Restarting", message.to_owned()) });
    let counted = counting == Counting::Counted;
    pass.facts.push(Fact::RestartBegan { strategy, action, counted, trigger, failed_at });
}
