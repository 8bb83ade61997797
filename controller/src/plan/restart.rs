//! Restarts of the whole group: how one is counted, and what the previous attempt left.

use std::ops::ControlFlow;

use jobset_api::{RestartStrategy, conditions};

use super::Pass;

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

/// Deletes the Jobs of earlier attempts. Their names become free, and the Jobs of this attempt take them.
pub(super) fn delete_previous_attempt(pass: &mut Pass<'_>) {
    for (name, job) in &pass.seen.jobs {
        if job.deleting {
            continue;
        }
        if job.attempt.is_none() {
            pass.warn("AttemptUnknown", format!("Job {name} is recreated: its restart-attempt label is not a number"));
        }
        if job.attempt.is_none_or(|attempt| attempt < pass.status.restarts) {
            pass.delete_job(name, &job.uid);
        }
    }
}

/// Restarts the JobSet by recreating all its Jobs, or fails it when the budget is spent.
///
/// Only the counters are raised: the pass that reads them back deletes the Jobs.
pub(super) fn recreate(pass: &mut Pass<'_>, counting: Counting, cause: &str) -> ControlFlow<()> {
    count(pass, counting, cause)?;
    pass.status.restarts += 1;
    if pass.seen.jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart {
        // The new Pods report the next epoch because they are new. This restart is already counted.
        pass.status.free_epoch = pass.status.synced_epoch + 1;
    }
    pass.tell("Restarting", format!("recreating all Jobs, attempt {}: {cause}", pass.status.restarts));
    ControlFlow::Break(())
}

/// Counts a restart of the whole group, by recreation or in place. Breaks when the budget was spent: the JobSet has
/// failed.
pub(super) fn count(pass: &mut Pass<'_>, counting: Counting, cause: &str) -> ControlFlow<()> {
    if counting == Counting::Already {
        return ControlFlow::Continue(());
    }
    if counting == Counting::Counted {
        let max_restarts = pass.seen.jobset.spec.max_restarts();
        if pass.status.restarts_count_towards_max >= max_restarts {
            let message = format!("reached the maximum number of restarts, maxRestarts {max_restarts}: {cause}");
            return pass.fail(conditions::REACHED_MAX_RESTARTS, message);
        }
        pass.status.restarts_count_towards_max += 1;
    }
    pass.status.group_restarts += 1;
    ControlFlow::Continue(())
}
