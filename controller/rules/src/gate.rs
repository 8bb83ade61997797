//! Disables in-place restart for a JobSet whose specification does not allow it, or if the feature gate is off. Such a JobSet
//! restarts by recreation.
//!
//! An annotation tells its agents to start their workers at once. Otherwise the workers would wait at the barrier forever
//! (`docs/src/protocol.md`, "What the agent does", 1).

use jobset_api::{RestartStrategy, conditions, event, labels};

use crate::invalid::cut;
use crate::reconciliation::Reconciliation;
use crate::types::Action;

pub(super) fn disable_in_place_restart(reconciliation: &mut Reconciliation<'_>) {
    if reconciliation.observed.jobset.spec.restart_strategy() != RestartStrategy::InPlaceRestart {
        return;
    }
    let cause = match (reconciliation.observed.not_in_place(), reconciliation.settings.gates.in_place_restart) {
        (Some(_), _) => "cannot restart in place",
        (None, false) => "feature gate is off",
        (None, true) => return,
    };
    if !reconciliation.observed.is_in_place_restart_disabled() {
        reconciliation.actions.push(Action::DisableInPlaceRestart(cause));
    }
    let annotation = labels::DISABLE_IN_PLACE_RESTART;
    // The condition and the events must not depend on the absence of the annotation. The request that annotates the JobSet
    // changes its version, so the status of this reconciliation is not stored and its events are not created.
    if let Some(what) = reconciliation.observed.not_in_place() {
        let message = format!(
            "the JobSet is restarted by recreation, because its workers would wait for each other forever if they restarted \
             in place; the annotation {annotation} makes its agents start their workers at once; to restart in place, \
             create the JobSet again with a specification that allows it: {}",
            cut(what)
        );
        reconciliation.set_condition(conditions::IN_PLACE_UNSUPPORTED, conditions::CANNOT_RESTART_IN_PLACE, &message);
        reconciliation.warn(event::IN_PLACE_RESTART_DISABLED, message);
    } else {
        reconciliation.warn(
            event::IN_PLACE_RESTART_DISABLED,
            format!(
                "the feature gate InPlaceRestart is off, so the JobSet is restarted by recreation; to restart in place, \
                 enable the gate and remove the annotation {annotation}"
            ),
        );
    }
}
