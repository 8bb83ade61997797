//! Why a Pod failed, as far as its status tells.

use jobset_api::JobTemplateSpec;
use jobset_objects::{PartialContainerStatus, PartialPod};
use k8s_openapi::jiff::Timestamp;

/// Condition of a Pod that is about to be deleted by a disruption: eviction, preemption, a taint, the loss of its node.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Reason of a container that was ended only because another restarted the whole Pod. Its 137 is nobody's exit code.
const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";
/// Longest termination message that is kept, in bytes.
const LONGEST_MESSAGE: usize = 512;

/// What is known of the end of a Pod's worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodFailure {
    /// The container that ended first, with its exit code, if that was observed: the kubelet erases both when it restarts
    /// the Pod in place.
    pub exit: Option<Exit>,
    /// Reason and message of the condition DisruptionTarget, if a disruption ends the Pod.
    pub disruption: Option<(String, String)>,
    /// Types of all conditions that are true, and exit codes of all containers that ended: what a podFailurePolicy reads.
    policy_input: PolicyInput,
}

/// The end of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exit {
    /// Name of the container.
    pub container: String,
    /// Exit code.
    pub code: i32,
    /// Reason that the kubelet gives: `Error`, `OOMKilled`.
    pub reason: String,
    /// What the container left in its termination log.
    pub message: String,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct PolicyInput {
    conditions: Vec<(String, String)>,
    exits: Vec<(String, i32)>,
}

impl PodFailure {
    /// Reads the failure of a Pod.
    pub(crate) fn of(pod: &PartialPod) -> Self {
        let workers = &pod.status.container_statuses;
        let all = pod.status.init_container_statuses.iter().chain(workers);
        let ended = |status: &PartialContainerStatus| {
            let end = status.state.terminated.as_ref()?;
            (end.reason != RESTARTING_ALL_CONTAINERS).then(|| (status.name.clone(), end.exit_code))
        };
        let mut exits: Vec<Exit> = workers.iter().filter_map(exit).filter(|exit| exit.code != 0).collect();
        exits.sort_by_key(|exit| exit.finished_at);
        let disruption = pod.status.conditions.iter().find(|it| it.type_ == DISRUPTION_TARGET && it.status == "True");
        Self {
            exit: exits.into_iter().next(),
            disruption: disruption.map(|it| (it.reason.clone(), it.message.clone())),
            policy_input: PolicyInput {
                conditions: pod.status.conditions.iter().map(|it| (it.type_.clone(), it.status.clone())).collect(),
                exits: all.filter_map(ended).collect(),
            },
        }
    }

    /// Adds what a later status shows; what was known stays.
    pub(super) fn learn(&mut self, later: Self) {
        self.exit = self.exit.take().or(later.exit);
        self.disruption = self.disruption.take().or(later.disruption);
        self.policy_input = later.policy_input;
    }

    /// Whether the Job's podFailurePolicy fails the whole Job, or this index for good, because of a Pod that failed
    /// like this. Same rules, same order as the Job controller: the first rule that matches decides.
    pub fn fails_job(&self, job: &JobTemplateSpec) -> bool {
        let rules = job.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
        let first = rules.into_iter().find(|rule| match (&rule.on_exit_codes, &rule.on_pod_conditions) {
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
        first.is_some_and(|rule| rule.action == "FailJob" || rule.action == "FailIndex")
    }
}

fn exit(status: &PartialContainerStatus) -> Option<Exit> {
    let end = status.state.terminated.as_ref().filter(|end| end.reason != RESTARTING_ALL_CONTAINERS)?;
    let cut = end.message.floor_char_boundary(LONGEST_MESSAGE);
    Some(Exit {
        container: status.name.clone(),
        code: end.exit_code,
        reason: end.reason.clone(),
        message: end.message[..cut].trim().to_owned(),
        finished_at: end.finished_at.as_ref().map(|time| time.0),
    })
}
