//! Deletes a finished JobSet when its time is over: `ttlSecondsAfterFinished`, counted from its final condition, so that
//! a restart of the controller does not begin anew.

use std::ops::ControlFlow;

use jobset_api::conditions;
use k8s_openapi::jiff::SignedDuration;

use super::Action;
use super::pass::Pass;

pub(super) fn delete_when_due(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let Some(ttl) = pass.seen.jobset.spec.ttl_seconds_after_finished else { return ControlFlow::Continue(()) };
    let Some(finished) = conditions::terminal(&pass.status.conditions) else { return ControlFlow::Continue(()) };
    let since = finished.last_transition_time.0;
    // A time beyond the end of time never comes.
    let Ok(due) = since.checked_add(SignedDuration::from_secs(ttl.into())) else { return ControlFlow::Continue(()) };
    if pass.now.0 < due {
        pass.requeue_at(due);
        return ControlFlow::Continue(());
    }
    pass.actions.push(Action::DeleteJobSet);
    ControlFlow::Break(())
}
