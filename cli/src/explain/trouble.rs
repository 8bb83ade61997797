//! What keeps one Pod from being ready.

use jobset_api::labels;
use jobset_objects::{ContainerTerminated, PartialContainerStatus, PartialPod};
use kube::ResourceExt as _;

use crate::output::one_line;
use crate::status::{Epochs, PodBarrier, ended, epoch};

/// Names of Pods that are written out.
const SHOWN: usize = 5;

/// What keeps a Pod from being ready. Pods with the same trouble in the same words are told of together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// The scheduler found no node for the leader of this Job, whose followers wait.
    Leader(String, String),
    /// The scheduler found no node.
    Unschedulable(String),
    /// It is not to be scheduled yet.
    Gated(String),
    /// No scheduler has looked at it.
    Unscheduled,
    /// An image cannot be had: container, words.
    Image(String, String),
    /// A container cannot be created: container, words.
    Config(String, String),
    /// An init container fails: container, end and last words.
    Init(String, String),
    /// A container fails and is started again: container, end and last words.
    Crash(String, String),
    /// Its agent runs and has not reported.
    Silent,
    /// It is being deleted.
    Terminating,
    /// It starts: what it waits for.
    Starting(String),
}

/// The trouble of a Pod, if it has any: not of one that is ready, has ended, or only waits at the barrier for others.
pub(super) fn of(pod: &PartialPod, epochs: Option<Epochs>) -> Option<Trouble> {
    if pod.is_ready() || pod.has_ended() {
        return None;
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(Trouble::Terminating);
    }
    if pod.spec.node_name.is_none() {
        return Some(unscheduled(pod));
    }
    let containers = || pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    if let Some(trouble) = containers().find_map(|status| container(pod, status)) {
        return Some(trouble);
    }
    match epochs.map(|epochs| PodBarrier::of(epoch(pod), epochs)) {
        Some(PodBarrier::Waiting | PodBarrier::Restarting) => None,
        Some(PodBarrier::Unreported) if containers().any(|status| status.state.running.is_some()) => {
            Some(Trouble::Silent)
        }
        _ => Some(Trouble::Starting(waits_for(pod))),
    }
}

fn unscheduled(pod: &PartialPod) -> Trouble {
    let Some(condition) = pod.condition("PodScheduled").filter(|condition| condition.status == "False") else {
        return Trouble::Unscheduled;
    };
    let annotation = |key: &str| pod.annotations().get(key).map(String::as_str);
    let message = condition.message.clone();
    let leads = annotation(labels::EXCLUSIVE_TOPOLOGY).is_some() && annotation(labels::COMPLETION_INDEX) == Some("0");
    match condition.reason.as_str() {
        "SchedulingGated" => Trouble::Gated(message),
        _ if leads => Trouble::Leader(pod.labels().get(labels::JOB_NAME).cloned().unwrap_or_default(), message),
        _ => Trouble::Unschedulable(message),
    }
}

fn container(pod: &PartialPod, status: &PartialContainerStatus) -> Option<Trouble> {
    let name = status.name.clone();
    let is_init = pod.spec.init_containers.iter().any(|it| it.name == status.name && !it.is_sidecar());
    let failed = |end: &ContainerTerminated| {
        let words = one_line(&end.message);
        let words = if words.is_empty() { "it left no last words".to_owned() } else { format!("last words: {words}") };
        let text = format!("{}, {words}", ended(end));
        if is_init { Trouble::Init(name.clone(), text) } else { Trouble::Crash(name.clone(), text) }
    };
    if let Some(end) = status.state.terminated.as_ref().filter(|end| end.exit_code != 0) {
        return Some(failed(end));
    }
    let waiting = status.state.waiting.as_ref()?;
    let words = || format!("{}: {}", waiting.reason, waiting.message);
    match waiting.reason.as_str() {
        "CrashLoopBackOff" => {
            let end = status.last_state.terminated.as_ref();
            Some(end.map_or_else(|| Trouble::Crash(name.clone(), words()), failed))
        }
        reason if reason.contains("Image") || reason == "RegistryUnavailable" => Some(Trouble::Image(name, words())),
        reason if reason.ends_with("Error") => Some(Trouble::Config(name, words())),
        _ => None,
    }
}

fn waits_for(pod: &PartialPod) -> String {
    let containers = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let started: Vec<String> = containers
        .filter(|status| !status.ready && status.state.terminated.is_none())
        .map(|status| match &status.state.waiting {
            Some(waiting) if !waiting.reason.is_empty() => format!("container {}: {}", status.name, waiting.reason),
            _ => format!("container {} is not ready", status.name),
        })
        .take(1)
        .collect();
    started.into_iter().next().unwrap_or_else(|| "its kubelet has not started it".to_owned())
}

/// The names of these Pods, or of the first of very many.
pub(super) fn names(pods: &[String]) -> String {
    let shown = pods.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match pods.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
