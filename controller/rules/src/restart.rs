//! Group restarts: how a restart is counted, and the deletion of the Jobs of earlier attempts.

use std::ops::ControlFlow;

use jobset_api::{FailurePolicyAction, RestartStrategy, Scope, conditions, event, labels};

use crate::cause::{Cause, Counting};
use crate::reconciliation::Reconciliation;
use crate::types::{Fact, Note};
use crate::{attempts, backoff, budget, deadline, epochs, nodes, progress};

/// Initializes `groupRestarts` for a JobSet of the Go JobSet, which counts recreations only and drops unknown fields.
///
/// `jobsReady` shows which controller wrote the status: this controller always sets it. For a status with
/// `currentInPlaceRestartAttempt`, [`crate::engine`] has already set `groupRestarts` to all restarts, recreations included.
pub(super) fn adopt_go_counts(reconciliation: &mut Reconciliation<'_>) {
    let status = &mut reconciliation.status;
    if status.jobs_ready.is_empty() && status.current_in_place_restart_attempt.is_none() {
        status.group_restarts = status.group_restarts.max(status.restarts);
    }
}

/// Deletes the Jobs of earlier attempts, so that the Jobs of this attempt can use their names.
///
/// A Job without a valid attempt label may belong to the current attempt and hold days of work. The rule keeps it and warns,
/// so that the user decides.
pub(super) fn delete_previous_attempts(reconciliation: &mut Reconciliation<'_>) {
    for place in 0..reconciliation.previous.len() {
        let (name, job) = reconciliation.previous[place];
        if job.deleting {
            continue;
        }
        if job.attempt.is_some() {
            reconciliation.delete_job(name, &job.uid);
        } else {
            reconciliation.warn(event::JOB_MISLABELLED, without_attempt(name));
        }
    }
}

/// The Jobs that are left alone because their attempt is unknown. No Job of the JobSet can have their names.
pub(super) fn without_attempts(reconciliation: &Reconciliation<'_>) -> Vec<String> {
    let unknown = reconciliation.previous.iter().filter(|(_, job)| !job.deleting && job.attempt.is_none());
    unknown.map(|(name, _)| without_attempt(name)).collect()
}

fn without_attempt(name: &str) -> String {
    let label = labels::RESTART_ATTEMPT;
    format!(
        "Job {name} is left alone: its label {label} is not the number of an attempt; correct the label or delete the Job"
    )
}

/// Restarts the JobSet by recreating all its Jobs, or fails it when the budget is spent.
///
/// This raises the counters only. The next reconciliation reads them and deletes the Jobs.
pub(super) fn recreate(reconciliation: &mut Reconciliation<'_>, counting: Counting, cause: &Cause) -> ControlFlow<()> {
    count(reconciliation, counting, cause)?;
    let newest = reconciliation.current.iter().filter_map(|current| current.job.attempt).max().unwrap_or(0);
    reconciliation.status.restarts = reconciliation.status.restarts.max(newest).saturating_add(1);
    attempts::count_recreation(reconciliation);
    backoff::record(reconciliation, reconciliation.recreation(), counting, cause);
    epochs::deprecate(reconciliation, counting == Counting::Ignored);
    let message = format!("recreating all Jobs, attempt {}: {}", reconciliation.status.restarts, cause.message);
    begin(reconciliation, reconciliation.recreation(), counting, cause, &message);
    ControlFlow::Break(())
}

/// Counts a group restart, by recreation or in place. Breaks if no budget is left: the JobSet has failed.
pub(super) fn count(reconciliation: &mut Reconciliation<'_>, counting: Counting, cause: &Cause) -> ControlFlow<()> {
    if counting == Counting::Already {
        return ControlFlow::Continue(());
    }
    nodes::strike(reconciliation, cause.blame.as_ref());
    progress::note_end(reconciliation, cause.is_failure());
    if counting == Counting::Counted {
        budget::require(reconciliation, Scope::JobSet, cause)?;
        reconciliation.status.restarts_count_towards_max =
            reconciliation.status.restarts_count_towards_max.saturating_add(1);
    }
    reconciliation.status.group_restarts = reconciliation.status.group_restarts.saturating_add(1);
    nodes::judge(reconciliation, cause.blame.as_ref());
    ControlFlow::Continue(())
}

/// Records that a group restart begins, or that one that began in place goes on by recreation: condition, start time, event
/// and metrics.
pub(super) fn begin(
    reconciliation: &mut Reconciliation<'_>,
    strategy: RestartStrategy,
    counting: Counting,
    cause: &Cause,
    message: &str,
) {
    reconciliation.set_condition(conditions::RESTARTING, &cause.reason, message);
    deadline::begin_again(reconciliation);
    let action = match counting {
        Counting::Ignored => FailurePolicyAction::RestartJobSetAndIgnoreMaxRestarts,
        Counting::Counted | Counting::Already => FailurePolicyAction::RestartJobSet,
    };
    let trigger = cause.trigger;
    let failed_at = cause.failed_at.map(|at| backoff::start_time(reconciliation).unwrap_or(at));
    if backoff::is_announced(reconciliation) {
        reconciliation.notes.push(Note { failed_at, ..Note::warning(event::RESTARTING, message.to_owned()) });
    }
    let counted = counting == Counting::Counted;
    reconciliation.facts.push(match counting {
        Counting::Already => Fact::RestartRecreates { strategy },
        Counting::Counted | Counting::Ignored => Fact::RestartBegan { strategy, action, counted, trigger, failed_at },
    });
}
