//! Leaves alone what is being deleted and what another controller manages.

use std::ops::ControlFlow;

use super::pass::Pass;

/// The children of a deleted JobSet are the garbage collector's.
pub(super) fn if_being_deleted(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if pass.seen.jobset.metadata.deletion_timestamp.is_some() {
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(())
}

/// Another controller, of another cluster say, runs it and writes its status.
pub(super) fn if_managed_by_another(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if pass.seen.jobset.is_managed_here() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}
