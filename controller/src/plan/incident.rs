//! What happened: which worker failed first, what is known of it, and whether its restart counts.

use jobset_api::{FailurePolicyAction, ReplicatedJob, conditions};

use super::members::{broken, running_jobs};
use super::pass::Pass;
use super::placement;
use super::restart::{Cause, Counting};
use super::{ExitClass, Trigger};
use crate::store::pods::{Broken, Exit, Failure};

/// Exit codes from here on are those of signals, as shells write them.
const SIGNALS: i32 = 128;

/// What makes the group restart.
pub(super) struct Incident {
    pub cause: Cause,
    pub counting: Counting,
    /// Whether the restart counts, and if it does not, by which rule, for people.
    pub counted: String,
}

/// The failure that makes the group restart in place, and whether that counts.
///
/// Only what was seen is told: the kubelet erases exit codes when it restarts a Pod.
pub(super) fn first(pass: &Pass<'_>) -> Incident {
    let mut failures: Vec<(&Broken, usize)> = broken(pass).collect();
    failures.sort_by_key(|(broken, _)| (finished_at(broken).is_none(), finished_at(broken), &broken.pod));
    let cause = failures.first().map_or_else(|| unseen(pass), |(first, _)| cause(describe(first), first));
    match uncounted_by(pass, &failures) {
        Some(rule) => Incident { cause, counting: Counting::Ignored, counted: format!("not counted by rule {rule}") },
        None => Incident { cause, counting: Counting::Counted, counted: "counted".to_owned() },
    }
}

/// Why the group cannot go on although nothing has failed: the work of a Pod that was deleted is lost.
pub(super) fn loss(pass: &Pass<'_>, lost: &Broken, group: usize) -> (Cause, Counting) {
    let node = lost.node.as_deref().unwrap_or("unknown");
    let message =
        format!("the worker of Pod {} on node {node} exited 0 because the Pod was deleted: its work is lost", lost.pod);
    let ignored = placement::is_repair(&lost.failure) || uncounted_by(pass, &[(lost, group)]).is_some();
    let counting = if ignored { Counting::Ignored } else { Counting::Counted };
    let cause = Cause { reason: conditions::SUCCEEDED_WORKERS.to_owned(), ..cause(message, lost) };
    (cause, counting)
}

/// `Pod p, container c on node n exited with code 3 (Error): last words`.
pub(super) fn describe(broken: &Broken) -> String {
    let node = broken.node.as_deref().unwrap_or("unknown");
    let Broken { pod, failure, epoch, .. } = broken;
    let exit = failure.exit.as_ref().map(|Exit { container, code, reason, message, .. }| {
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let words = if message.is_empty() { String::new() } else { format!(": {message}") };
        format!("container {container} exited with code {code}{reason}{words}")
    });
    let disruption = failure.disruption.as_ref().map(|(reason, message)| format!("disrupted ({reason}: {message})"));
    let end = match (disruption, exit) {
        (Some(disruption), Some(exit)) => format!("{disruption}, {exit}"),
        (Some(end), None) | (None, Some(end)) => end,
        (None, None) => "exit code unknown".to_owned(),
    };
    format!("Pod {pod} on node {node} failed in epoch {epoch}, {end}")
}

fn unseen(pass: &Pass<'_>) -> Cause {
    let next = pass.next_epoch();
    let pod = running_jobs(pass).find_map(|(pods, _)| pods.first_to_report(next));
    let message = match pod {
        Some(pod) => {
            let node = pod.node.as_deref().unwrap_or("unknown");
            format!(
                "Pod {} on node {node} restarted into epoch {next}, its failure was not seen, exit code unknown",
                pod.name
            )
        }
        None => "workers restarted, their failures were not seen".to_owned(),
    };
    Cause {
        reason: conditions::IN_PLACE_RESTART.to_owned(),
        message,
        trigger: Trigger::ContainerExit(ExitClass::Unknown),
        failed_at: None,
    }
}

fn cause(message: String, broken: &Broken) -> Cause {
    let reason = conditions::IN_PLACE_RESTART.to_owned();
    Cause { reason, message, trigger: trigger(broken), failed_at: finished_at(broken) }
}

fn finished_at(broken: &Broken) -> Option<k8s_openapi::jiff::Timestamp> {
    broken.failure.exit.as_ref()?.finished_at
}

fn trigger(broken: &Broken) -> Trigger {
    let exit = exit_class(&broken.failure);
    match &broken.failure.disruption {
        Some((reason, _)) if reason == "DeletionByTaintManager" || reason == "DeletionByPodGC" => Trigger::NodeLost,
        Some(_) => Trigger::Eviction,
        None if broken.pod_ended => Trigger::PodFailed(exit),
        None => Trigger::ContainerExit(exit),
    }
}

fn exit_class(failure: &Failure) -> ExitClass {
    match &failure.exit {
        None => ExitClass::Unknown,
        Some(exit) if exit.reason == "OOMKilled" => ExitClass::OutOfMemory,
        Some(exit) if exit.code == 0 => ExitClass::Success,
        Some(exit) if exit.code < SIGNALS => ExitClass::Error,
        Some(_) => ExitClass::Signal,
    }
}

/// Maintenance is not a bug: when nothing but disruptions (eviction, preemption, the loss of a node) ended workers, and
/// for each of them the first rule without reasons and patterns says so, the restart does not count. The name of the rule.
fn uncounted_by(pass: &Pass<'_>, failures: &[(&Broken, usize)]) -> Option<String> {
    let groups = pass.groups();
    let rule = |(broken, group): &(&Broken, usize)| {
        broken.failure.disruption.as_ref()?;
        ignoring_rule(pass, &groups[*group])
    };
    let mut rules = failures.iter().map(rule);
    let first = rules.next()??;
    rules.all(|rule| rule.is_some()).then_some(first)
}

fn ignoring_rule(pass: &Pass<'_>, group: &ReplicatedJob) -> Option<String> {
    let rules = &pass.seen.jobset.spec.failure_policy.as_ref()?.rules;
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
