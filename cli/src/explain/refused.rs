//! The controller cannot carry it out as it is, and has said so in a condition.

use jobset_api::conditions;

use super::{Facts, Finding};

pub(super) fn invalid(facts: &Facts) -> Vec<Finding> {
    let advice = "Delete it, mend the manifest (`kubectl jobset validate -f FILE` says whether it is), and create it \
                  again. It got in while no admission service was there, or one with other rules.";
    named(facts, conditions::INVALID, "Invalid", "It is left alone, since it cannot be carried out.", advice)
}

pub(super) fn unsupported(facts: &Facts) -> Vec<Finding> {
    if is_by_specification(facts) {
        return Vec::new();
    }
    let advice = "Upgrade what is named to Kubernetes 1.36 or newer, or use restartStrategy Recreate.";
    let what = "The cluster cannot restart its Pods in place.";
    named(facts, conditions::IN_PLACE_UNSUPPORTED, "InPlaceUnsupported", what, advice)
}

/// It runs all the same.
pub(super) fn not_in_place(facts: &Facts) -> Vec<Finding> {
    if !is_by_specification(facts) {
        return Vec::new();
    }
    let advice = "Create it again with what is required, or with restartStrategy Recreate.";
    let what = "It asks for a restart in place, and is restarted by recreation.";
    named(facts, conditions::IN_PLACE_UNSUPPORTED, conditions::CANNOT_RESTART_IN_PLACE, what, advice)
}

fn is_by_specification(facts: &Facts) -> bool {
    let condition = facts.condition(conditions::IN_PLACE_UNSUPPORTED);
    condition.is_some_and(|condition| condition.reason == conditions::CANNOT_RESTART_IN_PLACE)
}

pub(super) fn child_refused(facts: &Facts) -> Vec<Finding> {
    let advice = "Mend what is named, here or in the cluster (a quota, a policy, a name that is taken). The controller \
                  tries it again by itself.";
    let what = "Something that it needs cannot be created.";
    named(facts, conditions::CHILD_REFUSED, "ChildRefused", what, advice)
}

/// A condition that is true, in the controller's words.
pub(super) fn named(facts: &Facts, condition: &str, reason: &'static str, what: &str, advice: &str) -> Vec<Finding> {
    let Some(condition) = facts.condition(condition) else { return Vec::new() };
    vec![Finding::new(reason, what, advice).with(vec![condition.message.clone()])]
}
