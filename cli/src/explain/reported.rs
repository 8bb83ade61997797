//! Failures that the controller reports in a condition.

use jobset_api::{conditions, labels};
use kube::ResourceExt as _;

use super::{Facts, Finding, creation};

pub(super) fn invalid(facts: &Facts) -> Vec<Finding> {
    let advice = "Delete the JobSet, fix the manifest (`kubectl jobset validate -f FILE` checks it), and create it \
                  again. It was created without the admission webhook, or with a webhook with other rules.";
    let what = "The controller does not reconcile the JobSet, because its specification is not valid.";
    named(facts, conditions::INVALID, "Invalid", what, advice)
}

pub(super) fn internal_error(facts: &Facts) -> Vec<Finding> {
    let advice = "This is a bug of the controller: please report the message. The controller tries again every five minutes, \
                  and when the specification changes.";
    let what = "The controller cannot reconcile the JobSet because of an error of its own.";
    named(facts, conditions::INTERNAL_ERROR, "InternalError", what, advice)
}

pub(super) fn unsupported(facts: &Facts) -> Vec<Finding> {
    if is_by_specification(facts) {
        return Vec::new();
    }
    let advice = "Upgrade the named component to Kubernetes 1.36 or newer, or use restartStrategy Recreate.";
    let what = "The cluster does not support in-place restart.";
    named(facts, conditions::IN_PLACE_UNSUPPORTED, "InPlaceUnsupported", what, advice)
}

/// A remark: the JobSet runs, but without in-place restart.
pub(super) fn not_in_place(facts: &Facts) -> Vec<Finding> {
    if !is_by_specification(facts) {
        return Vec::new();
    }
    let advice = "Create the JobSet again with the named requirement, or with restartStrategy Recreate.";
    let what = "The JobSet has the strategy InPlaceRestart, but restarts by recreation.";
    named(facts, conditions::IN_PLACE_UNSUPPORTED, conditions::CANNOT_RESTART_IN_PLACE, what, advice)
}

fn is_by_specification(facts: &Facts) -> bool {
    let condition = facts.condition(conditions::IN_PLACE_UNSUPPORTED);
    condition.is_some_and(|condition| condition.reason == conditions::CANNOT_RESTART_IN_PLACE)
}

pub(super) fn child_refused(facts: &Facts) -> Vec<Finding> {
    if facts.condition(conditions::CHILD_REFUSED).is_some_and(|it| creation::is_about_pods(&it.message, facts)) {
        return Vec::new();
    }
    let advice = "Fix the named problem in the JobSet or the cluster (a quota, a policy, a name in use). The controller \
                  retries.";
    let what = "The API server refuses an object of the JobSet.";
    named(facts, conditions::CHILD_REFUSED, "ChildRefused", what, advice)
}

pub(super) fn recreation_blocked(facts: &Facts) -> Vec<Finding> {
    let Some(condition) = facts.condition(conditions::RECREATION_BLOCKED) else { return Vec::new() };
    let (kind, name) = left_over(&condition.message).unwrap_or(("Pod", "POD"));
    let advice = format!(
        "See what keeps the named {kind}s: `{}`. Jobs are created when they are gone.",
        facts.kubectl(&format!("get {} {name} -o jsonpath='{{.metadata.finalizers}}'", kind.to_lowercase()))
    );
    let what = format!("{kind}s of an earlier attempt do not go, and the Jobs of this one wait for them.");
    named(facts, conditions::RECREATION_BLOCKED, "RecreationBlocked", &what, &advice)
}

/// Kind and name of the first object of an earlier attempt that the message of the condition names.
fn left_over(message: &str) -> Option<(&'static str, &str)> {
    let (_, objects) = message.split_once("Jobs wait for them: ")?;
    let mut words = objects.split([' ', ',']);
    let kind = words.next().and_then(|word| ["Pod", "Job"].into_iter().find(|kind| *kind == word))?;
    Some((kind, words.next().filter(|name| !name.is_empty())?))
}

/// A remark: somebody asks for a restart, and the controller has not dealt with it.
pub(super) fn restart_request(facts: &Facts) -> Vec<Finding> {
    let key = labels::RESTART_REQUEST;
    let name = facts.jobset.name_any();
    let (what, advice) = match facts.jobset.restart_request() {
        Some(Err(_)) => (
            format!("The annotation {key} is no request of a restart, and is ignored."),
            format!(
                "The Event RestartRequestInvalid says why. Use `{}`.",
                facts.kubectl(&format!("jobset restart {name}"))
            ),
        ),
        _ => match facts.jobset.pending_restart_request() {
            Some(request) => (
                format!("A restart is requested ({}), and the controller has not dealt with it yet.", request.id),
                format!(
                    "It does so within a second, if one leads. To withdraw the request, run `{}`.",
                    facts.kubectl(&format!("annotate jobset {name} {key}-"))
                ),
            ),
            None => return Vec::new(),
        },
    };
    vec![Finding::new("RestartRequested", what, advice)]
}

/// A finding with the message of a condition, if the condition is true.
pub(super) fn named(facts: &Facts, condition: &str, reason: &'static str, what: &str, advice: &str) -> Vec<Finding> {
    let Some(condition) = facts.condition(condition) else { return Vec::new() };
    vec![Finding::new(reason, what, advice).with(vec![condition.message.clone()])]
}
