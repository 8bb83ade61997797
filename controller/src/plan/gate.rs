//! With the feature gate off, a JobSet that restarts in place is restarted by recreation. Its agents are told to let
//! their workers run, or these would wait at the barrier for ever (`protocol.md`, agent rule 0).

use jobset_api::{JobSet, RestartStrategy, labels};

use super::pass::Pass;
use super::{Action, Settings};

/// How the JobSet is restarted: as it says, or by recreation where the gate is off, or its agents were told that it is.
pub(super) fn strategy(jobset: &JobSet, settings: &Settings) -> RestartStrategy {
    match jobset.spec.restart_strategy() {
        RestartStrategy::InPlaceRestart if !settings.gates.in_place_restart || agents_are_told(jobset) => {
            RestartStrategy::Recreate
        }
        strategy => strategy,
    }
}

pub(super) fn disable_in_place_restart(pass: &mut Pass<'_>) {
    let jobset = pass.seen.jobset;
    let wanted = jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    if !wanted || pass.settings.gates.in_place_restart {
        return;
    }
    if !agents_are_told(jobset) {
        pass.actions.push(Action::DisableInPlaceRestart);
    }
    // Not only when they are told: that changes the JobSet under this pass, whose notes are then those of a status that
    // was not stored.
    pass.warn(
        "InPlaceRestartDisabled",
        format!(
            "the feature gate InPlaceRestart is off: restarted by recreation; remove the annotation {} when it is on",
            labels::DISABLE_IN_PLACE_RESTART
        ),
    );
}

fn agents_are_told(jobset: &JobSet) -> bool {
    jobset.metadata.annotations.iter().flatten().any(|(key, _)| key == labels::DISABLE_IN_PLACE_RESTART)
}
