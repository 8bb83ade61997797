//! Deletes a finished JobSet when `ttlSecondsAfterFinished` has expired. The time counts from the transition of the final
//! condition, so a restart of the controller does not extend it.

use std::ops::ControlFlow;

use jobset_api::conditions;
use k8s_openapi::jiff::SignedDuration;

use crate::reconciliation::Reconciliation;
use crate::types::Action;

pub(super) fn delete_when_expired(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let Some(ttl) = reconciliation.observed.jobset.spec.ttl_seconds_after_finished else {
        return ControlFlow::Continue(());
    };
    let Some(finished) = conditions::terminal(&reconciliation.status.conditions) else {
        return ControlFlow::Continue(());
    };
    let since = finished.last_transition_time.0;
    // A TTL that overflows the time type never expires.
    let Ok(due) = since.checked_add(SignedDuration::from_secs(ttl.into())) else { return ControlFlow::Continue(()) };
    if !reconciliation.is_due(due) {
        return ControlFlow::Continue(());
    }
    reconciliation.actions.push(Action::DeleteJobSet);
    ControlFlow::Break(())
}
