//! Describes an incident: the worker that failed first, its exit, and whether the restart counts.

use jobset_api::{FailurePolicyAction, ReplicatedJob, conditions};

use super::cause::{Cause, Counting};
use super::members::{failed_workers, running_jobs};
use super::reconciliation::Reconciliation;
use super::{ExitClass, Trigger};
use crate::engine::pods::{FailedWorker, PodFailure};

/// First exit code of the range that means a signal (128 and the number of the signal, as in shells).
const SIGNALS: i32 = 128;

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
    let mut failures: Vec<(&FailedWorker, usize)> = failed_workers(reconciliation).collect();
    failures.sort_by_key(|(worker, _)| (finished_at(worker).is_none(), finished_at(worker), &worker.pod));
    let cause = failures.first().map_or_else(|| unobserved(reconciliation), |(first, _)| cause(describe(first), first));
    match uncounted_by(reconciliation, &failures) {
        Some(rule) => Incident { cause, counting: Counting::Ignored, counted: format!("not counted by rule {rule}") },
        None => Incident { cause, counting: Counting::Counted, counted: "counted".to_owned() },
    }
}

/// Why the group has to be recreated although no worker has failed: a deleted Pod has lost the work of its worker.
pub(super) fn loss(reconciliation: &Reconciliation<'_>, lost: &FailedWorker, group: usize) -> (Cause, Counting) {
    let node = lost.node.as_deref().unwrap_or("unknown");
    let message =
        format!("the worker of Pod {} on node {node} exited 0 because the Pod was deleted: its work is lost", lost.pod);
    let ignored = uncounted_by(reconciliation, &[(lost, group)]).is_some();
    let counting = if ignored { Counting::Ignored } else { Counting::Counted };
    let cause = Cause { reason: conditions::SUCCEEDED_WORKERS.to_owned(), ..cause(message, lost) };
    (cause, counting)
}

/// `Pod p, container c on node n exited with code 3 (Error): last words`.
pub(super) fn describe(worker: &FailedWorker) -> String {
    let node = worker.node.as_deref().unwrap_or("unknown");
    let FailedWorker { pod, failure, epoch, .. } = worker;
    format!("Pod {pod} on node {node} failed in epoch {epoch}, {failure}")
}

fn unobserved(reconciliation: &Reconciliation<'_>) -> Cause {
    let next = reconciliation.next_epoch();
    let pod = running_jobs(reconciliation).find_map(|(pods, _)| pods.first_to_report(next));
    let message = match pod {
        Some(pod) => {
            let node = pod.node.as_deref().unwrap_or("unknown");
            format!(
                "Pod {} on node {node} restarted into epoch {next}, its failure was not observed, exit code unknown",
                pod.name
            )
        }
        None => "workers restarted, their failures were not observed".to_owned(),
    };
    Cause {
        reason: conditions::IN_PLACE_RESTART.to_owned(),
        message,
        trigger: Trigger::ContainerExit(ExitClass::Unknown),
        failed_at: None,
    }
}

fn cause(message: String, worker: &FailedWorker) -> Cause {
    let reason = conditions::IN_PLACE_RESTART.to_owned();
    Cause { reason, message, trigger: trigger(worker), failed_at: finished_at(worker) }
}

fn finished_at(worker: &FailedWorker) -> Option<k8s_openapi::jiff::Timestamp> {
    worker.failure.exit.as_ref()?.finished_at
}

fn trigger(worker: &FailedWorker) -> Trigger {
    let exit = exit_class(&worker.failure);
    match &worker.failure.disruption {
        Some((reason, _)) if reason == "DeletionByTaintManager" || reason == "DeletionByPodGC" => Trigger::NodeLost,
        Some(_) => Trigger::Eviction,
        None if worker.pod_ended => Trigger::PodFailed(exit),
        None => Trigger::ContainerExit(exit),
    }
}

fn exit_class(failure: &PodFailure) -> ExitClass {
    match &failure.exit {
        None => ExitClass::Unknown,
        Some(exit) if exit.reason == "OOMKilled" => ExitClass::OutOfMemory,
        Some(exit) if exit.code == 0 => ExitClass::Success,
        Some(exit) if exit.code < SIGNALS => ExitClass::Error,
        Some(_) => ExitClass::Signal,
    }
}

/// The name of the rule that excludes the restart from maxRestarts, if one does.
///
/// The restart does not count if disruptions (eviction, preemption, loss of a node) ended all of the workers, and for each of
/// them the first rule without reasons and patterns ignores maxRestarts.
fn uncounted_by(reconciliation: &Reconciliation<'_>, failures: &[(&FailedWorker, usize)]) -> Option<String> {
    let groups = reconciliation.groups();
    let rule = |(worker, group): &(&FailedWorker, usize)| {
        worker.failure.disruption.as_ref()?;
        ignoring_rule(reconciliation, &groups[*group])
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
