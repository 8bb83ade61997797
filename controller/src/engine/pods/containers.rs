//! What the containers of a Pod say of its worker and its agent.

use std::hash::{DefaultHasher, Hash, Hasher};

use jobset_api::restart_rules::{ExitCodes, NEVER, RESTART, RESTART_ALL_CONTAINERS, restarts_pod};
use jobset_objects::{PartialContainer, PartialContainerStatus, PartialPod};
use k8s_openapi::api::core::v1::ContainerRestartRule;
use k8s_openapi::jiff::Timestamp;

/// Condition of a Pod whose containers the kubelet restarts, all of them.
const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";

/// Whether the container is a sidecar whose exit can restart the whole Pod: the agent (KEP-467).
pub(super) fn is_agent(container: &PartialContainer) -> bool {
    container.is_sidecar() && container.restart_policy_rules.iter().any(restarts_pod)
}

/// Whether this exit code of the container restarts the whole Pod.
pub(super) fn restarts_pod_on(container: &PartialContainer, exit_code: i32) -> bool {
    action_on(container, exit_code) == Some(RESTART_ALL_CONTAINERS)
}

/// Whether the kubelet starts a container of a supervisor again that has failed with this exit code. A container without rules is one
/// that the policy of its Pod restarts.
pub(super) fn restarts_supervisor_on(container: &PartialContainer, exit_code: i32) -> bool {
    match action_on(container, exit_code) {
        Some(action) => action == RESTART || action == RESTART_ALL_CONTAINERS,
        None => container.restart_policy_rules.is_empty() || container.restart_policy.as_deref() != Some(NEVER),
    }
}

/// The action of the first rule that matches this exit code.
fn action_on(container: &PartialContainer, exit_code: i32) -> Option<&str> {
    let matches = |rule: &&ContainerRestartRule| ExitCodes::of(rule).is_some_and(|codes| codes.contains(exit_code));
    container.restart_policy_rules.iter().find(matches).map(|rule| rule.action.as_str())
}

pub(super) fn restarting(pod: &PartialPod) -> bool {
    let condition = pod.status.conditions.iter().any(|it| it.type_ == ALL_CONTAINERS_RESTARTING && it.status == "True");
    let restarts_pod = |status: &PartialContainerStatus| {
        let Some(end) = &status.state.terminated else { return false };
        let container = pod.spec.containers.iter().find(|container| container.name == status.name);
        container.is_some_and(|container| restarts_pod_on(container, end.exit_code))
    };
    condition || pod.status.container_statuses.iter().any(restarts_pod)
}

/// Whether its agent is in the containers of its workers.
pub(super) fn is_supervised(pod: &PartialPod) -> bool {
    !pod.spec.init_containers.iter().any(is_agent)
}

/// The containers that a supervisor restarts its worker in: those that restart alone. Where none has such a rule, the Pod's policy
/// restarts all.
pub(super) fn supervisors(pod: &PartialPod) -> impl Iterator<Item = &PartialContainerStatus> {
    let restarts =
        |container: &PartialContainer| container.restart_policy_rules.iter().any(|rule| rule.action == RESTART);
    let any_restarts = pod.spec.containers.iter().any(restarts);
    pod.status.container_statuses.iter().filter(move |status| {
        !any_restarts || pod.spec.containers.iter().any(|it| it.name == status.name && restarts(it))
    })
}

pub(super) fn identity<'a>(containers: impl Iterator<Item = &'a PartialContainerStatus>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut any = false;
    for container in containers.filter(|container| container.state.running.is_some()) {
        any = true;
        container.container_id.hash(&mut hasher);
    }
    if any { hasher.finish().max(1) } else { 0 }
}

pub(super) fn started(container: &PartialContainerStatus) -> Option<Timestamp> {
    container.state.running.as_ref()?.started_at.as_ref().map(|time| time.0)
}

pub(super) fn have_succeeded(pod: &PartialPod) -> bool {
    let (workers, statuses) = (&pod.spec.containers, &pod.status.container_statuses);
    let ended_well = |it: &PartialContainerStatus| it.state.terminated.as_ref().is_some_and(|end| end.exit_code == 0);
    !statuses.is_empty() && statuses.len() >= workers.len() && statuses.iter().all(ended_well)
}

pub(super) fn all_ended(workers: &[PartialContainerStatus]) -> Option<Timestamp> {
    let ends = workers.iter().map(|it| it.state.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0));
    ends.collect::<Option<Vec<_>>>()?.into_iter().max()
}
