//! Describes an incident: the worker that failed first, its exit, and whether the restart counts.

use jobset_api::{FailurePolicyAction, ReplicatedJob, conditions, event};
use jobset_store::pods::{Exit, FailedWorker, PodFailure};
use k8s_openapi::jiff::Timestamp;

use crate::cause::{Cause, Counting};
use crate::members::{disrupted_workers, failed_workers};
use crate::nodes::blame::{self, WorkerEnd};
use crate::reconciliation::{Reconciliation, node_name};
use crate::types::{ExitClass, Trigger};

/// First exit code of the range that means a signal (128 and the number of the signal, as in shells).
const SIGNALS: i32 = 128;

/// Reasons of disruptions by which Pods go with their node.
const OF_LOST_NODES: [&str; 3] = ["DeletionByTaintManager", "DeletionByPodGC", event::NODE_LOST];

/// Why the group restarts.
pub(super) struct Incident {
    pub cause: Cause,
    pub counting: Counting,
    /// Message for people: whether the restart counts, or which rule excludes it.
    pub counted: String,
}

/// The first failure that makes the group restart in place.
///
/// The kubelet erases exit codes when it restarts a Pod. The description has only what the controller observed before that.
pub(super) fn first(reconciliation: &Reconciliation<'_>) -> Incident {
    with_lost(reconciliation, &[])
}

/// The same where workers are lost whose Pods do not show that, each with the index of its replicatedJob.
pub(super) fn with_lost(reconciliation: &Reconciliation<'_>, lost: &[(FailedWorker, usize)]) -> Incident {
    let mut failures = failed_workers(reconciliation);
    let failed_at = failures.iter().filter_map(|(worker, _)| worker.failure.finished_at()).min();
    let disrupted = disrupted_workers(reconciliation);
    failures.extend(disrupted.iter().chain(lost).map(|(worker, group)| (worker, *group)));
    leave_out_consequences(&mut failures);
    failures.sort_by_key(|(worker, _)| (worker.failure.ended_at().is_none(), worker.failure.ended_at(), &worker.pod));
    let mut cause =
        failures.first().map_or_else(|| unobserved(reconciliation), |(first, _)| cause(describe(first), first));
    cause.blame = blame::of(reconciliation, failures.iter().map(|(worker, _)| WorkerEnd::of_worker(worker)).collect());
    cause.failed_at = failed_at;
    cause.is_loss &= failures.iter().all(|(worker, _)| worker.is_loss());
    match uncounted_by(reconciliation, &failures) {
        Some(rule) => Incident { cause, counting: Counting::Ignored, counted: format!("not counted by rule {rule}") },
        None => Incident { cause, counting: Counting::Counted, counted: "counted".to_owned() },
    }
}

/// Leaves out the workers that have failed since a disruption began: they need the Pod that goes, whose worker may still save its
/// state. Nobody tells the two apart within a second.
fn leave_out_consequences(failures: &mut Vec<(&FailedWorker, usize)>) {
    let Some(began) = failures.iter().filter_map(|(worker, _)| worker.failure.disrupted_at).min() else { return };
    let failed_before = |at: Timestamp| at.as_second() < began.as_second();
    failures.retain(|(worker, _)| worker.is_loss() || worker.failure.finished_at().is_none_or(failed_before));
}

/// Why the group has to be recreated although no worker has failed: a deleted Pod has lost the work of its worker.
pub(super) fn loss(reconciliation: &Reconciliation<'_>, lost: &FailedWorker, group: usize) -> (Cause, Counting) {
    let node = node_name(lost.node.as_ref());
    let message =
        format!("the worker of Pod {} on node {node} exited 0 because the Pod was deleted: its work is lost", lost.pod);
    let ignored = uncounted_by(reconciliation, &[(lost, group)]).is_some();
    let counting = if ignored { Counting::Ignored } else { Counting::Counted };
    let cause = Cause { reason: conditions::SUCCEEDED_WORKERS.to_owned(), ..cause(message, lost) };
    (cause, counting)
}

/// `Pod p, container c on node n exited with code 3 (Error): last words`.
pub(super) fn describe(worker: &FailedWorker) -> String {
    let node = node_name(worker.node.as_ref());
    let FailedWorker { pod, failure, epoch, .. } = worker;
    let exit = failure.exit.as_ref().map(Exit::to_string);
    let exit = exit.unwrap_or_else(|| "exit code unknown".to_owned());
    let why = |what: &Option<(String, String)>| match what {
        Some((reason, message)) => format!(" ({reason}: {message})"),
        None => String::new(),
    };
    if failure.disruption.is_some() {
        let exit = failure.exit.as_ref().map(|_| format!(", {exit}")).unwrap_or_default();
        format!("Pod {pod} on node {node} failed in epoch {epoch}, disrupted{}{exit}", why(&failure.disruption))
    } else if failure.refused {
        format!("Pod {pod} was refused by node {node} in epoch {epoch}{}", why(&failure.pod_status))
    } else if failure.node_restarted {
        format!("Pod {pod} was lost in epoch {epoch}: its node {node} has restarted")
    } else if worker.deleted {
        format!("Pod {pod} on node {node} was deleted in epoch {epoch} by a user or another program, {exit}")
    } else {
        format!("Pod {pod} on node {node} failed in epoch {epoch}{}, {exit}", why(&failure.pod_status))
    }
}

fn unobserved(reconciliation: &Reconciliation<'_>) -> Cause {
    let next = reconciliation.next_epoch();
    let pod = reconciliation.running_pods().find_map(|pods| pods.first_to_report(next));
    let message = match pod {
        Some(pod) => {
            let (name, node) = (&pod.name, node_name(pod.node.as_ref()));
            format!(
                "Pod {name} on node {node} restarted into epoch {next}, its failure was not observed, exit code unknown"
            )
        }
        None => "workers restarted, their failures were not observed".to_owned(),
    };
    Cause {
        reason: conditions::IN_PLACE_RESTART.to_owned(),
        message,
        trigger: Trigger::ContainerExit(ExitClass::Unknown),
        failed_at: None,
        is_loss: false,
        blame: None,
    }
}

/// Why a group restarts whose first failure is that of this worker.
pub(super) fn cause(message: String, worker: &FailedWorker) -> Cause {
    let reason = conditions::IN_PLACE_RESTART.to_owned();
    let (failed_at, is_loss) = (worker.failure.finished_at(), worker.is_loss());
    Cause { reason, message, trigger: trigger(worker), failed_at, is_loss, blame: None }
}

pub(super) fn trigger(worker: &FailedWorker) -> Trigger {
    let exit = exit_class(&worker.failure);
    match &worker.failure.disruption {
        Some(_) if is_of_lost_node(&worker.failure) => Trigger::NodeLost,
        Some(_) => Trigger::Eviction,
        None if worker.failure.refused => Trigger::Refused,
        None if worker.failure.node_restarted => Trigger::NodeLost,
        None if worker.deleted => Trigger::PodDeleted,
        None if worker.pod_ended => Trigger::PodFailed(exit),
        None => Trigger::ContainerExit(exit),
    }
}

/// Whether the Pod went with its node.
pub(super) fn is_of_lost_node(failure: &PodFailure) -> bool {
    failure.disruption.as_ref().is_some_and(|(reason, _)| OF_LOST_NODES.contains(&reason.as_str()))
}

fn exit_class(failure: &PodFailure) -> ExitClass {
    match &failure.exit {
        None => ExitClass::Unknown,
        Some(exit) if exit.is_out_of_memory() => ExitClass::OutOfMemory,
        Some(exit) if exit.code == 0 => ExitClass::Success,
        Some(exit) if exit.code < SIGNALS => ExitClass::Error,
        Some(_) => ExitClass::Signal,
    }
}

/// The name of the rule that excludes the restart from maxRestarts, if one does.
///
/// The restart does not count if the cluster has taken all of the workers ([`FailedWorker::is_maintenance`]), and for each of them
/// the first rule without reasons and patterns ignores maxRestarts.
pub(super) fn uncounted_by(reconciliation: &Reconciliation<'_>, failures: &[(&FailedWorker, usize)]) -> Option<String> {
    let groups = reconciliation.groups();
    let rule = |(worker, group): &(&FailedWorker, usize)| {
        worker.is_maintenance().then(|| ignoring_rule(reconciliation, &groups[*group])).flatten()
    };
    let mut rules = failures.iter().map(rule);
    let first = rules.next()??;
    rules.all(|rule| rule.is_some()).then_some(first)
}

fn ignoring_rule(reconciliation: &Reconciliation<'_>, group: &ReplicatedJob) -> Option<String> {
    let rules = &reconciliation.observed.jobset.spec.failure_policy.as_ref()?.rules;
    let (index, rule) = rules.iter().enumerate().find(|(_, rule)| {
        let any_failure = rule.on_job_failure_reasons.is_empty() && rule.on_job_failure_message_patterns.is_empty();
        any_failure && rule.targets(&group.name)
    })?;
    let ignores = matches!(
        rule.action,
        FailurePolicyAction::RestartJobSetAndIgnoreMaxRestarts | FailurePolicyAction::RestartJobAndIgnoreMaxRestarts
    );
    ignores.then(|| rule.condition_name(index).into_owned())
}
