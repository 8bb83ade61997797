//! Deletes a JobSet whose namespace is being deleted. Kubernetes deletes the Pods of a namespace before everything else and
//! waits for them; the Job controller keeps its finalizer on a failed Pod of a Job with `backoffLimitPerIndex`, which
//! in-place restart needs, until its index has another Pod, which such a namespace refuses. Without this rule both wait
//! for ever. A Job that is being deleted gives its Pods free.

use std::ops::ControlFlow;

use super::Action;
use super::pass::Pass;

pub(super) fn delete_with_it(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if !pass.seen.namespace_is_terminating() {
        return ControlFlow::Continue(());
    }
    pass.actions.push(Action::DeleteJobSet);
    ControlFlow::Break(())
}
