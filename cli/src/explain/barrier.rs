//! The barrier of those that restart in place: who is waited for.

use super::refused::named;
use super::trouble::names;
use super::{Facts, Finding};
use crate::status::{PodBarrier, epoch, report};
use jobset_api::conditions;

pub(super) fn blocked(facts: &Facts) -> Vec<Finding> {
    let advice = format!(
        "Look at the named Pod: `{}` of its init containers and its agent, and what is found below. More such failures \
         of one Pod than maxRestarts fail the JobSet.",
        facts.kubectl("logs POD -c CONTAINER")
    );
    let what = "A worker keeps failing before it gets to the barrier, and the group waits for it.";
    named(facts, conditions::BARRIER_BLOCKED, "BarrierBlocked", what, &advice)
}

/// The barrier is closed: by whom.
pub(super) fn waiting(facts: &Facts) -> Vec<Finding> {
    let Some(epochs) = facts.epochs() else { return Vec::new() };
    let Some(barrier) = report(&facts.jobset, &facts.jobs, &facts.pods).barrier else { return Vec::new() };
    if barrier.lifted {
        return Vec::new();
    }
    let alive = || facts.pods.iter().filter(|pod| !pod.has_ended());
    let at = |wanted: PodBarrier| {
        let pods = alive().filter(|pod| PodBarrier::of(epoch(pod), epochs) == wanted);
        pods.map(kube::ResourceExt::name_any).collect::<Vec<_>>()
    };
    let mut details = Vec::new();
    for (barrier, what) in [
        (PodBarrier::Unreported, "not reported yet"),
        (PodBarrier::Restarting, "not restarted yet"),
        (PodBarrier::Lifted, "not restarted yet"),
        (PodBarrier::Invalid, "an epoch that cannot be"),
    ] {
        let pods = at(barrier);
        if !pods.is_empty() {
            details.push(format!("{what}: {}", names(&pods)));
        }
    }
    let missing = barrier.expected - i64::try_from(alive().count()).unwrap_or(i64::MAX);
    if missing > 0 {
        details.push(format!("not created yet: {missing}"));
    }
    let left = barrier.expected - i64::try_from(barrier.reported).unwrap_or(i64::MAX);
    let what = format!("It waits at the barrier of epoch {} for {left} of {} Pods.", barrier.epoch, barrier.expected);
    let advice = match left {
        ..=0 => {
            "All have reported: the controller is to lift the barrier at once. If it does not, see whether it runs."
                .to_owned()
        }
        _ if at(PodBarrier::Unreported).is_empty() && missing <= 0 => format!(
            "Their containers restart, which takes some seconds. If it does not end: `{}`.",
            facts.kubectl("describe pod POD")
        ),
        _ => format!(
            "See above why they are late. A Pod that runs and does not report: `{}`; its ServiceAccount needs the \
             ClusterRole jobset-agent.",
            facts.kubectl("logs POD -c jobset-agent")
        ),
    };
    vec![Finding::new("WaitingAtBarrier", what, advice).with(details)]
}

/// The group restarts: why.
pub(super) fn restarting(facts: &Facts) -> Vec<Finding> {
    let Some(condition) = facts.condition(conditions::RESTARTING) else { return Vec::new() };
    let name = facts.jobset.metadata.name.as_deref().unwrap_or_default();
    let advice = format!("`{}` shows where the time goes.", facts.kubectl(&format!("jobset restarts {name}")));
    vec![Finding::new("Restarting", "The group restarts.", advice).with(vec![condition.message.clone()])]
}
