//! No admission service looks at JobSets: what they lack nobody fills in, and nobody refuses what cannot work.

use jobset_api::{RestartStrategy, labels};

use super::{Facts, Finding, Readable};
use crate::status::{State, state};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if facts.admission != Readable::Seen(false) || state(&facts.jobset).is_good() {
        return Vec::new();
    }
    let annotation = |key: &str| facts.jobset.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
    let in_place = facts.jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    let needs = if in_place && annotation(labels::INJECT_AGENT) {
        "It asks for an agent, which nobody has put into its Pods."
    } else if annotation(labels::EXCLUSIVE_TOPOLOGY) && !annotation(labels::NODE_SELECTOR_STRATEGY) {
        "It asks for exclusive placement, which nobody carries out."
    } else if state(&facts.jobset) == State::Invalid {
        "What it lacks nobody has filled in."
    } else {
        return Vec::new();
    };
    let what = format!("No admission webhook looks at JobSets. {needs}");
    let advice = "Install the admission service (README, \"Use it\"), then delete the JobSet and create it again.";
    vec![Finding::new("NoAdmission", what, advice)]
}
