//! No admission webhook is configured for JobSets, so nothing sets defaults or rejects an invalid JobSet.

use jobset_api::{RestartStrategy, labels};

use super::{Facts, Finding};
use crate::status::{JobSetState, state};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if facts.admission != Some(false) || state(&facts.jobset).is_good() {
        return Vec::new();
    }
    let annotation = |key: &str| facts.jobset.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
    let in_place = facts.jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    let needs = if in_place && annotation(labels::INJECT_AGENT) {
        "The JobSet asks for an agent, and no webhook injects it into its Pods."
    } else if annotation(labels::EXCLUSIVE_TOPOLOGY) && !annotation(labels::NODE_SELECTOR_STRATEGY) {
        "The JobSet asks for exclusive placement, and no webhook applies it."
    } else if state(&facts.jobset) == JobSetState::Invalid {
        "Missing defaults are not set."
    } else {
        return Vec::new();
    };
    let what = format!("No admission webhook is configured for JobSets. {needs}");
    let advice = "Install the admission webhook (docs/src/install.md), then delete the JobSet and create it again.";
    vec![Finding::new("NoAdmission", what, advice)]
}
