//! With the feature gate off, a JobSet that restarts in place is restarted by recreation. Its agents are told to let
//! their workers run, or these would wait at the barrier for ever (`protocol.md`, agent rule 0).

use jobset_api::{RestartStrategy, labels};

use super::Action;
use super::pass::Pass;

pub(super) fn disable_in_place_restart(pass: &mut Pass<'_>) {
    let jobset = pass.seen.jobset;
    let wanted = jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    let annotated =
        jobset.metadata.annotations.iter().flatten().any(|(key, _)| key == labels::DISABLE_IN_PLACE_RESTART);
    if wanted && !pass.settings.gates.in_place_restart && !annotated {
        pass.actions.push(Action::DisableInPlaceRestart);
        pass.warn(
            "InPlaceRestartDisabled",
            format!(
                "the feature gate InPlaceRestart is off: restarted by recreation; remove the annotation {} when it is on",
                labels::DISABLE_IN_PLACE_RESTART
            ),
        );
    }
}
