//! Deletes the Jobs of a finished JobSet that still run.

use std::ops::ControlFlow;

use jobset_api::conditions;

use super::reconciliation::Reconciliation;

pub(super) fn delete_active_jobs(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if conditions::terminal(&reconciliation.status.conditions).is_none() {
        return ControlFlow::Continue(());
    }
    for (name, job) in reconciliation.observed.jobs() {
        if job.finished.is_none() && !job.deleting {
            reconciliation.delete_job(name, &job.uid);
        }
    }
    ControlFlow::Break(())
}
