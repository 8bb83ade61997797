//! Deletes a JobSet whose namespace is being deleted.
//!
//! Kubernetes deletes the Pods of a terminating namespace first and waits for them. In-place restart needs Jobs with
//! `backoffLimitPerIndex`. For such a Job, the Job controller keeps its finalizer on a failed Pod until the index has a new
//! Pod, but a terminating namespace accepts no new Pods. Without this rule both wait forever. The deletion of the JobSet
//! deletes the Jobs, and the Job controller removes its finalizer from the Pods of a Job that is being deleted.

use std::ops::ControlFlow;

use crate::reconciliation::Reconciliation;
use crate::types::Action;

pub(super) fn delete_jobset_if_terminating(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if !reconciliation.observed.namespace_is_terminating() {
        return ControlFlow::Continue(());
    }
    reconciliation.actions.push(Action::DeleteJobSet);
    ControlFlow::Break(())
}
