//! Why a Pod failed, as far as its status tells.

use std::fmt;

use jobset_api::JobTemplateSpec;
use jobset_api::last_words::is_of_agent;
use jobset_objects::{
    ContainerState, PartialContainerStatus, PartialPod, PartialPodStatus, RESTARTING_ALL_CONTAINERS, WorkerExit,
};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::containers::{lost_with_its_node, supervisors};

/// Condition of a Pod that is about to be deleted by a disruption: eviction, preemption, a taint, the loss of its node.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Reason of a container in which the kernel has killed a process for want of memory, at any time.
const OOM_KILLED: &str = "OOMKilled";
/// Reason of a Pod that has run for longer than it may (`activeDeadlineSeconds`), or waited.
const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// Reasons of Pods that somebody has ended: their deadline, and a node that is shut down.
const OF_ASKED: [&str; 3] = [DEADLINE_EXCEEDED, "NodeShutdown", "Terminated"];
/// Exit code of a process that got SIGKILL: 128 and the number of the signal.
const KILLED: i32 = 137;
/// Longest termination message that is kept, in bytes. It is cut at its begin: the last words say most.
const LONGEST_MESSAGE: usize = 512;

/// What is known of the end of a Pod's worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodFailure {
    /// The container that ended first, with its exit code, if that was observed: the kubelet erases both when it restarts
    /// the Pod in place.
    pub exit: Option<Exit>,
    /// Reason and message of the condition DisruptionTarget, if a disruption ends the Pod.
    pub disruption: Option<(String, String)>,
    /// When that condition became true.
    pub disrupted_at: Option<Timestamp>,
    /// The container of any kind that failed first, before a worker could start.
    pub first: Option<Exit>,
    /// Whether its node has refused the Pod: the Pod failed, and no container of it was ever created.
    ///
    /// A kubelet that starts admits Pods again that have run, and forgets the containers of those that it refuses. A Pod past its
    /// deadline is not refused: its image may never have come.
    pub refused: bool,
    /// Whether its node has restarted, and does not start it again.
    pub node_restarted: bool,
    /// Reason and message that the Pod as a whole failed with.
    pub pod_status: Option<(String, String)>,
    /// Types of all conditions that are true, and exit codes of all containers that ended: what a podFailurePolicy reads.
    policy_input: PolicyInput,
}

/// The end of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exit {
    /// Name of the container; empty if the agent has reported the end of its worker.
    pub container: String,
    pub code: i32,
    /// Reason that the kubelet gives: `Error`, `OOMKilled`.
    pub reason: String,
    /// What the container left in its termination log.
    pub message: String,
    pub finished_at: Option<Timestamp>,
}

impl Exit {
    /// Whether the kernel has killed it for want of memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.reason == OOM_KILLED
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct PolicyInput {
    conditions: Vec<(String, String)>,
    exits: Vec<(String, i32)>,
}

impl PodFailure {
    pub fn of(pod: &PartialPod) -> Self {
        let workers = &pod.status.container_statuses;
        let all = pod.status.init_container_statuses.iter().chain(workers);
        let ended = |status: &PartialContainerStatus| {
            let end = status.state.terminated.as_ref()?;
            (end.reason != RESTARTING_ALL_CONTAINERS).then(|| (status.name.clone(), end.exit_code))
        };
        let mut exits: Vec<Exit> = workers.iter().filter_map(exit).filter(|exit| exit.code != 0).collect();
        // A helper without rules may have failed long before the worker, which ran on.
        let is_helper = |exit: &Exit| {
            !pod.spec.containers.iter().any(|it| it.name == exit.container && !it.restart_policy_rules.is_empty())
        };
        exits.sort_by_key(|exit| (is_helper(exit), exit.finished_at));
        if let (Some(exit), Some(reported)) = (exits.first_mut(), ReportedExit::of(pod)) {
            let container = |status: &&PartialContainerStatus| status.name == exit.container;
            let killed_before = |status| reported.is_of_container(status) && exit.code != KILLED;
            if exit.reason == OOM_KILLED && supervisors(pod).find(container).is_some_and(killed_before) {
                "Error".clone_into(&mut exit.reason);
            }
        }
        let PartialPodStatus { phase, reason, message, .. } = &pod.status;
        let deleted = pod.metadata.deletion_timestamp.is_some();
        let disruption = pod.condition(DISRUPTION_TARGET).filter(|condition| condition.is_true());
        let all_exits = all.clone().filter_map(last_exit);
        Self {
            exit: exits.into_iter().next(),
            first: all_exits.filter(|exit| exit.code != 0).min_by_key(|exit| exit.finished_at),
            disruption: disruption.map(|it| (it.reason.clone(), it.message.clone())),
            disrupted_at: disruption.and_then(|it| it.last_transition_time.as_ref()).map(|time| time.0),
            refused: phase == "Failed"
                && reason != DEADLINE_EXCEEDED
                && !deleted
                && disruption.is_none()
                && !all.clone().any(was_created),
            node_restarted: lost_with_its_node(pod).is_some(),
            pod_status: (!reason.is_empty() || !message.is_empty()).then(|| (reason.clone(), last_words(message))),
            policy_input: PolicyInput {
                conditions: pod.status.conditions.iter().map(|it| (it.type_.clone(), it.status.clone())).collect(),
                exits: all.filter_map(ended).collect(),
            },
        }
    }

    pub fn is_known(&self) -> bool {
        self.exit.is_some() || self.disruption.is_some() || self.pod_status.is_some()
    }

    /// When the worker ended.
    pub fn finished_at(&self) -> Option<Timestamp> {
        self.exit.as_ref()?.finished_at
    }

    /// When the worker ended, or, where nobody tells, when a disruption took its Pod.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.finished_at().or(self.disrupted_at)
    }

    /// Whether somebody has ended the Pod: a disruption, its deadline, or the shutdown of its node. That is no fault of its worker or node.
    pub fn was_asked(&self) -> bool {
        let is_one = |(reason, _): &(String, String)| OF_ASKED.contains(&reason.as_str());
        self.disruption.is_some() || self.pod_status.as_ref().is_some_and(is_one)
    }

    /// The failure that an agent has reported, of a Pod with this status.
    pub(super) fn reported(exit: Exit, status: Option<&Self>) -> Self {
        Self { exit: Some(exit), ..status.cloned().unwrap_or_default() }
    }

    /// Adds what a later status shows; what was known stays.
    pub(super) fn learn(&mut self, later: Self) {
        self.exit = self.exit.take().or(later.exit);
        self.node_restarted |= later.node_restarted;
        self.disruption = self.disruption.take().or(later.disruption);
        self.disrupted_at = self.disrupted_at.or(later.disrupted_at);
        self.pod_status = self.pod_status.take().or(later.pod_status);
        self.policy_input = later.policy_input;
    }

    /// The action of the first rule of the Job's podFailurePolicy that matches a Pod that failed like this: same rules, same order
    /// as the Job controller.
    pub fn first_action<'a>(&self, job: &'a JobTemplateSpec) -> Option<&'a str> {
        let rules = job.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
        let mut rules = rules.into_iter();
        let first = rules.find(|rule| match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(codes), _) => self.policy_input.exits.iter().any(|(container, code)| {
                let named = codes.container_name.as_ref().is_none_or(|name| name == container);
                let listed = codes.values.contains(code);
                // The Job controller never looks at 0.
                named && *code != 0 && if codes.operator == "In" { listed } else { !listed }
            }),
            (None, Some(patterns)) => patterns.iter().any(|pattern| {
                let wanted = pattern.status.as_deref().unwrap_or("True");
                self.policy_input.conditions.iter().any(|(type_, status)| *type_ == pattern.type_ && status == wanted)
            }),
            (None, None) => false,
        });
        first.map(|rule| rule.action.as_str())
    }
}

/// `disrupted (EvictionByEvictionAPI: drained), container worker exited with code 3 (Error): last words`.
impl fmt::Display for PodFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = match (&self.disruption, &self.pod_status) {
            (Some((reason, message)), _) => format!("disrupted ({reason}: {message})"),
            (None, Some((reason, message))) => format!("as a whole ({reason}: {message})"),
            (None, None) => String::new(),
        };
        match &self.exit {
            Some(exit) if whole.is_empty() => write!(f, "{exit}"),
            Some(exit) => write!(f, "{whole}, {exit}"),
            None if whole.is_empty() => f.write_str("exit code unknown"),
            None => f.write_str(&whole),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container, code, reason, message, .. } = self;
        match container.as_str() {
            "" => f.write_str("its worker")?,
            container => write!(f, "container {container}")?,
        }
        write!(f, " exited with code {code}")?;
        if !reason.is_empty() {
            write!(f, " ({reason})")?;
        }
        if !message.is_empty() {
            write!(f, ": {message}")?;
        }
        Ok(())
    }
}

/// The end of a worker that its agent has reported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReportedExit {
    pub epoch: i32,
    /// The end. The container is not named.
    pub exit: Exit,
}

impl ReportedExit {
    /// Reads the annotation of a Pod. An agent that does not say so itself cannot tell why the kernel has killed its worker: the
    /// status of its container can, once that has ended.
    pub fn of(pod: &PartialPod) -> Option<Self> {
        let mut reported = Self::from(WorkerExit::of(pod.annotations())?);
        let out_of_memory = |status: &PartialContainerStatus| {
            status.state.terminated.as_ref().is_some_and(|end| end.reason == OOM_KILLED)
                && reported.is_of_container(status)
        };
        if reported.exit.code == KILLED && supervisors(pod).any(out_of_memory) {
            OOM_KILLED.clone_into(&mut reported.exit.reason);
        }
        Some(reported)
    }

    /// Whether the worker ran in the life of the container that this status is of.
    fn is_of_container(&self, status: &PartialContainerStatus) -> bool {
        let end = status.state.terminated.as_ref();
        let started = end.and_then(|end| end.started_at.as_ref()).map(|time| time.0);
        self.exit.finished_at.zip(started).is_some_and(|(ended, started)| ended >= started)
    }

    /// Reads the text of the annotation. `None` if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str::<WorkerExit>(text).ok().map(Self::from)
    }
}

impl From<WorkerExit> for ReportedExit {
    fn from(exit: WorkerExit) -> Self {
        let WorkerExit { epoch, code, signal, reason, finished_at, message } = exit;
        let by_signal = || signal.map(|signal| format!("signal {signal}")).unwrap_or_default();
        let exit = Exit {
            container: String::new(),
            code,
            reason: if reason.is_empty() { by_signal() } else { last_words(&reason) },
            message: last_words(&message),
            finished_at: finished_at.map(|time| time.0),
        };
        Self { epoch, exit }
    }
}

/// The end of a text that a worker wrote, in one line without control characters: it is shown to people.
pub(super) fn last_words(text: &str) -> String {
    let begin = text.len().saturating_sub(LONGEST_MESSAGE);
    let lines = text[text.ceil_char_boundary(begin)..].lines();
    let clean = |line: &str| line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let lines = lines.filter(|line| !is_of_agent(line)).map(|line| clean(line).trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
}

/// At most this many bytes of a message: its begin, which says what has failed, and its end, which has the last words.
pub fn shorten(text: &str, longest: usize) -> String {
    const GAP: &str = " ... ";
    if text.len() <= longest {
        return text.to_owned();
    }
    let kept = longest.saturating_sub(GAP.len());
    let (begin, end) = (text.floor_char_boundary(kept / 2), text.ceil_char_boundary(text.len() - kept.div_ceil(2)));
    format!("{}{GAP}{}", &text[..begin], &text[end..])
}

/// Whether the kubelet has ever created the container.
fn was_created(status: &PartialContainerStatus) -> bool {
    let ran = |state: &ContainerState| {
        let ended = state.terminated.as_ref().is_some_and(|end| end.started_at.is_some() || end.finished_at.is_some());
        ended || state.running.is_some()
    };
    !status.container_id.is_empty() || ran(&status.state) || ran(&status.last_state)
}

/// Whether the container has failed, and does not run again yet.
pub(super) fn has_failed(status: &PartialContainerStatus) -> bool {
    let state = if status.state.waiting.is_some() { &status.last_state } else { &status.state };
    state.terminated.as_ref().is_some_and(|end| end.exit_code != 0 && end.reason != RESTARTING_ALL_CONTAINERS)
}

fn exit(status: &PartialContainerStatus) -> Option<Exit> {
    exit_of(status, &status.state)
}

/// The end of the container, or of its run before, if it waits to run again.
pub(super) fn last_exit(status: &PartialContainerStatus) -> Option<Exit> {
    exit_of(status, if status.state.waiting.is_some() { &status.last_state } else { &status.state })
}

fn exit_of(status: &PartialContainerStatus, state: &ContainerState) -> Option<Exit> {
    let end = state.terminated.as_ref().filter(|end| end.reason != RESTARTING_ALL_CONTAINERS)?;
    Some(Exit {
        container: status.name.clone(),
        code: end.exit_code,
        reason: end.reason.clone(),
        message: last_words(&end.message),
        finished_at: end.finished_at.as_ref().map(|time| time.0),
    })
}

#[cfg(test)]
mod tests;
