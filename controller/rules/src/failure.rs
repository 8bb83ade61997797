//! The failure policy (KEP-262): the action for failed Jobs.

use std::collections::HashSet;
use std::iter;
use std::ops::ControlFlow;

use jobset_api::{FailurePolicy, FailurePolicyAction, FailurePolicyRule, Scope, conditions, event};
use jobset_store::pods::{JobPods, PodView};
use jobset_store::{Finished, JobView, custom_reason};
use k8s_openapi::jiff::Timestamp;

use crate::cause::{Blame, Cause, Counting};
use crate::epochs::Epochs;
use crate::nodes::blame::{self, WorkerEnd, was_asked};
use crate::reconciliation::{Current, Reconciliation, node_name};
use crate::restart::recreate;
use crate::types::{Fact, Trigger};
use crate::{budget, epochs, nodes, success};

/// Maximum length of the status arrays that count restarts of single Jobs, as in the Go JobSet.
const MAX_JOB_COUNTERS: usize = 1024;

/// A failed Job of the current attempt.
#[derive(Clone, Debug)]
struct FailedJob<'a> {
    current: Current<'a>,
    at: Timestamp,
    replicated_job: &'a str,
    index: i32,
    reason: &'a str,
    message: &'a str,
    /// Index of the first rule that it matches, if any.
    own_rule: Option<usize>,
}

/// The action of the policy for the failed Jobs.
struct PolicyVerdict<'a> {
    action: FailurePolicyAction,
    /// Index and rule; `None` for the default action.
    rule: Option<(usize, &'a FailurePolicyRule)>,
    /// The Jobs that matched, the earliest failure first.
    jobs: Vec<FailedJob<'a>>,
}

/// Carries out the first rule that any failed Job matches, for the Job with the earliest failure, ties by name. If no rule
/// matches, the JobSet restarts. Without a policy, the JobSet fails.
pub(super) fn apply_policy(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let failed = failed_jobs(reconciliation);
    let Some(first) = failed.first() else { return ControlFlow::Continue(()) };
    if success::came_before(reconciliation, first.at) {
        return ControlFlow::Continue(());
    }
    let Some(policy) = &reconciliation.observed.jobset.spec.failure_policy else {
        let blame = blamed(reconciliation, first);
        nodes::strike(reconciliation, blame.as_ref());
        let message = format!("{}; there is no failure policy", describe(first));
        return reconciliation.fail(conditions::FAILED_JOBS, message);
    };
    let Some(verdict) = judge(policy, failed) else { return ControlFlow::Continue(()) };
    carry_out(reconciliation, &verdict)
}

fn carry_out(reconciliation: &mut Reconciliation<'_>, verdict: &PolicyVerdict<'_>) -> ControlFlow<()> {
    use FailurePolicyAction as Do;

    let job = &verdict.jobs[0];
    let is_counted = already_counted(reconciliation, job);
    let blame = if is_counted { None } else { blamed(reconciliation, job) };
    let cause = Cause { blame, ..cause(job, verdict.rule) };
    let rule = verdict.rule.map(|(index, _)| index);
    // The others restart the JobSet as a whole, which strikes by itself.
    if !matches!(verdict.action, Do::RestartJobSet | Do::RestartJobSetAndIgnoreMaxRestarts) {
        nodes::strike(reconciliation, cause.blame.as_ref());
    }
    reconciliation.facts.push(Fact::PolicyApplied { action: verdict.action, rule });
    match verdict.action {
        Do::FailJobSet => reconciliation.fail(conditions::FAIL_JOB_SET_ACTION, cause.message),
        Do::RestartJobSet => {
            let counting = if is_counted { Counting::Already } else { Counting::Counted };
            reconciliation.warn(event::RESTART_JOB_SET, cause.message.clone());
            recreate(reconciliation, counting, &cause)
        }
        Do::RestartJobSetAndIgnoreMaxRestarts => {
            reconciliation.warn(event::RESTART_JOB_SET_UNCOUNTED, cause.message.clone());
            recreate(reconciliation, Counting::Ignored, &cause)
        }
        Do::RestartJob | Do::RecreateJob | Do::RestartJobAndIgnoreMaxRestarts => {
            restart_jobs(reconciliation, verdict)?;
            nodes::judge(reconciliation, cause.blame.as_ref());
            // The counters have to be stored before another rule decides.
            ControlFlow::Break(())
        }
        Do::RestartReplicatedJob => {
            restart_replicated_job(reconciliation, job, &cause)?;
            nodes::judge(reconciliation, cause.blame.as_ref());
            ControlFlow::Break(())
        }
        // A verdict has no Jobs with the action FailJob.
        Do::FailJob => ControlFlow::Continue(()),
    }
}

/// The rule to carry out now. Jobs with the action FailJob stay failed and need no further action.
fn judge<'a>(policy: &'a FailurePolicy, failed: Vec<FailedJob<'a>>) -> Option<PolicyVerdict<'a>> {
    let rule_of = |job: &FailedJob<'_>| job.own_rule.and_then(|index| Some((index, policy.rules.get(index)?)));
    let mut judged: Vec<_> = failed.into_iter().map(|job| (rule_of(&job), job)).collect();
    judged.retain(|(rule, _)| rule.is_none_or(|(_, rule)| rule.action != FailurePolicyAction::FailJob));
    // Jobs without a matching rule come last.
    let first = judged.iter().map(|(rule, _)| rule.map_or(usize::MAX, |(index, _)| index)).min()?;
    judged.retain(|(rule, _)| rule.map_or(usize::MAX, |(index, _)| index) == first);
    let rule = judged[0].0;
    let action = rule.map_or(FailurePolicyAction::RestartJobSet, |(_, rule)| rule.action);
    Some(PolicyVerdict { action, rule, jobs: judged.into_iter().map(|(_, job)| job).collect() })
}

/// Recreates the Jobs. One that the status has no counter for is recreated with its whole replicatedJob, because restarts
/// without a counter may never end.
fn restart_jobs(reconciliation: &mut Reconciliation<'_>, verdict: &PolicyVerdict<'_>) -> ControlFlow<()> {
    let PolicyVerdict { jobs, rule, .. } = verdict;
    let mut as_a_whole = HashSet::new();
    for job in jobs.iter().filter(|job| !has_counter(job.current.job)) {
        if as_a_whole.insert(job.current.group) {
            restart_replicated_job(reconciliation, job, &cause(job, *rule))?;
        }
    }
    for job in jobs.iter().filter(|job| has_counter(job.current.job) && !as_a_whole.contains(&job.current.group)) {
        restart_job(reconciliation, job, verdict)?;
    }
    ControlFlow::Continue(())
}

/// Recreates one Job. This raises its counter; the next reconciliation reads the counter and deletes the Job.
fn restart_job(
    reconciliation: &mut Reconciliation<'_>,
    job: &FailedJob<'_>,
    verdict: &PolicyVerdict<'_>,
) -> ControlFlow<()> {
    let cause = cause(job, verdict.rule);
    let index = usize::try_from(job.index).unwrap_or_default();
    let counted = verdict.action != FailurePolicyAction::RestartJobAndIgnoreMaxRestarts;
    if counted {
        budget::require(reconciliation, Scope::Job { replicated_job: job.replicated_job, index: job.index }, &cause)?;
    }
    let group = job.current.group;
    let ahead = ahead(reconciliation, group, [job.current.job]);
    let replicas = reconciliation.groups()[group].replicas();
    let status = &mut reconciliation.status.replicated_jobs_status[group];
    if counted {
        let spent = counter(&mut status.job_restarts_count_towards_max, index, replicas);
        *spent = spent.saturating_add(1);
    }
    let attempts = counter(&mut status.job_restarts, index, replicas);
    *attempts = attempts.saturating_add(ahead).saturating_add(1);
    // RecreateJob is another name of RestartJob.
    let action = if counted { FailurePolicyAction::RestartJob } else { verdict.action };
    begin_partial_restart(reconciliation, action, &format!("Job {}", job.current.name), &cause);
    ControlFlow::Continue(())
}

/// Whether the status has a counter of the restarts of this Job.
pub(super) fn has_counter(job: &JobView) -> bool {
    counter_of(job).is_some()
}

fn counter_of(job: &JobView) -> Option<usize> {
    usize::try_from(job.index?).ok().filter(|index| *index < MAX_JOB_COUNTERS)
}

/// Recreates a Job beside a restart that begins, uncounted, if the status has a counter for it, and the restart does not recreate it anyway.
pub(super) fn recreate_uncounted(reconciliation: &mut Reconciliation<'_>, current: &Current<'_>) {
    let Some(index) = counter_of(current.job).filter(|_| reconciliation.is_current(current.job)) else { return };
    let ahead = ahead(reconciliation, current.group, [current.job]);
    let replicas = reconciliation.groups()[current.group].replicas();
    let status = &mut reconciliation.status.replicated_jobs_status[current.group];
    let attempts = counter(&mut status.job_restarts, index, replicas);
    *attempts = attempts.saturating_add(ahead).saturating_add(1);
}

/// Recreates the Jobs of one replicatedJob. This raises its counter; the next reconciliation reads the counter and deletes
/// the Jobs.
fn restart_replicated_job(
    reconciliation: &mut Reconciliation<'_>,
    job: &FailedJob<'_>,
    cause: &Cause,
) -> ControlFlow<()> {
    budget::require(reconciliation, Scope::ReplicatedJob(job.replicated_job), cause)?;
    let group = job.current.group;
    let ahead = ahead(reconciliation, group, reconciliation.jobs_of(group).map(|current| current.job));
    let status = &mut reconciliation.status.replicated_jobs_status[group];
    status.restarts_count_towards_max = status.restarts_count_towards_max.saturating_add(1);
    status.restarts = status.restarts.saturating_add(ahead).saturating_add(1);
    let what = format!("the Jobs of replicatedJob {}", job.replicated_job);
    begin_partial_restart(reconciliation, FailurePolicyAction::RestartReplicatedJob, &what, cause);
    ControlFlow::Continue(())
}

/// Announces that Jobs are recreated. The workers of the other Jobs restart in place, because they cannot go on without those. This
/// belongs to a restart that has been counted already.
fn begin_partial_restart(
    reconciliation: &mut Reconciliation<'_>,
    action: FailurePolicyAction,
    what: &str,
    cause: &Cause,
) {
    let Cause { reason, message, trigger, failed_at, .. } = cause;
    if epochs::deprecate(reconciliation, true) {
        reconciliation.status.group_restarts = reconciliation.status.group_restarts.saturating_add(1);
        let message = format!("the others restart in place: {message}");
        reconciliation.set_condition(conditions::RESTARTING, reason, &message);
    }
    let (event, counted) = match action {
        FailurePolicyAction::RestartReplicatedJob => (event::RESTART_REPLICATED_JOB, true),
        FailurePolicyAction::RestartJobAndIgnoreMaxRestarts => (event::RESTART_JOB_UNCOUNTED, false),
        _ => (event::RESTART_JOB, true),
    };
    reconciliation.warn(event, format!("recreating {what}: {message}"));
    let (strategy, trigger, failed_at) = (reconciliation.recreation(), *trigger, *failed_at);
    reconciliation.facts.push(Fact::RestartBegan { strategy, action, counted, trigger, failed_at });
}

/// By how many attempts these Jobs are ahead of the status. A restart must use a higher attempt: otherwise it would keep the
/// Jobs, and the rule would repeat the restart forever.
fn ahead<'a>(reconciliation: &Reconciliation<'_>, group: usize, jobs: impl IntoIterator<Item = &'a JobView>) -> i32 {
    let status = &reconciliation.status.replicated_jobs_status[group];
    let ahead = |job: &JobView| job.job_attempt.saturating_sub(status.job_attempt(job.index.unwrap_or(-1)));
    jobs.into_iter().map(ahead).max().unwrap_or(0).max(0)
}

/// The counter with this index, in a replicatedJob of `replicas` Jobs.
fn counter(counters: &mut Vec<i32>, index: usize, replicas: i32) -> &mut i32 {
    if counters.len() <= index {
        counters.resize(index + 1, 0);
    }
    pad(counters, replicas);
    &mut counters[index]
}

/// Extends the counters of single Jobs, if there are any, to one for each Job. The Go JobSet may read this status later, and
/// its reconciliation fails if a counter is missing.
pub(super) fn pad(counters: &mut Vec<i32>, replicas: i32) {
    let length = usize::try_from(replicas).unwrap_or_default().min(MAX_JOB_COUNTERS);
    if !counters.is_empty() && counters.len() < length {
        counters.resize(length, 0);
    }
}

/// Whether the failure has been counted by an in-place restart that is under way: the message of the Job names a Pod whose
/// failure began that restart.
fn already_counted(reconciliation: &Reconciliation<'_>, job: &FailedJob<'_>) -> bool {
    let epochs = Epochs::of(&reconciliation.status);
    let names = |pods: &JobPods| pods.broken_in(epochs.synced).any(|worker| job.message.contains(&worker.pod));
    reconciliation.in_place() && epochs.is_over() && epochs.free == 0 && job.current.pods.is_some_and(names)
}

/// The failed Jobs, the earliest first, ties by name.
fn failed_jobs<'a>(reconciliation: &Reconciliation<'a>) -> Vec<FailedJob<'a>> {
    let groups = reconciliation.groups();
    let failed = reconciliation.current.iter().filter_map(|current| {
        let Current { job, group, .. } = *current;
        let Some(Finished::Failed { reason, message, at }) = &job.finished else { return None };
        let (replicated_job, index) = (groups[group].name.as_str(), job.index.unwrap_or(-1));
        let reason = custom_reason(&groups[group], reason, message).unwrap_or(reason);
        let own_rule = reconciliation.observed.entry.own_rule(job);
        Some(FailedJob { current: *current, at: *at, replicated_job, index, reason, message, own_rule })
    });
    let mut failed: Vec<FailedJob<'a>> = failed.collect();
    failed.sort_by_key(|job| (job.at, job.current.name));
    failed
}

fn cause(job: &FailedJob<'_>, rule: Option<(usize, &FailurePolicyRule)>) -> Cause {
    let (reason, message) = match rule {
        Some((index, rule)) => {
            let name = rule.condition_name(index);
            (format!("{}{name}", conditions::FAILURE_POLICY_RULE), format!("{}; rule {name}", describe(job)))
        }
        None => (conditions::DEFAULT_FAILURE_POLICY.to_owned(), describe(job)),
    };
    // The Job fails once its Pods have ended, after their grace period.
    let ended_at = worker(job).and_then(ended_at).map_or(job.at, |ended| ended.min(job.at));
    Cause { reason, message, trigger: Trigger::JobFailed, failed_at: Some(ended_at), is_loss: false, blame: None }
}

fn describe(job: &FailedJob<'_>) -> String {
    let worker = worker(job).and_then(|pod| Some((pod, pod.failure.as_ref().filter(|it| it.is_known())?)));
    let worker = worker.map(|(pod, failure)| {
        let node = node_name(pod.node.as_ref());
        format!("; Pod {} on node {node} failed, {failure}", pod.name)
    });
    format!("Job {} failed ({}: {}){}", job.current.name, job.reason, job.message, worker.unwrap_or_default())
}

/// The Pod of the worker that failed the Job: one that the message of the Job names, or else the one that ended first, before
/// anybody deleted it. A Job past its deadline has no such Pod.
fn worker<'a>(job: &FailedJob<'a>) -> Option<&'a PodView> {
    if job.reason == "DeadlineExceeded" {
        return None;
    }
    let pods = job.current.pods?.failed_last();
    let candidates = pods.map(|pod| (!job.message.contains(&pod.name), was_asked(pod), pod));
    let candidates = candidates.filter(|(unnamed, asked, _)| !unnamed || !asked);
    let rank = |pod: &'a PodView| (ended_at(pod).is_none(), ended_at(pod), &pod.name);
    candidates.min_by_key(|(unnamed, _, pod)| (*unnamed, rank(pod))).map(|(.., pod)| pod)
}

/// On whom the failure of the Job is blamed: its worker, unless another one may have failed before.
fn blamed(reconciliation: &Reconciliation<'_>, job: &FailedJob<'_>) -> Option<Blame> {
    let worker = worker(job)?;
    let failed = reconciliation.current.iter().filter_map(|current| current.pods).flat_map(JobPods::failed_last);
    let others = failed.filter(|pod| pod.uid != worker.uid && !was_asked(pod));
    let ends = iter::once(worker).chain(others).map(|pod| WorkerEnd::of_pod(pod, Trigger::JobFailed)).collect();
    // Jobs may have failed long before, and stay. A worker that restarts in place may have failed before this one.
    let is_old = |blame: &Blame| blame.pod != worker.name && blame.trigger == Trigger::JobFailed;
    blame::of(reconciliation, ends).filter(|blame| !is_old(blame))
}

fn ended_at(pod: &PodView) -> Option<Timestamp> {
    pod.failure.as_ref()?.finished_at()
}
