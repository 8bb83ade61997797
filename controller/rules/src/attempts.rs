//! `status.executionAttempts` (KEP-1282): numbers the executions of a JobSet, for programs that read logs.
//!
//! The number is 0 for the first execution. It rises by one with each resume and with each restart that recreates all Jobs. A
//! restart in place does not count: its containers restart in Pods that exist, and the annotation of a Pod stays as it is.
//!
//! The status is written before Jobs are suspended or resumed: `executionEnded` before the first Job is suspended, and the
//! next number before the first Job is resumed. So each suspension is followed by one increment, whatever write or controller
//! fails in between, and a resumed Job gets the number in the same request that resumes it.
//!
//! With the feature gate ExecutionAttemptsTracking off, the rules do nothing.

use std::ops::ControlFlow;

use crate::reconciliation::Reconciliation;

/// Numbers the execution that begins or ends. Breaks if the number has to be stored before Jobs are suspended or resumed.
pub(super) fn track(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if !reconciliation.settings.gates.execution_attempts_tracking {
        return ControlFlow::Continue(());
    }
    let suspended = reconciliation.is_suspended();
    let status = &mut reconciliation.status;
    match (status.execution_attempts, suspended) {
        // The first execution; or the first that is numbered, of a JobSet that has run before the gate was on. If the write
        // fails, the next reconciliation finds the same number, so the Jobs need not wait for it.
        (None, false) => {
            (status.execution_attempts, status.execution_ended) = (Some(status.restarts), false);
            ControlFlow::Continue(())
        }
        (Some(_), true) if !status.execution_ended => {
            status.execution_ended = true;
            ControlFlow::Break(())
        }
        (Some(attempts), false) if status.execution_ended => {
            (status.execution_attempts, status.execution_ended) = (Some(attempts.saturating_add(1)), false);
            ControlFlow::Break(())
        }
        (None, true) | (Some(_), _) => ControlFlow::Continue(()),
    }
}

/// All Jobs are about to be recreated. Called after `status.restarts` has risen, which the number is never below.
pub(super) fn count_recreation(reconciliation: &mut Reconciliation<'_>) {
    if !reconciliation.settings.gates.execution_attempts_tracking {
        return;
    }
    let status = &mut reconciliation.status;
    let next = status.execution_attempts.map(|attempts| attempts.saturating_add(1).max(status.restarts));
    status.execution_attempts = next;
}

/// Value of the annotation of Jobs that are created or resumed now; `None` if they get none.
pub(super) fn of_new_jobs(reconciliation: &Reconciliation<'_>) -> Option<i32> {
    let is_on = reconciliation.settings.gates.execution_attempts_tracking;
    is_on.then(|| reconciliation.status.execution_attempts.unwrap_or(0))
}
