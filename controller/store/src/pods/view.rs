//! What the rules read of a Pod.

use std::sync::Arc;

use jobset_api::epoch::{EpochVerdict, GroupEpochs};
use jobset_api::labels;
use jobset_objects::{JOB_TRACKING, PartialPod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::containers::{
    all_ended, any_never_ran, gets_another_sandbox, have_succeeded, identity, is_of_agent, is_supervised,
    lost_with_its_node, restarting, sandbox_since, started, waiting,
};
use super::failure::{Exit, PodFailure, ReportedExit, has_failed, shorten};
use super::life::{self, EndedLife};
use super::progress::PodProgress;
use super::unscheduled;
use crate::job::{controller, number};
use crate::{dialect, version};

/// Longest text of a malformed epoch that is kept, in bytes. An annotation may have 256 KiB.
const LONGEST_EPOCH: usize = 64;
/// Longest name of a topology that is kept, in bytes: that of a label. A longer one is the label of no node.
const LONGEST_LABEL: usize = 253 + "/".len() + 63;

// Each is said by itself, and read by itself.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct PodView {
    pub name: String,
    pub uid: String,
    /// resourceVersion.
    pub version: u64,
    pub job_uid: Option<String>,
    /// Completion index in its Job.
    pub index: Option<i32>,
    /// What its agent has reported.
    pub epoch: Epoch,
    /// How the agent says that its worker ended.
    pub worker_exit: Option<Box<ReportedExit>>,
    /// What the agent says of the progress of its worker. Most Pods have none.
    pub progress: Option<Box<PodProgress>>,
    /// Whether the agent of the Go JobSet has reported.
    pub reports_attempt: bool,
    pub phase: PodPhase,
    /// Since when it is being deleted, if it is: when the request came, not when its grace ends.
    pub deleted_at: Option<Timestamp>,
    /// Whether its deletion has no grace left: no kubelet has to confirm it.
    pub deleted_by_force: bool,
    pub created: Timestamp,
    /// Since when it has its sandbox, and with it its address, by the clock of its node. `None` if it has none.
    pub address_since: Option<Timestamp>,
    /// Whether it has the finalizer [`JOB_TRACKING`].
    pub tracked: bool,
    /// A finalizer of somebody else that keeps it, if it is being deleted.
    pub held_by: Option<Box<str>>,
    pub node: Option<Arc<str>>,
    /// Whether it may run on the one node alone that it names.
    pub pinned: bool,
    /// Why it has no node, as the scheduler says.
    pub unscheduled: Option<Box<str>>,
    /// Topology domain that its node selector asks for, if its JobSet is placed exclusively: the Pod follows its leader.
    pub domain: Option<Domain>,
    /// Identity of the worker containers that run; 0 if none does. Containers of another life have another.
    pub workers: u64,
    /// When the oldest of them started.
    pub workers_started: Option<Timestamp>,
    /// Whether it has an agent in a container of its own.
    pub sidecar: bool,
    /// Identity of the agent containers that run; 0 if none does.
    pub agents: u64,
    /// When the newest of the agent containers started.
    pub agent_started: Option<Timestamp>,
    /// How often containers have been restarted, all together.
    pub restarts: i32,
    /// The same of the agent containers.
    pub agent_restarts: i32,
    /// Whether the status shows that all containers restart: a worker ended with a code that restarts them, or the
    /// kubelet says so.
    pub restarting: bool,
    /// Whether one of its workers has never run, and the Pod has not ended.
    pub unstarted: bool,
    /// When the last worker ended, if all have.
    pub workers_ended: Option<Timestamp>,
    /// Whether all workers have ended with 0. A Pod with a sidecar has succeeded a second or two later.
    pub workers_succeeded: bool,
    /// When the agent started that has reported the epoch, if it says so.
    pub life: Option<Timestamp>,
    /// The life of its agent that the status shows to be over. The epoch may be that of another one.
    pub ended_life: Option<EndedLife>,
    /// Since when it has no sandbox, and will have none: its node has restarted, and the kubelet starts no container of it again.
    pub sandbox_lost_at: Option<Timestamp>,
    /// Since when it finds no node, if it keeps away from some by a hard rule.
    pub unschedulable_since: Option<Timestamp>,
    /// What its first container that does not run waits for, if one does.
    pub waiting: Option<Box<WaitingContainer>>,
    /// Why it, or one of its containers, fails, if that does.
    pub failure: Option<Box<PodFailure>>,
}

/// The epoch that a Pod reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Epoch {
    #[default]
    Absent,
    Reported(i32),
    /// Not a number: counts as no report.
    Malformed(Box<str>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PodPhase {
    /// Pending, Running or Unknown.
    #[default]
    Open,
    Succeeded,
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitingContainer {
    pub name: String,
    /// Reason that the kubelet gives, such as `CreateContainerConfigError`.
    pub reason: String,
    pub message: String,
    /// Whether others wait for it, and it fails by itself: an init container or a sidecar, and not the agent.
    pub ended: Option<Exit>,
}

/// Where an exclusively placed Pod asks to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Domain {
    /// Node label that names the domain: value of [`labels::EXCLUSIVE_TOPOLOGY`].
    pub key: Box<str>,
    /// Domain that the node selector asks for; none if it does not ask.
    pub value: Option<Box<str>>,
}

impl PodView {
    /// The failure of its worker that the agent has reported with the epoch that follows. Both are in one write of the agent, so
    /// that no slow status makes it the failure of another epoch.
    pub(super) fn reported_failure(&self) -> Option<&ReportedExit> {
        let reported = self.worker_exit.as_deref()?;
        self.epoch.number().is_some_and(|epoch| epoch > reported.epoch).then_some(reported)
    }

    pub fn of(pod: &PartialPod) -> Self {
        let workers = &pod.status.container_statuses;
        let agents = || pod.status.init_container_statuses.iter().filter(|status| is_of_agent(pod, status));
        let phase = match pod.status.phase.as_str() {
            "Succeeded" => PodPhase::Succeeded,
            "Failed" => PodPhase::Failed,
            _ => PodPhase::Open,
        };
        let restarting = restarting(pod);
        let deleted_at = deletion_requested(pod);
        let lost_at = lost_with_its_node(pod);
        let ended_life = EndedLife::of(pod);
        let failing = restarting
            || lost_at.is_some()
            || pod.status.init_container_statuses.iter().any(has_failed)
            || deleted_at.is_some()
            || ended_life.is_some()
            || phase == PodPhase::Failed;
        Self {
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            version: version(pod),
            job_uid: controller(pod).filter(|owner| owner.kind == "Job").map(|job| job.uid),
            index: number(pod.annotations(), labels::COMPLETION_INDEX),
            epoch: dialect::reported(pod.annotations()),
            worker_exit: ReportedExit::of(pod).map(Box::new),
            progress: PodProgress::of(pod.annotations()).map(Box::new),
            reports_attempt: dialect::reports_attempt(pod.annotations()),
            phase,
            deleted_at,
            deleted_by_force: deleted_at.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0),
            created: pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            address_since: sandbox_since(pod, "True"),
            tracked: pod.finalizers().iter().any(|finalizer| finalizer == JOB_TRACKING),
            held_by: deleted_at.and_then(|_| pod.foreign_finalizer()).map(Into::into),
            node: pod.spec.node_name.as_deref().map(Arc::from),
            pinned: pod.is_pinned(),
            unscheduled: unscheduled::why(pod),
            domain: domain(pod),
            workers: identity(workers.iter()),
            workers_started: workers.iter().filter_map(started).min(),
            sidecar: !is_supervised(pod),
            agents: identity(agents()),
            agent_started: agents().filter_map(started).max(),
            restarts: pod.status.init_container_statuses.iter().chain(workers).map(|it| it.restart_count).sum(),
            agent_restarts: agents().map(|it| it.restart_count).sum(),
            restarting,
            unstarted: phase == PodPhase::Open && any_never_ran(pod),
            workers_ended: all_ended(workers),
            workers_succeeded: !restarting && have_succeeded(pod),
            life: life::reported(pod.annotations()),
            ended_life,
            sandbox_lost_at: lost_at.filter(|_| !gets_another_sandbox(pod)),
            unschedulable_since: unscheduled::since(pod),
            waiting: waiting(pod).map(Box::new),
            failure: failing.then(|| Box::new(PodFailure::of(pod))),
        }
    }

    /// Whether the Pod has not ended, and nobody has deleted it.
    pub fn is_here(&self) -> bool {
        self.phase == PodPhase::Open && self.deleted_at.is_none()
    }

    /// Whether the Pod can still fill its slot: it has not ended, and if it is being deleted, its worker still runs. One
    /// that is deleted while it waits at the barrier will never pass it.
    pub fn fills_its_slot(&self) -> bool {
        self.phase == PodPhase::Open && (self.deleted_at.is_none() || self.workers != 0)
    }

    /// When it got its address at the latest. Its report may be faster than the status that says so.
    pub fn address_at_latest(&self) -> Timestamp {
        self.address_since.unwrap_or(Timestamp::MAX)
    }

    /// Whether it has failed, and the Job controller may delay its successor because of that.
    pub fn delays_its_successor(&self) -> bool {
        self.phase == PodPhase::Failed && self.tracked
    }

    /// Whether it has lost its sandbox for good, or has a container that ends by itself and keeps others waiting.
    pub fn is_stuck(&self) -> bool {
        self.sandbox_lost_at.is_some() || self.waiting.as_ref().is_some_and(|waiting| waiting.ended.is_some())
    }

    /// Whether it owes its return: its epoch is over, or runs without its worker; or it has lost its sandbox for good, whatever it has
    /// reported. A Pod that goes, or has done its work, owes nothing.
    pub fn owes_return(&self, epochs: GroupEpochs) -> bool {
        let is_here = self.is_here() && !self.workers_succeeded;
        let owes = |epoch: i32| match epochs.verdict(epoch) {
            EpochVerdict::Restart => true,
            EpochVerdict::Run => self.workers == 0,
            EpochVerdict::Wait => false,
        };
        is_here && (self.sandbox_lost_at.is_some() || self.epoch.number().is_some_and(owes))
    }

    /// Whether a disruption ends it: eviction, preemption, a taint, the loss of its node.
    pub fn is_disrupted(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.disruption.is_some())
    }
}

impl Epoch {
    pub fn number(&self) -> Option<i32> {
        match self {
            Self::Reported(epoch) => Some(*epoch),
            Self::Absent | Self::Malformed(_) => None,
        }
    }

    pub fn of(annotation: Option<&String>) -> Self {
        match annotation {
            None => Self::Absent,
            Some(text) => {
                text.parse().map_or_else(|_| Self::Malformed(shorten(text, LONGEST_EPOCH).into()), Self::Reported)
            }
        }
    }
}

fn domain(pod: &PartialPod) -> Option<Domain> {
    let key = pod.annotations().get(labels::EXCLUSIVE_TOPOLOGY)?;
    if pod.annotations().contains_key(labels::NODE_SELECTOR_STRATEGY) {
        return None;
    }
    let value = pod.spec.node_selector.get(key).map(Into::into);
    Some(Domain { key: shorten(key, LONGEST_LABEL + 1).into(), value })
}

/// When the deletion was asked for. The timestamp of the API is that of the end of the grace.
fn deletion_requested(pod: &PartialPod) -> Option<Timestamp> {
    let end = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    Some(end.checked_sub(k8s_openapi::jiff::SignedDuration::from_secs(grace)).unwrap_or(end))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::ObservedEpochs;
    use super::*;

    fn pod(part: &Value) -> PodView {
        let mut pod = json!({
            "metadata": {"name": "p", "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]},
            "spec": {
                "initContainers": [{"name": "agent", "restartPolicy": "Always", "restartPolicyRules": [
                    {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [81]}}]}],
                "containers": [{"name": "w", "restartPolicyRules": [
                    {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0, 3]}}]}],
            },
        });
        json_patch::merge(&mut pod, part);
        PodView::of(&serde_json::from_value(pod).unwrap())
    }

    fn worker_ended(code: i32) -> Value {
        json!({"status": {"containerStatuses": [{"name": "w", "state": {"terminated": {"exitCode": code}}}]}})
    }

    #[rstest]
    #[case::a_code_that_restarts(worker_ended(7), true)]
    #[case::success(worker_ended(0), false)]
    #[case::a_code_that_is_left_to_the_failure_policy(worker_ended(3), false)]
    #[case::the_kubelet_says_so(json!({"status": {"conditions": [{"type": "AllContainersRestarting", "status": "True"}]}}), true)]
    #[case::it_did(json!({"status": {"conditions": [{"type": "AllContainersRestarting", "status": "False"}]}}), false)]
    fn a_pod_restarts_as_its_own_rules_say(#[case] part: Value, #[case] restarting: bool) {
        assert_eq!(pod(&part).restarting, restarting);
    }

    #[rstest]
    #[case::asked_to_go("2026-01-01T00:00:10Z", true)]
    #[case::done_before("2026-01-01T00:00:09Z", false)]
    fn a_worker_that_exits_0_on_sigterm_has_not_succeeded(#[case] finished: &str, #[case] by_deletion: bool) {
        let deleted = pod(&json!({
            "metadata": {"deletionTimestamp": "2026-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30},
            "status": {"phase": "Succeeded", "containerStatuses": [
                {"name": "w", "state": {"terminated": {"exitCode": 0, "finishedAt": finished}}}]},
        }));
        let member = super::super::member::Member::new(deleted, ObservedEpochs::default());
        assert_eq!(member.succeeded_by_deletion(), by_deletion);
    }

    #[test]
    fn long_annotations_are_kept_in_part() {
        let long = "x".repeat(256 << 10);
        let view =
            pod(&json!({"metadata": {"annotations": {(labels::EPOCH): long, (labels::EXCLUSIVE_TOPOLOGY): long}}}));
        let Epoch::Malformed(epoch) = view.epoch else { unreachable!("{:?}", view.epoch) };
        assert_eq!((epoch.len(), view.domain.unwrap().key.len()), (LONGEST_EPOCH, LONGEST_LABEL + 1));
    }

    #[test]
    fn containers_of_another_life_have_another_identity() {
        let running = |id: &str| {
            pod(&json!({"status": {"containerStatuses": [{"name": "w", "containerID": id, "state": {"running": {}}}]}}))
        };
        assert_eq!(running("a").workers, running("a").workers);
        assert_ne!(running("a").workers, running("b").workers);
        assert_eq!(pod(&worker_ended(1)).workers, 0);
    }

    #[test]
    fn agent_start_is_not_that_of_another_init_container() {
        let view = pod(&json!({"status": {
            "initContainerStatuses": [
                {"name": "preflight", "restartCount": 2, "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}}},
                {"name": "agent", "restartCount": 1, "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}},
            ],
            "containerStatuses": [{"name": "w", "restartCount": 4}],
        }}));
        assert_eq!((view.restarts, view.sidecar), (7, true));
        assert_eq!(view.agent_started, Some("2026-01-01T00:00:01Z".parse().unwrap()));
    }

    #[test]
    fn the_failure_is_that_of_the_container_that_ended_first() {
        let view = pod(&json!({
            "spec": {"nodeName": "n"},
            "status": {"phase": "Failed", "containerStatuses": [
                {"name": "w", "state": {"terminated": {"exitCode": 137, "reason": "RestartingAllContainers"}}},
                {"name": "x", "state": {"terminated": {"exitCode": 9, "finishedAt": "2026-01-01T00:00:02Z"}}},
                {"name": "y", "state": {"terminated": {
                    "exitCode": 3, "reason": "Error", "message": "disk\n", "finishedAt": "2026-01-01T00:00:01Z"}}},
            ]},
        }));
        let exit = view.failure.unwrap().exit.unwrap();
        assert_eq!((exit.container.as_str(), exit.code, exit.message.as_str()), ("y", 3, "disk"));
    }

    #[rstest]
    #[case::no_container(json!({"phase": "Failed", "reason": "NodeAffinity"}), true)]
    #[case::only_waiting(json!({"phase": "Failed", "containerStatuses": [{"name": "w", "state": {"waiting": {}}}]}), true)]
    #[case::not_failed(json!({"phase": "Pending"}), false)]
    #[case::init_container_ran(json!({"phase": "Failed", "initContainerStatuses": [
        {"name": "preflight", "containerID": "c", "state": {"terminated": {"exitCode": 3}}}]}), false)]
    #[case::ran_before(json!({"phase": "Failed", "containerStatuses": [
        {"name": "w", "state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 3, "finishedAt": "2026-01-01T00:00:00Z"}}}]}), false)]
    #[case::evicted(json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}), false)]
    fn a_pod_is_refused_that_failed_without_any_container(#[case] status: Value, #[case] refused: bool) {
        let failure = pod(&json!({ "status": status })).failure;
        assert_eq!(failure.is_some_and(|failure| failure.refused), refused);
    }
}
