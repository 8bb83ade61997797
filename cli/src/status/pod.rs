//! A Pod in the tree.

use std::borrow::Cow;

use jobset_api::agent::FAILED_JOBSET_EXIT_CODE;
use jobset_api::labels;
use jobset_objects::{ContainerTerminated, PartialContainerStatus, PartialPod, WorkerExit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::barrier::{Epochs, PodBarrier};
use crate::output::one_line;

/// The reason that the kubelet writes for all containers of a Pod that it restarts in place. The true exit code is lost.
const RESET: &str = "RestartingAllContainers";

/// A Pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNode {
    /// Its name.
    pub name: String,
    /// Its completion index in the Job.
    pub index: Option<i32>,
    /// The column STATUS of `kubectl get pods`.
    pub state: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it has succeeded or failed.
    pub ended: bool,
    /// Its ready containers, and all its containers.
    pub containers: (usize, usize),
    /// The epoch that its agent reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// Its state at the barrier; none without in-place restart, or after the Pod has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier: Option<PodBarrier>,
    /// The restarts of its most restarted container.
    pub restarts: i32,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How a container, or the worker of a supervising agent, ended last, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
    /// When it was created.
    pub created: Option<Time>,
}

/// The epoch that a Pod reports, as written. An attempt of the Go JobSet's agent is an epoch less one.
pub fn epoch(pod: &PartialPod) -> Option<Cow<'_, str>> {
    let annotation = |key| pod.annotations().get(key).map(|value| Cow::Borrowed(value.as_str()));
    let attempt = || {
        let attempt = annotation(labels::IN_PLACE_RESTART_ATTEMPT)?;
        let number = attempt.parse::<i32>().ok().and_then(|attempt| attempt.checked_add(1));
        Some(number.map_or(attempt, |epoch| Cow::Owned(epoch.to_string())))
    };
    annotation(labels::EPOCH).or_else(attempt)
}

impl PodNode {
    /// The node for a Pod. `epochs` is given for in-place restart.
    pub fn of(pod: &PartialPod, epochs: Option<Epochs>) -> Self {
        let ended = pod.has_ended();
        let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
        let sidecars: Vec<&str> = sidecars.map(|container| container.name.as_str()).collect();
        let init = &pod.status.init_container_statuses;
        let beside = init.iter().filter(|status| sidecars.contains(&status.name.as_str()));
        let counted: Vec<&PartialContainerStatus> = pod.status.container_statuses.iter().chain(beside).collect();
        let ready = counted.iter().filter(|status| status.ready).count();
        let all = init.iter().chain(&pod.status.container_statuses);
        Self {
            name: pod.name_any(),
            index: pod.annotations().get(labels::COMPLETION_INDEX).and_then(|index| index.parse().ok()),
            state: state(pod, &sidecars),
            ready: pod.is_ready(),
            ended,
            containers: (ready, pod.spec.containers.len() + sidecars.len()),
            epoch: epoch(pod).map(Cow::into_owned),
            barrier: epochs.filter(|_| !ended).map(|epochs| PodBarrier::of_pod(pod, epochs)),
            restarts: all.clone().map(|status| status.restart_count).max().unwrap_or(0),
            node: pod.spec.node_name.clone(),
            last_exit: last_exit(pod, all),
            created: pod.metadata.creation_timestamp.clone(),
        }
    }

    /// Whether its worker runs: the Pod is ready, and the barrier is lifted for it.
    pub fn runs(&self) -> bool {
        self.ready && !self.ended && self.barrier.is_none_or(|barrier| barrier == PodBarrier::Lifted)
    }

    /// Whether a container fails, or its image cannot be pulled, by the state.
    pub fn has_error(&self) -> bool {
        ["Error", "BackOff", "ErrImagePull", "OOMKilled"].iter().any(|bad| self.state.contains(bad))
    }

    /// Whether it has failed.
    pub fn failed(&self) -> bool {
        self.ended && !matches!(self.state.as_str(), "Succeeded" | "Completed")
    }
}

/// How the container or supervised worker that ended last has ended. Ends by a restart in place are left out, and those of an
/// agent that has ended after its worker because the JobSet has failed.
fn last_exit<'a>(pod: &PartialPod, containers: impl Iterator<Item = &'a PartialContainerStatus>) -> Option<String> {
    let ends = containers.flat_map(|status| {
        let ends = [&status.state.terminated, &status.last_state.terminated];
        ends.into_iter().flatten().map(move |end| (status.name.as_str(), end))
    });
    let known = ends.filter(|(_, end)| end.reason != RESET && end.exit_code != i32::from(FAILED_JOBSET_EXIT_CODE));
    let contained = known.map(|(name, end)| {
        let time = end.finished_at.as_ref().map(|time| time.0);
        (time, format!("{name}: {}", ended(end)))
    });
    contained.chain(supervised_exit(pod)).max_by_key(|(time, _)| *time).map(|(_, text)| text)
}

/// How the worker of a supervising agent ended, and when.
fn supervised_exit(pod: &PartialPod) -> Option<(Option<Timestamp>, String)> {
    let WorkerExit { code, signal, finished_at, message, .. } = WorkerExit::of(pod.annotations())?;
    let signal = signal.map(|signal| format!(" (signal {signal})")).unwrap_or_default();
    let words = match message.lines().rfind(|line| !line.trim().is_empty()) {
        Some(line) => format!(": {}", one_line(line)),
        None => String::new(),
    };
    Some((finished_at.map(|time| time.0), format!("worker: exit code {code}{signal}{words}")))
}

/// How a container ended, such as `exit code 1 (Error)`.
pub(crate) fn ended(end: &ContainerTerminated) -> String {
    let ContainerTerminated { exit_code, reason, .. } = end;
    if reason.is_empty() { format!("exit code {exit_code}") } else { format!("exit code {exit_code} ({reason})") }
}

/// The column STATUS of `kubectl get pods`.
fn state(pod: &PartialPod, sidecars: &[&str]) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    if !pod.status.reason.is_empty() {
        return pod.status.reason.clone();
    }
    let init = &pod.status.init_container_statuses;
    for (index, status) in init.iter().enumerate() {
        let is_sidecar = sidecars.contains(&status.name.as_str());
        if is_sidecar && status.started == Some(true) {
            continue;
        }
        match (&status.state.waiting, &status.state.terminated) {
            (_, Some(end)) if end.exit_code == 0 => {}
            (_, Some(_)) if pod.has_ended() && is_sidecar => {}
            (_, Some(end)) => return format!("Init:{}", or(&end.reason, "Error")),
            (Some(waiting), _) if !matches!(waiting.reason.as_str(), "" | "PodInitializing") => {
                return format!("Init:{}", waiting.reason);
            }
            _ => return format!("Init:{index}/{}", init.len()),
        }
    }
    let containers = &pod.status.container_statuses;
    let mut waiting = containers.iter().filter_map(|status| status.state.waiting.as_ref());
    if let Some(waiting) = waiting.rfind(|waiting| !waiting.reason.is_empty()) {
        return waiting.reason.clone();
    }
    let mut ended = containers.iter().filter_map(|status| status.state.terminated.as_ref());
    if let Some(end) = ended.rfind(|end| end.exit_code != 0) {
        return or(&end.reason, "Error").to_owned();
    }
    or(&pod.status.phase, "Unknown").to_owned()
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}
