//! Skips JobSets that are being deleted and JobSets that another controller manages.

use std::ops::ControlFlow;

use super::reconciliation::Reconciliation;

/// The garbage collector deletes the children of a JobSet that is being deleted.
pub(super) fn if_being_deleted(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if reconciliation.observed.jobset.metadata.deletion_timestamp.is_some() {
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(())
}

/// Another controller, for example of another cluster, runs the JobSet and writes its status (`spec.managedBy`).
pub(super) fn if_managed_by_another(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if reconciliation.observed.jobset.is_managed_here() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}
