//! Replaces Pods that owe their return and cannot come back.
//!
//! A Pod owes its return if its epoch is over and it has not reported the next one, or if its epoch runs and its worker does not.
//! Who waits at the barrier behind another Pod owes nothing, nor does a worker that has finished. Who has lost its sandbox for good
//! owes it anywhere, at the barrier and before its first report, too. A Pod is replaced only where its
//! return is proved to be impossible, or where its JobSet asks for it after some time: a slow pull or a slow driver proves nothing.
//! The restart that this takes does not count, and begins before the Pod is deleted, so that nobody takes the deletion for a failure.

use std::ops::ControlFlow;
use std::time::Duration;

use jobset_api::epoch::{EpochVerdict, GroupEpochs};
use jobset_api::{conditions, labels};
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::epochs;
use crate::reconciliation::{Reconciliation, name_few, node_name};
use crate::types::PodDeletion;

/// How long the proof that a Pod cannot come back has to last.
const RETURN_LIMIT: SignedDuration = SignedDuration::from_mins(1);

/// Longest time until a Pod without such a proof is replaced, unless its JobSet asks for a longer one.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(24);

struct Replacement {
    /// When the Pod is replaced.
    due: Timestamp,
    why: String,
}

/// Deletes the Pods that cannot come back.
pub(super) fn replace(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let epochs = reconciliation.status.epochs();
    let after = reconciliation.observed.jobset.replace_stuck_pods_after();
    let mut candidates: Vec<(&PodView, Option<Replacement>)> = Vec::new();
    for pods in reconciliation.running_pods() {
        let stuck = pods.stuck().filter(|pod| pod.owes_return(epochs));
        candidates.extend(stuck.map(|pod| (pod, proved(reconciliation, pod))));
        if let Some(after) = after {
            let late = late_pods(pods, epochs).filter(|pod| pod.owes_return(epochs));
            candidates.extend(late.map(|pod| (pod, asked_for(reconciliation, pods, pod, after))));
        }
    }
    let mut due: Vec<(&PodView, Replacement)> = Vec::new();
    let now = reconciliation.now.0;
    let later = now.saturating_add(RETURN_LIMIT).unwrap_or(now);
    for (pod, replacement) in candidates {
        match replacement {
            Some(_) if due.iter().any(|(it, _)| it.uid == pod.uid) => {}
            Some(replacement) => due.extend(reconciliation.is_due(replacement.due).then_some((pod, replacement))),
            // Its container may end again, or its node may become ready.
            None => reconciliation.requeue_at(later),
        }
    }
    if due.is_empty() {
        return ControlFlow::Continue(());
    }
    let names: Vec<&PodView> = due.iter().map(|(pod, _)| *pod).collect();
    // Without a Pod that waits at the barrier, the others run on.
    let runs = |pod: &PodView| pod.epoch.number().is_some_and(|epoch| epochs.verdict(epoch) == EpochVerdict::Run);
    if !epochs.is_closed() && due.iter().any(|(pod, _)| runs(pod)) {
        let message = format!("these Pods cannot come back, and are replaced: {}", name_few(&names));
        reconciliation.set_condition(conditions::WORKERS_NOT_RUNNING, conditions::CANNOT_RETURN, &message);
        epochs::restart_uncounted(reconciliation)?;
    }
    for (pod, Replacement { why, .. }) in due {
        let node = node_name(pod.node.as_ref());
        let message = format!("Pod {} on node {node} is replaced: {why}", pod.name);
        reconciliation.delete_pod(&pod.name, &pod.uid, PodDeletion::CannotReturn, message);
    }
    ControlFlow::Continue(())
}

/// When a Pod is replaced whose return is proved to be impossible. Nothing is proved by a node that is not ready: it may be restarting.
fn proved(reconciliation: &Reconciliation<'_>, pod: &PodView) -> Option<Replacement> {
    let node = reconciliation.observed.node_of(pod)?;
    let (since, is_named) = (owed_since(reconciliation), is_named(reconciliation, pod));
    let (begin, why) = match (pod.sandbox_lost_at, pod.waiting.as_deref()) {
        _ if !node.ready => return None,
        (Some(lost_at), _) => {
            let begin = since.map_or(lost_at, |since| since.max(lost_at));
            (begin, "its node has restarted, and the kubelet does not start it again".to_owned())
        }
        (None, Some(waiting)) => {
            let since = since?;
            let ended_since = |at: Option<Timestamp>| is_named || at.is_some_and(|at| at > since);
            let ended = waiting.ended.as_ref().filter(|exit| ended_since(exit.finished_at))?;
            (since, format!("since the restart, {ended}, and again whenever it starts"))
        }
        (None, None) => return None,
    };
    let due = if is_named { begin } else { begin.saturating_add(RETURN_LIMIT).unwrap_or(begin) };
    Some(Replacement { due, why })
}

/// The Pods that may be late: lifted and not started, or told to restart and still in an epoch that is over.
fn late_pods(pods: &JobPods, epochs: GroupEpochs) -> Box<dyn Iterator<Item = &PodView> + '_> {
    if !epochs.is_closed() {
        return Box::new(pods.not_started_in(epochs.synced));
    }
    let told = pods.reports().range(1..=epochs.deprecated).next().is_some();
    Box::new(pods.not_at(epochs.synced.saturating_add(1)).filter(move |_| told))
}

/// When a Pod is replaced that nobody has proved to be lost, because its JobSet asks for that. The time doubles with each Pod of its
/// index that was deleted before it started. Where the node is not ready, no kubelet would end the Pod.
fn asked_for(
    reconciliation: &Reconciliation<'_>,
    pods: &JobPods,
    pod: &PodView,
    after: Duration,
) -> Option<Replacement> {
    reconciliation.observed.node_of(pod).filter(|node| node.ready)?;
    let since = owed_since(reconciliation)?;
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    let longest = after.max(LONGEST_WAIT);
    let wait = after.checked_mul(1 << pods.deleted_before_start(pod.index).min(20)).unwrap_or(longest).min(longest);
    let due = if is_named(reconciliation, pod) { since } else { since.saturating_add(wait).unwrap_or(Timestamp::MAX) };
    let minutes = wait.as_mins();
    Some(Replacement {
        due,
        why: format!("it has not come back for {minutes} min ({})", labels::REPLACE_STUCK_PODS_AFTER),
    })
}

/// Since when Pods owe their return: the last epoch began, or is over.
fn owed_since(reconciliation: &Reconciliation<'_>) -> Option<Timestamp> {
    reconciliation.status.epoch_transition_time.as_ref().map(|time| time.0)
}

/// Whether the stored condition says that the Pod is to be replaced: the epoch in which its worker did not start has been ended for
/// that.
fn is_named(reconciliation: &Reconciliation<'_>, pod: &PodView) -> bool {
    let stored = reconciliation.true_condition(conditions::WORKERS_NOT_RUNNING);
    stored.is_some_and(|it| it.reason == conditions::CANNOT_RETURN && it.message.contains(&pod.name))
}
