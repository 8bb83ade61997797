//! Leaves alone what is being deleted and what another controller manages.

use std::ops::ControlFlow;

use super::Pass;

pub(super) fn unless_ours(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let jobset = &pass.seen.jobset;
    // The children of a deleted JobSet are the garbage collector's.
    if jobset.metadata.deletion_timestamp.is_some() || !jobset.is_managed_here() {
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(())
}
