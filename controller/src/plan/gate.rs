//! A JobSet that cannot restart in place, with the feature gate off or by its own specification, is restarted by recreation.
//! Its agents are told to let their workers run, or these would wait at the barrier for ever (`protocol.md`, agent rule 0).

use jobset_api::{RestartStrategy, conditions, labels};

use super::invalid::cut;
use super::pass::Pass;
use super::{Action, Settings};
use crate::observe::Observed;

/// How the JobSet is restarted: as it says, or by recreation where it cannot restart in place, or its agents were told so.
pub(super) fn strategy(seen: &Observed<'_>, settings: &Settings) -> RestartStrategy {
    let in_place = settings.gates.in_place_restart && seen.not_in_place().is_none() && !agents_are_told(seen);
    match seen.jobset.spec.restart_strategy() {
        RestartStrategy::InPlaceRestart if !in_place => RestartStrategy::Recreate,
        strategy => strategy,
    }
}

pub(super) fn disable_in_place_restart(pass: &mut Pass<'_>) {
    if pass.seen.jobset.spec.restart_strategy() != RestartStrategy::InPlaceRestart {
        return;
    }
    let cause = match (pass.seen.not_in_place(), pass.settings.gates.in_place_restart) {
        (Some(_), _) => "cannot restart in place",
        (None, false) => "feature gate is off",
        (None, true) => return,
    };
    if !agents_are_told(&pass.seen) {
        pass.actions.push(Action::DisableInPlaceRestart(cause));
    }
    let annotation = labels::DISABLE_IN_PLACE_RESTART;
    // Not only when they are told: that changes the JobSet under this pass, whose notes are then those of a status that
    // was not stored.
    if let Some(what) = pass.seen.not_in_place() {
        let message = format!(
            "restarted by recreation, and its agents are told by the annotation {annotation} to let their workers run: \
             the workers could not restart in place, because they would wait for each other for ever; create the JobSet \
             again with what is required here: {}",
            cut(what)
        );
        pass.set_condition(conditions::IN_PLACE_UNSUPPORTED, true, conditions::CANNOT_RESTART_IN_PLACE, &message);
        pass.warn("InPlaceRestartDisabled", message);
    } else {
        pass.warn(
            "InPlaceRestartDisabled",
            format!(
                "the feature gate InPlaceRestart is off: restarted by recreation; remove the annotation {annotation} when \
                 it is on"
            ),
        );
    }
}

fn agents_are_told(seen: &Observed<'_>) -> bool {
    seen.jobset.metadata.annotations.iter().flatten().any(|(key, _)| key == labels::DISABLE_IN_PLACE_RESTART)
}
