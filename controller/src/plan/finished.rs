//! Deletes the Jobs of a finished JobSet that still run.

use std::ops::ControlFlow;

use super::reconciliation::Reconciliation;

pub(super) fn delete_active_jobs(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if !reconciliation.status.is_finished() {
        return ControlFlow::Continue(());
    }
    for (name, job) in reconciliation.observed.jobs() {
        if job.finished.is_none() && !job.deleting {
            reconciliation.delete_job(name, &job.uid);
        }
    }
    ControlFlow::Break(())
}
