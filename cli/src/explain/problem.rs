//! The problem that keeps one Pod from being ready.

use jobset_api::labels;
use jobset_objects::{
    ALL_CONTAINERS_RESTARTING, ContainerTerminated, PartialContainerStatus, PartialPod, RESTARTING_ALL_CONTAINERS,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use crate::output::one_line;
use crate::status::{Epochs, PodBarrier, ended, last_words, restarts_in_place};

/// The most names of Pods in a finding.
const SHOWN: usize = 5;

/// The kind of a problem. Its name is the reason of the finding, and the order is that of the findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProblemKind {
    /// The scheduler found no node for the leader of a Job, whose followers wait. The subject is the Job.
    LeaderUnschedulable,
    /// The scheduler found no node.
    Unschedulable,
    /// Scheduling gates hold the Pod back.
    SchedulingGated,
    /// No scheduler has reported on the Pod.
    Unscheduled,
    /// An image cannot be pulled.
    ImagePull,
    /// A container cannot be created.
    ContainerConfig,
    InitContainerFails,
    ContainerFails,
    /// The Pod has failed, and its Job has neither replaced it nor failed yet. The subject is the container that ended; may be empty.
    PodFailed,
    /// The agent runs but has not reported. The subject is the ServiceAccount.
    AgentSilent,
    /// The Pod is being deleted, and does not go. The subject is the finalizer that keeps it.
    Held,
    /// The Pod is being deleted, and goes by itself.
    Terminating,
    /// The Pod starts. The subject is what it waits for.
    Starting,
}

impl ProblemKind {
    /// Whether the status of the Pod may lack the cause, and an Event has it: mounts, sandboxes, probes.
    pub(super) fn is_told_by_events(self) -> bool {
        matches!(self, Self::Starting | Self::ContainerConfig)
    }
}

/// A problem of a Pod. Pods with the same [`ProblemClass`] share a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodProblem {
    pub(super) kind: ProblemKind,
    /// The container, or what the kind says; may be empty.
    pub(super) subject: String,
    /// How the container ended; empty if the problem is none of an end.
    exit: String,
    /// The message of the scheduler or the kubelet, or the exit code and termination message; may be empty.
    pub(super) message: String,
}

/// What problems of several Pods have in common: kind, subject, how a container ended, and the message but for what differs from Pod to
/// Pod, such as addresses, ports and ranks. Of an image, only its name: each try to pull it may fail with other words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProblemClass(ProblemKind, String, String, String);

/// Reasons of the container runtime for which an image cannot be pulled, beside those that have the word in their name.
const OF_IMAGES: [&str; 2] = ["RegistryUnavailable", "SignatureValidationFailed"];

/// Words with which the kubelet begins a message about a pull that has failed and is to be tried again. The rest is the same.
const BACK_OFF: &str = "Back-off pulling image ";

impl PodProblem {
    /// Of an image that cannot be pulled. The kubelet goes back and forth between the failure of a pull and the wait before the next
    /// one, so the reason is no part of the problem, and the image is.
    fn of_image(self, reason: &str, message: &str) -> Self {
        // `Back-off pulling image "a:1": ErrImagePull: failed to pull`, and `failed to pull`.
        let waited = message.strip_prefix(BACK_OFF).and_then(|rest| rest.split_once("\": ")).map(|(_, cause)| cause);
        let cause = waited.map(|cause| cause.strip_prefix("ErrImagePull: ").unwrap_or(cause));
        let message = match cause {
            Some(cause) => cause.to_owned(),
            None if reason == "ErrImagePull" => message.to_owned(),
            None => format!("{reason}: {message}"),
        };
        Self { message, ..self }
    }

    fn new(kind: ProblemKind, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, subject: subject.into(), exit: String::new(), message: message.into() }
    }

    /// The class of the problem. `image` is that of the container, if it is known.
    pub(super) fn class(&self, image: Option<&str>) -> ProblemClass {
        let Self { kind, subject, exit, message } = self;
        let words = match kind {
            ProblemKind::ImagePull => image.unwrap_or_default().to_owned(),
            _ => without_numbers(message),
        };
        ProblemClass(*kind, subject.clone(), exit.clone(), words)
    }
}

/// The words of a message that have no digit.
fn without_numbers(message: &str) -> String {
    let words = message.split(|letter: char| !letter.is_alphanumeric());
    words.filter(|word| !word.contains(|letter: char| letter.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

/// The problem of a Pod. None if the Pod is ready, has ended, or only waits at the barrier for other Pods, or if its agent may have
/// reported so lately that its annotation does not show it.
pub(super) fn of(pod: &PartialPod, epochs: Option<Epochs>, now: Timestamp) -> Option<PodProblem> {
    if is_held(pod, now) {
        return Some(terminating(pod, now));
    }
    let barrier = epochs.map(|epochs| PodBarrier::of_pod(pod, epochs));
    if pod.has_ended() {
        return None;
    }
    // It stays ready as long as its worker ignores SIGTERM.
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(terminating(pod, now));
    }
    // A Pod whose agent supervises its worker may be ready while the worker waits.
    if pod.is_ready() && barrier != Some(PodBarrier::Unreported) {
        return None;
    }
    if pod.spec.node_name.is_none() {
        return Some(unscheduled(pod));
    }
    let containers = || pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    // Whoever was told to restart, or says that it does, ends its containers for that.
    let is_restarting = barrier == Some(PodBarrier::Restarting) || restarts_in_place(pod);
    let is_cause = |status: &&PartialContainerStatus| !is_restarting || status.state.terminated.is_none();
    if let Some(problem) = containers().filter(is_cause).find_map(|status| container(pod, status)) {
        return Some(problem);
    }
    match barrier {
        // The worker of a supervisor may still end: the barrier says so.
        _ if is_restarting => {
            let is_back = containers().all(|status| status.state.running.is_some());
            let hangs = !is_back && hangs(pod, barrier, epochs, now);
            hangs.then(|| PodProblem::new(ProblemKind::Starting, waits_for(pod), ""))
        }
        Some(PodBarrier::Waiting) => None,
        Some(PodBarrier::Unreported) if epochs.is_some_and(|epochs| may_have_reported(pod, epochs, now)) => None,
        Some(PodBarrier::Unreported) if containers().any(|status| status.state.running.is_some()) => {
            Some(PodProblem::new(ProblemKind::AgentSilent, account(pod), ""))
        }
        _ => Some(PodProblem::new(ProblemKind::Starting, waits_for(pod), "")),
    }
}

/// A Pod that is told to restart is given this time. Most restarts end in less.
const RESTART: SignedDuration = SignedDuration::from_secs(10);

/// Whether a restart of the Pod in place has taken long since it was told to, or since its agent ended for that.
fn hangs(pod: &PartialPod, barrier: Option<PodBarrier>, epochs: Option<Epochs>, now: Timestamp) -> bool {
    let told = epochs.filter(|_| barrier == Some(PodBarrier::Restarting)).and_then(|epochs| epochs.since);
    let restarts = pod.condition(ALL_CONTAINERS_RESTARTING).filter(|condition| condition.is_true());
    let began = restarts.and_then(|restarts| restarts.last_transition_time.as_ref());
    let ends = pod.status.init_container_statuses.iter().filter_map(|status| status.state.terminated.as_ref());
    let times = ends.filter_map(|end| end.finished_at.as_ref()).chain(began).map(|time| time.0).chain(told);
    times.max().is_some_and(|since| since.duration_until(now) >= RESTART)
}

/// How a Pod has failed, by its worker if that tells.
pub(super) fn of_failed(pod: &PartialPod) -> PodProblem {
    let mut containers = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    match containers.find_map(|status| container(pod, status)) {
        Some(problem) => PodProblem { kind: ProblemKind::PodFailed, ..problem },
        None => PodProblem::new(
            ProblemKind::PodFailed,
            "",
            one_line(&format!("{}: {}", pod.status.reason, pod.status.message)),
        ),
    }
}

/// The Pod is being deleted. The message is that of an eviction or another disruption.
fn terminating(pod: &PartialPod, now: Timestamp) -> PodProblem {
    let disruption = pod.condition("DisruptionTarget").filter(|condition| condition.status == "True");
    let message = disruption.map(|it| format!("{}: {}", it.reason, it.message)).unwrap_or_default();
    match pod.foreign_finalizer().filter(|_| is_held(pod, now)) {
        Some(finalizer) => PodProblem::new(ProblemKind::Held, finalizer, message),
        None => PodProblem::new(ProblemKind::Terminating, "", message),
    }
}

/// Whether a finalizer keeps a Pod whose deletion is due: it has ended, or its grace is over.
fn is_held(pod: &PartialPod, now: Timestamp) -> bool {
    let is_due = |end: &Time| pod.has_ended() || end.0 <= now;
    pod.metadata.deletion_timestamp.as_ref().is_some_and(is_due) && pod.foreign_finalizer().is_some()
}

/// How much later than it is due an annotation of the stream may be observed: it waits for its turn, and the start has whole seconds.
const LATE_WRITE: SignedDuration = SignedDuration::from_secs(3);

/// Whether the agent may have reported over the stream, and the annotation not have followed yet. A restart puts that off.
fn may_have_reported(pod: &PartialPod, epochs: Epochs, now: Timestamp) -> bool {
    let containers = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let started = containers.filter_map(|status| Some(status.state.running.as_ref()?.started_at.as_ref()?.0)).max();
    let (Some(lag), Some(started)) = (epochs.lag, started) else { return false };
    started.max(epochs.since.unwrap_or(started)).duration_until(now) <= lag.saturating_add(LATE_WRITE)
}

/// The name of the Pod's ServiceAccount.
fn account(pod: &PartialPod) -> &str {
    Some(pod.spec.service_account_name.as_str()).filter(|name| !name.is_empty()).unwrap_or("default")
}

/// Whether the scheduler has found no node for the Pod.
pub(super) fn is_unschedulable(pod: &PartialPod) -> bool {
    let condition = pod.condition("PodScheduled").filter(|condition| condition.status == "False");
    pod.spec.node_name.is_none() && condition.is_some_and(|condition| condition.reason != "SchedulingGated")
}

/// Whether the Pod gets a topology domain for its Job, by exclusive placement.
pub(super) fn leads(pod: &PartialPod) -> bool {
    let annotation = |key: &str| pod.annotations().get(key).map(String::as_str);
    annotation(labels::EXCLUSIVE_TOPOLOGY).is_some()
        && annotation(labels::NODE_SELECTOR_STRATEGY).is_none()
        && annotation(labels::COMPLETION_INDEX) == Some("0")
}

fn unscheduled(pod: &PartialPod) -> PodProblem {
    let Some(condition) = pod.condition("PodScheduled").filter(|condition| condition.status == "False") else {
        return PodProblem::new(ProblemKind::Unscheduled, "", "");
    };
    let message = condition.message.as_str();
    match condition.reason.as_str() {
        "SchedulingGated" => PodProblem::new(ProblemKind::SchedulingGated, "", message),
        _ if leads(pod) => {
            let job = pod.labels().get(labels::JOB_NAME).map(String::as_str).unwrap_or_default();
            PodProblem::new(ProblemKind::LeaderUnschedulable, job, message)
        }
        _ => PodProblem::new(ProblemKind::Unschedulable, "", message),
    }
}

fn container(pod: &PartialPod, status: &PartialContainerStatus) -> Option<PodProblem> {
    let problem = |kind, message: String| PodProblem::new(kind, &status.name, message);
    let is_init = pod.spec.init_containers.iter().any(|it| it.name == status.name && !it.is_sidecar());
    let failed = |end: &ContainerTerminated| {
        let words = match last_words(end) {
            words if words.is_empty() => "no termination message".to_owned(),
            words => format!("termination message: {words}"),
        };
        let kind = if is_init { ProblemKind::InitContainerFails } else { ProblemKind::ContainerFails };
        let exit = ended(end);
        PodProblem { message: format!("{exit}, {words}"), exit, ..problem(kind, String::new()) }
    };
    if let Some(end) = status.state.terminated.as_ref().filter(|end| end.exit_code != 0) {
        return Some(failed(end));
    }
    let waiting = status.state.waiting.as_ref()?;
    // The kubelet's message names the Pod. Pods with the same problem share a finding.
    let named =
        pod.metadata.uid.iter().map(|uid| (uid, "UID")).chain(pod.metadata.name.iter().map(|name| (name, "POD")));
    let message = named.fold(waiting.message.clone(), |message, (name, word)| message.replace(name.as_str(), word));
    let words = format!("{}: {message}", waiting.reason);
    match waiting.reason.as_str() {
        "" | "ContainerCreating" | "PodInitializing" | RESTARTING_ALL_CONTAINERS => None,
        "CrashLoopBackOff" => {
            let end = status.last_state.terminated.as_ref();
            Some(end.map_or_else(|| problem(ProblemKind::ContainerFails, words), failed))
        }
        reason if reason.contains("Image") || OF_IMAGES.contains(&reason) => {
            Some(problem(ProblemKind::ImagePull, String::new()).of_image(reason, &message))
        }
        // The kubelet and container runtimes have more reasons than anybody can list.
        _ => Some(problem(ProblemKind::ContainerConfig, words)),
    }
}

fn waits_for(pod: &PartialPod) -> String {
    let mut containers = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    match containers.find(|status| !status.ready && status.state.terminated.is_none()) {
        None => "the kubelet has not started it".to_owned(),
        Some(status) => match &status.state.waiting {
            Some(waiting) if !waiting.reason.is_empty() => format!("container {}: {}", status.name, waiting.reason),
            _ => format!("container {} is not ready", status.name),
        },
    }
}

/// The names of these Pods. Of many Pods, only the first ones are named.
pub(super) fn names(pods: &[String]) -> String {
    let shown = pods.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match pods.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
