//! What the containers of a Pod say of its worker and its agent.

use std::hash::{DefaultHasher, Hash, Hasher};

use jobset_api::restart_rules::{ExitCodes, NEVER, RESTART, RESTART_ALL_CONTAINERS, restarts_pod};
use jobset_objects::{
    ALL_CONTAINERS_RESTARTING, PartialCondition, PartialContainer, PartialContainerStatus, PartialPod,
};
use k8s_openapi::api::core::v1::ContainerRestartRule;
use k8s_openapi::jiff::Timestamp;

use super::failure::{last_exit, last_words};
use super::view::WaitingContainer;

/// Condition of a Pod that has a sandbox with an address.
const READY_TO_START: &str = "PodReadyToStartContainers";
/// Reason of a container that waits for init containers and sidecars before it.
const POD_INITIALIZING: &str = "PodInitializing";

/// Whether the container is a sidecar whose exit can restart the whole Pod: the agent (KEP-467).
fn is_agent(container: &PartialContainer) -> bool {
    container.is_sidecar() && container.restart_policy_rules.iter().any(restarts_pod)
}

pub(super) fn container<'a>(pod: &'a PartialPod, status: &PartialContainerStatus) -> Option<&'a PartialContainer> {
    pod.spec.init_containers.iter().chain(&pod.spec.containers).find(|it| it.name == status.name)
}

pub(super) fn is_of_agent(pod: &PartialPod, status: &PartialContainerStatus) -> bool {
    container(pod, status).is_some_and(is_agent)
}

/// Whether the container has ended with a code that restarts the whole Pod.
pub(super) fn restarts_pod_at_end(pod: &PartialPod, status: &PartialContainerStatus) -> bool {
    action_of_end(pod, status) == Some(RESTART_ALL_CONTAINERS)
}

/// The action of the rule that matches the end of the container, if it has ended and one matches.
fn action_of_end<'a>(pod: &'a PartialPod, status: &PartialContainerStatus) -> Option<&'a str> {
    let end = status.state.terminated.as_ref()?;
    action_on(container(pod, status)?, end.exit_code)
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

/// Whether the status shows that all containers of the Pod restart.
pub(super) fn restarting(pod: &PartialPod) -> bool {
    let condition = pod.condition(ALL_CONTAINERS_RESTARTING).is_some_and(PartialCondition::is_true);
    condition || pod.status.container_statuses.iter().any(|status| restarts_pod_at_end(pod, status))
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

/// Identity of the containers that run; 0 if none does.
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

pub(super) fn any_never_ran(pod: &PartialPod) -> bool {
    let workers = &pod.status.container_statuses;
    let never_ran = |it: &PartialContainerStatus| {
        let state = &it.state;
        state.running.is_none()
            && state.terminated.is_none()
            && it.last_state.terminated.is_none()
            && it.restart_count == 0
    };
    workers.len() < pod.spec.containers.len() || workers.iter().any(never_ran)
}

/// Whether all workers have ended with 0.
pub(super) fn have_succeeded(pod: &PartialPod) -> bool {
    let (workers, statuses) = (&pod.spec.containers, &pod.status.container_statuses);
    let ended_well = |it: &PartialContainerStatus| it.state.terminated.as_ref().is_some_and(|end| end.exit_code == 0);
    !statuses.is_empty() && statuses.len() >= workers.len() && statuses.iter().all(ended_well)
}

/// When the last of the workers ended, if all have.
pub(super) fn all_ended(workers: &[PartialContainerStatus]) -> Option<Timestamp> {
    let ends = workers.iter().map(|it| it.state.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0));
    ends.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Since when the Pod has a sandbox with an address (`True`), or none (`False`).
pub(super) fn sandbox_since(pod: &PartialPod, status: &str) -> Option<Timestamp> {
    let sandbox = pod.condition(READY_TO_START).filter(|condition| condition.status == status)?;
    sandbox.last_transition_time.as_ref().map(|time| time.0)
}

/// Since when the Pod has no sandbox although a rule restarts one of its workers, which have run in it and ended: its node has
/// restarted.
///
/// The kubelet also stops the sandbox of a Pod that ends, or is being deleted, and may show that before its phase. No worker of the
/// former is one that a rule restarts.
pub(super) fn lost_with_its_node(pod: &PartialPod) -> Option<Timestamp> {
    let lost_at = sandbox_since(pod, "False")?;
    let workers = &pod.status.container_statuses;
    let all = pod.status.init_container_statuses.iter().chain(workers);
    let restarts = |it: &PartialContainerStatus| {
        let has_run = it.state.terminated.as_ref().is_some_and(|end| end.exit_code != 0 && end.started_at.is_some());
        has_run && action_of_end(pod, it).is_some_and(|action| action == RESTART || action == RESTART_ALL_CONTAINERS)
    };
    let is_over =
        !all.clone().any(|it| it.state.running.is_some()) && !workers.iter().any(|it| it.state.waiting.is_some());
    let goes = pod.has_ended() || pod.metadata.deletion_timestamp.is_some();
    (pod.spec.restart_policy == NEVER && !goes && is_over && workers.iter().any(restarts)).then_some(lost_at)
}

/// Whether a Pod that was [lost with its node](lost_with_its_node) gets another sandbox.
///
/// The kubelet of a node that has restarted finds the containers ended. Where a rule restarts all of them, it removes them and makes
/// another sandbox. Where the Pod's policy is Never, and containers are left that have ended, it makes none
/// (`computePodActions` in Kubernetes).
pub(super) fn gets_another_sandbox(pod: &PartialPod) -> bool {
    restarting(pod) || pod.status.init_container_statuses.iter().any(|status| restarts_pod_at_end(pod, status))
}

/// The container of the Pod that waits and keeps the others waiting: one that ends by itself, else the first in the order in which
/// they start.
pub(super) fn waiting(pod: &PartialPod) -> Option<WaitingContainer> {
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    // Most Pods run, and nothing of them waits.
    if !statuses.clone().any(|status| status.state.waiting.is_some()) {
        return None;
    }
    let statuses: Vec<_> = statuses.collect();
    // What a container before it keeps from being created.
    let follows = |it: &&&PartialContainerStatus| {
        it.state.waiting.as_ref().is_some_and(|waits| waits.reason.is_empty() || waits.reason == POD_INITIALIZING)
    };
    let ends_by_itself = |place: usize, status: &PartialContainerStatus| {
        let is_first = place < pod.status.init_container_statuses.len();
        let others_follow = || statuses[place + 1..].iter().all(|it| follows(&it));
        last_exit(status).filter(|_| is_first && !is_of_agent(pod, status) && others_follow())
    };
    let waiting = statuses.iter().enumerate().filter_map(|(place, status)| {
        let waits = status.state.waiting.as_ref()?;
        let ended = ends_by_itself(place, status);
        Some((ended.is_none(), follows(&status), status, waits, ended))
    });
    let (.., status, waits, ended) = waiting.min_by_key(|(is_healthy, follows, ..)| (*is_healthy, *follows))?;
    let (name, reason) = (status.name.clone(), waits.reason.clone());
    Some(WaitingContainer { name, reason, message: last_words(&waits.message), ended })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::nothing_restarts_it("Restart", 81, true)]
    #[case::rule_of_the_worker_restarts_all("RestartAllContainers", 81, false)]
    #[case::rule_of_the_agent_restarts_all("Restart", 255, false)]
    fn sandbox_is_lost_for_good_where_no_rule_restarts_all(
        #[case] action: &str,
        #[case] agent: i32,
        #[case] lost: bool,
    ) {
        let rule =
            |action: &str, code: i32| json!([{"action": action, "exitCodes": {"operator": "In", "values": [code]}}]);
        let ended = |name: &str| json!({"name": name, "state": {"terminated": {"exitCode": 255, "startedAt": "2026-01-01T00:00:00Z"}}});
        let pod: PartialPod = serde_json::from_value(json!({
            "spec": {
                "restartPolicy": "Never",
                "initContainers": [{"name": "agent", "restartPolicyRules": rule(RESTART_ALL_CONTAINERS, agent)}],
                "containers": [{"name": "worker", "restartPolicyRules": rule(action, 255)}],
            },
            "status": {
                "conditions": [
                    {"type": READY_TO_START, "status": "False", "lastTransitionTime": "2026-01-01T00:00:09Z"}],
                "initContainerStatuses": [ended("agent")],
                "containerStatuses": [ended("worker")],
            },
        }))
        .unwrap();
        assert_eq!((lost_with_its_node(&pod).is_some(), !gets_another_sandbox(&pod)), (true, lost));
    }
}
