//! Takes Pods away from cordoned nodes, where their JobSet says so: the annotation
//! [`LEAVE_CORDONED`](jobset_api::labels::LEAVE_CORDONED).
//!
//! Whenever the group restarts, its Pods on cordoned nodes are deleted, and the others restart in place. Where they leave at once, the
//! rule begins that restart, one for all nodes that are cordoned within a short time. It does not count. The restart is stored
//! before a Pod is deleted, so that nobody takes the deletion for a failure. What a node was cordoned for needs no memory: the time is in
//! its taint, and a new leader waits for others as long as its predecessor.
//!
//! The successors go where the scheduler finds room: a Pod that is placed exclusively stays in the domain of its Job, as long as
//! another Pod of the Job is there. If no other node of the domain takes Pods, all Pods of the Job leave, and the next leader finds
//! another domain; if one of them has to stay, all do. Where there is no room, the group waits, and BarrierWaiting names the Pods that have
//! no node.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use jobset_api::{LeaveCordoned, conditions, event, labels};
use jobset_store::PodOnNode;
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::cause::{Cause, Counting};
use crate::epochs::{self, Epochs};
use crate::nodes::{pinned, way_out};
use crate::reconciliation::{Reconciliation, first_few, name_few, node_name};
use crate::types::{PodDeletion, Trigger};
use crate::{members, success};

/// How long the group waits after the newest cordon, in case that others follow.
const GATHERING: SignedDuration = SignedDuration::from_secs(5);
/// How long it waits after the first one.
const LONGEST_GATHERING: SignedDuration = SignedDuration::from_secs(15);
/// Shortest time between two restarts for the sake of cordoned nodes.
const COOL_DOWN: SignedDuration = SignedDuration::from_mins(10);

/// Deletes the Pods on cordoned nodes if the group restarts. Otherwise begins that restart, if the Pods leave at once.
pub(super) fn leave(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let own = reconciliation.observed.jobset.leave_cordoned();
    let mode = own.unwrap_or(reconciliation.settings.leave_cordoned);
    let cooled_down = cools_down_until(reconciliation);
    if cooled_down.is_none() {
        let message = "Pods may leave cordoned nodes again";
        reconciliation.clear_condition(conditions::LEFT_CORDONED_NODES, conditions::COOLED_DOWN, message);
    }
    if mode == LeaveCordoned::Never || reconciliation.status.synced_epoch == 0 {
        return ControlFlow::Continue(());
    }
    let pods = movable_pods(reconciliation);
    if pods.is_empty() {
        return ControlFlow::Continue(());
    }
    if Epochs::of(&reconciliation.status).is_over() {
        for PodOnNode { pod, .. } in pods {
            let (name, node) = (&pod.name, node_name(pod.node.as_ref()));
            let message = format!("Pod {name} leaves node {node}, which is cordoned ({})", labels::LEAVE_CORDONED);
            reconciliation.delete_pod(name, &pod.uid, PodDeletion::LeavesCordoned, message);
        }
        // They may have reported the next epoch. It must not begin with them.
        reconciliation.leaves_cordoned = true;
        return ControlFlow::Continue(());
    }
    if mode == LeaveCordoned::Now { restart(reconciliation, &pods, cooled_down) } else { ControlFlow::Continue(()) }
}

/// Begins a restart that does not count, if its time has come. Breaks then: the status has to be stored first.
fn restart(
    reconciliation: &mut Reconciliation<'_>,
    pods: &[PodOnNode<'_>],
    cooled_down: Option<Timestamp>,
) -> ControlFlow<()> {
    let slots = members::slots(reconciliation);
    // A failure restarts the group anyway. Workers that have succeeded cannot come back in place, and have not done their work for
    // nothing: the others stay until they have succeeded, too.
    if slots.has_failed(reconciliation.next_epoch()) || slots.done > 0 || success::is_decided(reconciliation) {
        return ControlFlow::Continue(());
    }
    let due = gathered_at(pods.iter().map(|it| it.since), reconciliation.now.0).max(cooled_down);
    if due.is_some_and(|due| !reconciliation.is_due(due)) {
        return ControlFlow::Continue(());
    }
    let nodes: BTreeSet<&str> = pods.iter().map(|it| node_name(it.pod.node.as_ref())).collect();
    let nodes = first_few(&nodes.into_iter().collect::<Vec<_>>());
    let names = name_few(&pods.iter().map(|it| it.pod).collect::<Vec<_>>());
    let reason = conditions::NODES_CORDONED.to_owned();
    let message = format!("Pods leave cordoned nodes {nodes}: {names}");
    let cause = Cause { reason, message, trigger: Trigger::Cordoned, failed_at: None, is_loss: true, blame: None };
    epochs::begin(reconciliation, Counting::Ignored, &cause, "not counted", true)?;
    let minutes = COOL_DOWN.as_mins();
    let message =
        format!("these Pods leave cordoned nodes {nodes}: {names}; the next ones not before {minutes} min are over");
    reconciliation.set_condition(conditions::LEFT_CORDONED_NODES, conditions::NODES_CORDONED, &message);
    ControlFlow::Break(())
}

/// The Pods that can leave their cordoned nodes, in the order of their names. Says which ones cannot.
///
/// A Pod that is younger than the cordon has come in spite of it, and so would its successor.
fn movable_pods<'a>(reconciliation: &mut Reconciliation<'a>) -> Vec<PodOnNode<'a>> {
    let groups = reconciliation.groups_of_running_jobs();
    let mut movable = Vec::new();
    for it in reconciliation.observed.cordoned() {
        let PodOnNode { pod, job, since } = it;
        let group = groups.get(job).map(|group| &reconciliation.groups()[*group]);
        let Some(group) = group else { continue };
        if !pod.is_here() || pod.created > since {
            continue;
        }
        match pinned::why(&group.template.spec.template, Some(pod)) {
            Some(why) => say_it_stays(reconciliation, it, why),
            None => movable.push(it),
        }
    }
    let bound = bound_jobs(reconciliation, &movable);
    movable.retain(|it| {
        let why = bound.get(it.job);
        if let Some(why) = why {
            say_it_stays(reconciliation, *it, why);
        }
        why.is_none()
    });
    movable
}

fn say_it_stays(reconciliation: &mut Reconciliation<'_>, it: PodOnNode<'_>, why: &str) {
    let (name, node) = (&it.pod.name, node_name(it.pod.node.as_ref()));
    let message = format!("Pod {name} stays on node {node}, which is cordoned: {why}");
    reconciliation.warn(event::STAYS_ON_CORDONED_NODE, message);
}

/// Why these Pods have to stay, by the UID of their Job: another Pod of the Job stays, and binds them to a domain that has no node for
/// them.
fn bound_jobs<'a>(reconciliation: &Reconciliation<'_>, movable: &[PodOnNode<'a>]) -> HashMap<&'a str, String> {
    let mut jobs: HashMap<&str, Vec<&PodOnNode<'_>>> = HashMap::new();
    for it in movable {
        jobs.entry(it.job).or_default().push(it);
    }
    let bound = jobs.into_iter().filter_map(|(job, leaving)| {
        let has_choice = leaving.first().is_none_or(|it| way_out::has_choice(reconciliation, it.pod));
        let pods = reconciliation.observed.pods().of_job(job).filter(|_| !has_choice);
        let leaves: BTreeSet<&str> = leaving.iter().map(|it| it.pod.name.as_str()).collect();
        let stays = |pod: &&PodView| pod.is_here() && pod.node.is_some() && !leaves.contains(pod.name.as_str());
        let first = pods.into_iter().flat_map(JobPods::all).filter(stays).map(|pod| &pod.name).min()?;
        let why =
            format!("its Job is placed exclusively, Pod {first} stays, and no other node of their domain takes Pods");
        Some((job, why))
    });
    bound.collect()
}

/// Until when Pods stay on cordoned nodes because others have left some a short time ago. A time in the far future comes from a wrong
/// clock.
fn cools_down_until(reconciliation: &Reconciliation<'_>) -> Option<Timestamp> {
    let left = reconciliation.true_condition(conditions::LEFT_CORDONED_NODES)?.last_transition_time.0;
    let lasts = reconciliation.now.0.duration_since(left).abs() < COOL_DOWN;
    lasts.then(|| left.saturating_add(COOL_DOWN).unwrap_or(Timestamp::MAX))
}

/// When nobody waits for another node to be cordoned. A time in the far future comes from a wrong clock.
fn gathered_at(cordons: impl Iterator<Item = Timestamp> + Clone, now: Timestamp) -> Option<Timestamp> {
    let latest = now.saturating_add(LONGEST_GATHERING).unwrap_or(now);
    let cordons = cordons.filter(|since| *since <= latest);
    let after = |since: Timestamp, wait| since.saturating_add(wait).unwrap_or(Timestamp::MAX);
    let (first, newest) = (cordons.clone().min()?, cordons.max()?);
    Some(after(newest, GATHERING).min(after(first, LONGEST_GATHERING)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one(&[100], 100, Some(105))]
    #[case::two(&[100, 103], 103, Some(108))]
    #[case::one_after_the_other(&[100, 104, 108, 112], 112, Some(115))]
    #[case::long_ago(&[100, 1000], 1000, Some(115))]
    #[case::wrong_clock(&[100, 5000], 100, Some(105))]
    #[case::wrong_clock_alone(&[5000], 100, None)]
    fn nodes_gather_until_none_follows(#[case] cordons: &[i64], #[case] now: i64, #[case] expected: Option<i64>) {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let gathered = gathered_at(cordons.iter().map(|second| at(*second)), at(now));
        assert_eq!(gathered, expected.map(at));
    }
}
