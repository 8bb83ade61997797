//! A Pod in the tree.

use std::borrow::Cow;

use jobset_api::agent::FAILED_JOBSET_EXIT_CODE;
use jobset_api::labels;
use jobset_api::last_words::is_of_agent;
use jobset_api::restart_rules::{ExitCodes, restarts_pod};
use jobset_objects::{
    ALL_CONTAINERS_RESTARTING, ContainerTerminated, PartialCondition, PartialContainer, PartialContainerStatus,
    PartialPod, RESTARTING_ALL_CONTAINERS, WorkerExit,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::barrier::{Epochs, PodBarrier};
use crate::output::one_line;

/// The state of a Pod that restarts in place.
const RESTARTING: &str = "Restarting";

/// A Pod.
// Each is shown by itself.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNode {
    pub name: String,
    /// Its completion index in the Job.
    pub index: Option<i32>,
    /// The column STATUS of `kubectl get pods`, or `Restarting`.
    pub state: String,
    pub ready: bool,
    /// Whether it has succeeded or failed.
    pub ended: bool,
    #[serde(skip)]
    pub failed: bool,
    #[serde(skip)]
    pub deleted: bool,
    /// Its ready containers, and all its containers.
    pub containers: (usize, usize),
    /// The epoch that it is in, by its agent's report or by the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// Its state at the barrier; none without in-place restart, or after the Pod has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier: Option<PodBarrier>,
    /// The restarts of its most restarted container.
    pub restarts: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How a container, or the worker of a supervising agent, ended last, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
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
        let barrier = epochs.filter(|_| !ended).map(|epochs| PodBarrier::of_pod(pod, epochs));
        Self {
            name: pod.name_any(),
            index: pod.annotations().get(labels::COMPLETION_INDEX).and_then(|index| index.parse().ok()),
            state: state(pod, &sidecars, barrier == Some(PodBarrier::Restarting)),
            ready: pod.is_ready(),
            ended,
            failed: pod.status.phase == "Failed",
            deleted: pod.metadata.deletion_timestamp.is_some(),
            containers: (ready, pod.spec.containers.len() + sidecars.len()),
            epoch: epochs.map_or_else(|| epoch(pod), |epochs| epochs.of_pod(pod)).map(Cow::into_owned),
            barrier,
            restarts: all.map(|status| status.restart_count).max().unwrap_or(0),
            node: pod.spec.node_name.clone(),
            last_exit: last_exit(pod),
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

    /// Whether it has failed, and stays with the logs of a container that ended.
    pub fn stays_as_evidence(&self) -> bool {
        self.failed && !self.deleted && self.last_exit.is_some()
    }
}

/// How the worker ended, if known; else how an init container or an agent ended. Ends by a restart in place are left out.
///
/// Of the workers that have ended as they are now, the one that failed first is the cause: the others, sidecars and the agent
/// end after it. Of the ends before, the last one counts.
fn last_exit(pod: &PartialPod) -> Option<String> {
    let workers = &pod.status.container_statuses;
    let is_supervised = workers.iter().filter_map(|status| status.state.terminated.as_ref()).any(is_of_failed_jobset);
    let supervised = supervised_exit(pod);
    let now = workers.iter().filter_map(|status| exit(pod, status, status.state.terminated.as_ref()));
    let now = now.filter(|exit| exit.code != 0).chain(supervised.clone().filter(|_| is_supervised));
    if let Some(first) = now.min_by_key(|exit| (exit.at.is_none(), exit.at)) {
        return Some(first.text);
    }
    let ends = |status| all_ends(pod, status);
    let (sidecars, init): (Vec<_>, Vec<_>) = pod.status.init_container_statuses.iter().partition(|status| {
        pod.spec.init_containers.iter().any(|container| container.name == status.name && container.is_sidecar())
    });
    let failed_init = init.iter().copied().flat_map(ends).filter(|exit| exit.code != 0);
    let known = workers.iter().flat_map(ends).chain(failed_init).chain(supervised);
    let last = known.max_by_key(|exit| exit.at);
    last.or_else(|| sidecars.into_iter().flat_map(ends).max_by_key(|exit| exit.at)).map(|exit| exit.text)
}

/// The end of a container, or of a supervised worker.
#[derive(Clone)]
struct ContainerExit {
    at: Option<Timestamp>,
    code: i32,
    text: String,
}

/// How a container has ended, and how it ended before.
fn all_ends(pod: &PartialPod, status: &PartialContainerStatus) -> Vec<ContainerExit> {
    let ends = [&status.state.terminated, &status.last_state.terminated];
    ends.into_iter().filter_map(|end| exit(pod, status, end.as_ref())).collect()
}

/// How a container ended, if that tells anything: its end is no restart in place, nor that of an agent after its worker.
fn exit(pod: &PartialPod, status: &PartialContainerStatus, end: Option<&ContainerTerminated>) -> Option<ContainerExit> {
    let end = end.filter(|end| {
        end.reason != RESTARTING_ALL_CONTAINERS && !is_of_failed_jobset(end) && !is_restart(pod, status, end)
    })?;
    let at = end.finished_at.as_ref().map(|time| time.0);
    let text = format!("{}: {}{}", status.name, ended(end), last_line(&end.message));
    Some(ContainerExit { at, code: end.exit_code, text })
}

/// Whether an agent has ended to restart its Pod in place.
fn is_restart(pod: &PartialPod, status: &PartialContainerStatus, end: &ContainerTerminated) -> bool {
    let spec = pod.spec.init_containers.iter().find(|container| container.name == status.name);
    let restarts = |rule| restarts_pod(rule) && ExitCodes::of(rule).is_some_and(|codes| codes.contains(end.exit_code));
    spec.is_some_and(|agent| agent.is_sidecar() && agent.restart_policy_rules.iter().any(restarts))
}

/// Whether all containers of the Pod are restarting in place, as the kubelet or the end of its agent says. How its containers end
/// meanwhile is no failure of theirs.
pub(crate) fn restarts_in_place(pod: &PartialPod) -> bool {
    let says_so = pod.condition(ALL_CONTAINERS_RESTARTING).is_some_and(PartialCondition::is_true);
    let mut agents = pod.status.init_container_statuses.iter();
    let ended = |status: &PartialContainerStatus| {
        status
            .state
            .terminated
            .as_ref()
            .is_some_and(|end| end.reason == RESTARTING_ALL_CONTAINERS || is_restart(pod, status, end))
    };
    !pod.has_ended() && (says_so || agents.any(ended))
}

/// Whether an agent has ended, after its worker, because the JobSet has failed.
fn is_of_failed_jobset(end: &ContainerTerminated) -> bool {
    end.exit_code == i32::from(FAILED_JOBSET_EXIT_CODE)
}

/// The last line of a message after a colon; empty if there is none.
fn last_line(message: &str) -> String {
    let line = message.lines().rfind(|line| !line.trim().is_empty());
    line.map(|line| format!(": {}", one_line(line))).unwrap_or_default()
}

/// How the worker of a supervising agent ended, and when.
fn supervised_exit(pod: &PartialPod) -> Option<ContainerExit> {
    let WorkerExit { code, signal, reason, finished_at, message, .. } = WorkerExit::of(pod.annotations())?;
    let signal = signal.map(|signal| format!(" (signal {signal})")).unwrap_or_default();
    let why = if reason.is_empty() { signal } else { format!(" ({})", one_line(&reason)) };
    let text = format!("worker: exit code {code}{why}{}", last_line(&message));
    Some(ContainerExit { at: finished_at.map(|time| time.0), code, text })
}

/// Whether a container is a sidecar whose exit can restart the whole Pod: the agent.
pub(crate) fn is_agent(container: &PartialContainer) -> bool {
    container.is_sidecar() && container.restart_policy_rules.iter().any(restarts_pod)
}

/// What a container has left in its termination message, without the log of a supervisor.
pub(crate) fn last_words(end: &ContainerTerminated) -> String {
    let lines: Vec<&str> = end.message.lines().filter(|line| !is_of_agent(line)).collect();
    one_line(&lines.join("\n"))
}

/// How a container ended, such as `exit code 1 (Error)`.
pub(crate) fn ended(end: &ContainerTerminated) -> String {
    let ContainerTerminated { exit_code, reason, .. } = end;
    if reason.is_empty() { format!("exit code {exit_code}") } else { format!("exit code {exit_code} ({reason})") }
}

/// The column STATUS of `kubectl get pods`, but for Pods that restart in place. How the containers end of a Pod that was told to
/// restart is no error: they end for that, or because their peers do.
fn state(pod: &PartialPod, sidecars: &[&str], is_told: bool) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    if !pod.status.reason.is_empty() {
        return pod.status.reason.clone();
    }
    if restarts_in_place(pod) {
        return RESTARTING.to_owned();
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
            (_, Some(_)) if is_told && is_sidecar => return RESTARTING.to_owned(),
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
        return if is_told { RESTARTING } else { or(&end.reason, "Error") }.to_owned();
    }
    or(&pod.status.phase, "Unknown").to_owned()
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}
