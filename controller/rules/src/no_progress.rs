//! Restarts without progress: a group that fails again and again at the same step fails for good, whatever budget is left.

use std::ops::ControlFlow;

use jobset_api::{GroupProgress, conditions};

use crate::cause::Cause;
use crate::reconciliation::Reconciliation;
use crate::stall;
use crate::types::Trigger;

/// Compares the highest step with that at the last restart. Breaks if so many restarts in a row have brought no further step as the
/// JobSet allows: it has failed.
///
/// A group whose workers tell of no step, or of steps of several replicatedJobs, is not judged. What takes a Pod away, or asks for a
/// restart, says nothing of its worker: such a restart counts for nothing here, unless there was progress before it.
pub(super) fn compare(reconciliation: &mut Reconciliation<'_>, cause: &Cause) -> ControlFlow<()> {
    // Steps alone are no reason to write the status, so the stored one may be old.
    stall::keep_progress(reconciliation);
    if !stall::has_comparable_steps(reconciliation) {
        return ControlFlow::Continue(());
    }
    let limit = reconciliation.observed.jobset.max_restarts_without_progress();
    let Some(progress) = reconciliation.status.progress.as_mut() else { return ControlFlow::Continue(()) };
    let GroupProgress { step: Some(step), step_at_restart, .. } = *progress else {
        return ControlFlow::Continue(());
    };
    let rose = step_at_restart.is_none_or(|before| step > before);
    if rose {
        progress.restarts_without_progress = 0;
    } else if is_failure(cause) {
        progress.restarts_without_progress = progress.restarts_without_progress.saturating_add(1);
    }
    progress.step_at_restart = Some(step.max(step_at_restart.unwrap_or(step)));
    progress.checkpoint_at_restart = progress.checkpoint;
    let restarts = progress.restarts_without_progress;
    match limit {
        Some(limit) if !rose && is_failure(cause) && restarts >= limit => {
            let message = format!(
                "the group has failed again at or before step {step}, and {restarts} restarts in a row have brought no further \
                 step, as many as its annotation allows: {}",
                cause.message
            );
            reconciliation.fail(conditions::NO_PROGRESS, message)
        }
        _ => ControlFlow::Continue(()),
    }
}

/// Whether a worker has failed.
fn is_failure(cause: &Cause) -> bool {
    !cause.is_loss && !matches!(cause.trigger, Trigger::Requested | Trigger::RestartRequest | Trigger::Cordoned)
}
