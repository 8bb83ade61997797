//! The problem that keeps one Pod from being ready.

use jobset_api::labels;
use jobset_objects::{ContainerTerminated, PartialContainerStatus, PartialPod};
use kube::ResourceExt as _;

use crate::output::one_line;
use crate::status::{Epochs, PodBarrier, ended, epoch};

/// The most names of Pods in a finding.
const SHOWN: usize = 5;

/// A problem of a Pod. Pods with equal problems share a finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PodProblem {
    /// The scheduler found no node for the leader of this Job, whose followers wait.
    Leader(String, String),
    /// The scheduler found no node.
    Unschedulable(String),
    /// Scheduling gates hold the Pod back.
    Gated(String),
    /// No scheduler has reported on the Pod.
    Unscheduled,
    /// An image cannot be pulled: container, message.
    Image(String, String),
    /// A container cannot be created: container, message.
    Config(String, String),
    /// An init container fails: container, exit code and termination message.
    Init(String, String),
    /// A container fails: container, exit code and termination message.
    Crash(String, String),
    /// The agent runs but has not reported.
    Silent,
    /// The Pod is being deleted.
    Terminating,
    /// The Pod starts: what it waits for.
    Starting(String),
}

/// The problem of a Pod. None if the Pod is ready, has ended, or only waits at the barrier for other Pods.
pub(super) fn of(pod: &PartialPod, epochs: Option<Epochs>) -> Option<PodProblem> {
    if pod.is_ready() || pod.has_ended() {
        return None;
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(PodProblem::Terminating);
    }
    if pod.spec.node_name.is_none() {
        return Some(unscheduled(pod));
    }
    let containers = || pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    if let Some(problem) = containers().find_map(|status| container(pod, status)) {
        return Some(problem);
    }
    match epochs.map(|epochs| PodBarrier::of(epoch(pod), epochs)) {
        Some(PodBarrier::Waiting | PodBarrier::Restarting) => None,
        Some(PodBarrier::Unreported) if containers().any(|status| status.state.running.is_some()) => {
            Some(PodProblem::Silent)
        }
        _ => Some(PodProblem::Starting(waits_for(pod))),
    }
}

fn unscheduled(pod: &PartialPod) -> PodProblem {
    let Some(condition) = pod.condition("PodScheduled").filter(|condition| condition.status == "False") else {
        return PodProblem::Unscheduled;
    };
    let annotation = |key: &str| pod.annotations().get(key).map(String::as_str);
    let message = condition.message.clone();
    let leads = annotation(labels::EXCLUSIVE_TOPOLOGY).is_some() && annotation(labels::COMPLETION_INDEX) == Some("0");
    match condition.reason.as_str() {
        "SchedulingGated" => PodProblem::Gated(message),
        _ if leads => PodProblem::Leader(pod.labels().get(labels::JOB_NAME).cloned().unwrap_or_default(), message),
        _ => PodProblem::Unschedulable(message),
    }
}

fn container(pod: &PartialPod, status: &PartialContainerStatus) -> Option<PodProblem> {
    let name = status.name.clone();
    let is_init = pod.spec.init_containers.iter().any(|it| it.name == status.name && !it.is_sidecar());
    let failed = |end: &ContainerTerminated| {
        let words = one_line(&end.message);
        let words = if words.is_empty() {
            "no termination message".to_owned()
        } else {
            format!("termination message: {words}")
        };
        let text = format!("{}, {words}", ended(end));
        if is_init { PodProblem::Init(name.clone(), text) } else { PodProblem::Crash(name.clone(), text) }
    };
    if let Some(end) = status.state.terminated.as_ref().filter(|end| end.exit_code != 0) {
        return Some(failed(end));
    }
    let waiting = status.state.waiting.as_ref()?;
    let words = || format!("{}: {}", waiting.reason, waiting.message);
    match waiting.reason.as_str() {
        "CrashLoopBackOff" => {
            let end = status.last_state.terminated.as_ref();
            Some(end.map_or_else(|| PodProblem::Crash(name.clone(), words()), failed))
        }
        reason if reason.contains("Image") || reason == "RegistryUnavailable" => Some(PodProblem::Image(name, words())),
        reason if reason.ends_with("Error") => Some(PodProblem::Config(name, words())),
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
    started.into_iter().next().unwrap_or_else(|| "the kubelet has not started it".to_owned())
}

/// The names of these Pods. Of many Pods, only the first ones are named.
pub(super) fn names(pods: &[String]) -> String {
    let shown = pods.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match pods.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
