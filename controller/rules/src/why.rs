//! Why a Pod does not start, as far as its status, its node and its Events tell.

use jobset_store::pods::PodView;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::reconciliation::Reconciliation;
use crate::types::Action;

/// Reasons of a container that waits for what its status does not tell: its sandbox, its volumes, its image, others before it.
const SILENT: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];

/// How long the first message of a wait waits for the answer.
const ANSWER: SignedDuration = SignedDuration::from_secs(5);

/// What the first of these Pods tells, of those that tell a cause; else the one of which a warning is known, else the first of all. Asks
/// for what that Pod was warned of since this time, if it tells no cause.
pub(super) fn of_first(reconciliation: &mut Reconciliation<'_>, pods: &[&PodView], since: Timestamp) -> Option<String> {
    let pod = most_telling(reconciliation, pods, since)?;
    let known = known(reconciliation, pod);
    if !is_silent(reconciliation, pod) {
        return known;
    }
    let warning = warning_of(reconciliation, pod, since).filter(|words| !words.is_empty());
    let warning = warning.map(|words| format!("the last warning of Pod {} is {words}", pod.name));
    ask(reconciliation, pod, since);
    Some([known, warning].into_iter().flatten().collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
}

/// Whether a message that is to be set so `late` waits for an answer, which is not known yet and may come. Its Event has the words then,
/// too.
pub(super) fn awaits_answer(
    reconciliation: &mut Reconciliation<'_>,
    pods: &[&PodView],
    since: Timestamp,
    late: SignedDuration,
) -> bool {
    let Some(pod) = most_telling(reconciliation, pods, since) else { return false };
    if !is_silent(reconciliation, pod)
        || warning_of(reconciliation, pod, since).is_some()
        || reconciliation.is_due(since.saturating_add(late + ANSWER).unwrap_or(since))
    {
        return false;
    }
    ask(reconciliation, pod, since);
    true
}

/// What a Pod was warned of since this time that tells no cause by itself, if it is one of those that are late.
pub(super) fn warning<'a>(
    reconciliation: &Reconciliation<'a>,
    since: Timestamp,
    is_late: impl Fn(&PodView) -> bool,
) -> Option<&'a str> {
    let observed = reconciliation.observed;
    let (_, pod) = observed.pods().named(&observed.entry.warning.as_ref()?.pod)?;
    let words = warning_of(reconciliation, pod, since).filter(|words| !words.is_empty())?;
    (pod.is_here() && is_late(pod) && is_silent(reconciliation, pod)).then_some(words)
}

fn most_telling<'a>(
    reconciliation: &Reconciliation<'_>,
    pods: &[&'a PodView],
    since: Timestamp,
) -> Option<&'a PodView> {
    let rank = |pod: &PodView| {
        let is_known = known(reconciliation, pod).is_some();
        match (is_silent(reconciliation, pod), warning_of(reconciliation, pod, since)) {
            (false, _) if is_known => 0,
            (true, Some(_)) => 1,
            (true, None) if is_known => 2,
            (true, None) => 3,
            // Its containers run.
            (false, _) => 4,
        }
    };
    pods.iter().copied().min_by_key(|pod| rank(pod))
}

fn ask(reconciliation: &mut Reconciliation<'_>, pod: &PodView, since: Timestamp) {
    let since = since.max(pod.created);
    reconciliation.actions.push(Action::FindWarning { pod: pod.name.clone(), uid: pod.uid.clone(), since });
}

/// The answer about this Pod, if one is known; empty if there is no warning.
fn warning_of<'a>(reconciliation: &Reconciliation<'a>, pod: &PodView, since: Timestamp) -> Option<&'a str> {
    let warning = reconciliation.observed.entry.warning.as_ref()?;
    (warning.uid == pod.uid && warning.since >= since.max(pod.created)).then_some(warning.words.as_str())
}

/// Whether the Pod waits on its node, and nothing but an Event may tell what for.
fn is_silent(reconciliation: &Reconciliation<'_>, pod: &PodView) -> bool {
    pod.node.is_some()
        && pod.sandbox_lost_at.is_none()
        && reconciliation.observed.node_of(pod).is_none_or(|node| node.ready)
        && pod.waiting.as_deref().map_or(pod.unstarted, |waiting| SILENT.contains(&&*waiting.reason))
}

/// What the status of the Pod and its node tell.
fn known(reconciliation: &Reconciliation<'_>, pod: &PodView) -> Option<String> {
    let PodView { name, node, unscheduled, waiting, .. } = pod;
    let Some(node) = node.as_deref() else {
        let why = unscheduled.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
        return Some(format!("Pod {name} has no node{why}"));
    };
    if reconciliation.observed.node_of(pod).is_some_and(|node| !node.ready) {
        return Some(format!("node {node} of Pod {name} is not ready"));
    }
    if pod.sandbox_lost_at.is_some() {
        return Some(format!("node {node} has restarted, and does not start Pod {name} again"));
    }
    let waiting = waiting.as_deref().filter(|waiting| !waiting.reason.is_empty())?;
    let words = if waiting.message.is_empty() { String::new() } else { format!(": {}", waiting.message) };
    Some(format!("container {} of Pod {name} waits ({}{words})", waiting.name, waiting.reason))
}
