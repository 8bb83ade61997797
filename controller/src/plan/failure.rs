//! The failure policy (KEP-262): what a failed Job leads to.

use std::ops::ControlFlow;

use jobset_api::{FailurePolicy, FailurePolicyAction, FailurePolicyRule, ReplicatedJob, Scope};
use jobset_api::{conditions, message_pattern};
use k8s_openapi::jiff::Timestamp;
use regex::Regex;

use super::pass::{Current, Pass};
use super::restart::{Cause, Counting, recreate};
use super::{Fact, Trigger, budget};
use crate::store::Finished;

/// Restarts of single Jobs are counted in an array of the status, which holds as many (the Go JobSet's limit).
const COUNTED_ALONE: usize = 1024;

/// A failed Job of the current attempt.
#[derive(Clone, Debug, PartialEq)]
struct FailedJob<'a> {
    at: Timestamp,
    name: &'a str,
    /// Index of its replicatedJob in the specification.
    group: usize,
    replicated_job: &'a str,
    index: i32,
    reason: &'a str,
    message: &'a str,
}

/// What the policy says about the failed Jobs.
struct Verdict<'a> {
    action: FailurePolicyAction,
    /// Index and rule; none for the default action.
    rule: Option<(usize, &'a FailurePolicyRule)>,
    /// The Jobs that it is about, the earliest first.
    jobs: Vec<FailedJob<'a>>,
}

/// Carries out the first rule that any failed Job matches, for the earliest of the Jobs that match it, ties by name.
/// Where none matches, the JobSet is restarted; where there is no policy at all, it fails.
pub(super) fn apply_policy(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let failed = failed_jobs(pass);
    let Some(first) = failed.first() else { return ControlFlow::Continue(()) };
    let Some(policy) = &pass.seen.jobset.spec.failure_policy else {
        let message = format!("{}; there is no failure policy", describe(first));
        return pass.fail(conditions::FAILED_JOBS, message);
    };
    let Some(verdict) = judge(policy, failed) else { return ControlFlow::Continue(()) };
    carry_out(pass, &verdict)
}

fn carry_out(pass: &mut Pass<'_>, verdict: &Verdict<'_>) -> ControlFlow<()> {
    use FailurePolicyAction as Do;

    let job = &verdict.jobs[0];
    let cause = cause(job, verdict.rule);
    pass.facts.push(Fact::PolicyApplied { action: verdict.action, rule: verdict.rule.map(|(index, _)| index) });
    match verdict.action {
        Do::FailJobSet => pass.fail(conditions::FAIL_JOB_SET_ACTION, cause.message),
        Do::RestartJobSet => {
            let counting = if already_counted(pass, job) { Counting::Already } else { Counting::Counted };
            pass.warn("RestartJobSetFailurePolicyAction", cause.message.clone());
            recreate(pass, counting, &cause)
        }
        Do::RestartJobSetAndIgnoreMaxRestarts => {
            pass.warn("RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction", cause.message.clone());
            recreate(pass, Counting::Ignored, &cause)
        }
        Do::RestartJob | Do::RecreateJob | Do::RestartJobAndIgnoreMaxRestarts => {
            let counted = verdict.action != Do::RestartJobAndIgnoreMaxRestarts;
            for job in &verdict.jobs {
                restart_job(pass, job, verdict.rule, counted)?;
            }
            // The counters have to be written before anything else is decided.
            ControlFlow::Break(())
        }
        Do::RestartReplicatedJob => {
            restart_replicated_job(pass, job, &cause)?;
            ControlFlow::Break(())
        }
        // Jobs that are to stay failed are no part of a verdict.
        Do::FailJob => ControlFlow::Continue(()),
    }
}

/// The rule that is carried out now. Jobs that are to stay failed (action FailJob) are settled, and ask for nothing.
fn judge<'a>(policy: &'a FailurePolicy, failed: Vec<FailedJob<'a>>) -> Option<Verdict<'a>> {
    let patterns = message_pattern::compile_all(&policy.rules);
    let own_rule = |job: &FailedJob<'_>| {
        let rules = policy.rules.iter().zip(&patterns);
        rules
            .enumerate()
            .find(|(_, (rule, patterns))| matches(rule, patterns, job))
            .map(|(index, (rule, _))| (index, rule))
    };
    let mut judged: Vec<_> = failed.into_iter().map(|job| (own_rule(&job), job)).collect();
    judged.retain(|(rule, _)| rule.is_none_or(|(_, rule)| rule.action != FailurePolicyAction::FailJob));
    // Without a rule comes last.
    let first = judged.iter().map(|(rule, _)| rule.map_or(usize::MAX, |(index, _)| index)).min()?;
    judged.retain(|(rule, _)| rule.map_or(usize::MAX, |(index, _)| index) == first);
    let rule = judged[0].0;
    let action = rule.map_or(FailurePolicyAction::RestartJobSet, |(_, rule)| rule.action);
    Some(Verdict { action, rule, jobs: judged.into_iter().map(|(_, job)| job).collect() })
}

/// Recreates one Job: the pass that reads its counter back deletes it.
fn restart_job(
    pass: &mut Pass<'_>,
    job: &FailedJob<'_>,
    rule: Option<(usize, &FailurePolicyRule)>,
    counted: bool,
) -> ControlFlow<()> {
    let cause = cause(job, rule);
    let index = usize::try_from(job.index).unwrap_or(usize::MAX);
    if index >= COUNTED_ALONE {
        // Its restarts could not be counted, and what is not counted may never end.
        return restart_replicated_job(pass, job, &cause);
    }
    if counted {
        budget::require(pass, Scope::Job { replicated_job: job.replicated_job, index: job.index }, &cause)?;
    }
    let ahead = ahead(pass, |current| current.name == job.name);
    let replicas = pass.groups()[job.group].replicas();
    let status = &mut pass.status.replicated_jobs_status[job.group];
    if counted {
        let spent = counter(&mut status.job_restarts_count_towards_max, index, replicas);
        *spent = spent.saturating_add(1);
    }
    let attempts = counter(&mut status.job_restarts, index, replicas);
    *attempts = attempts.saturating_add(ahead).saturating_add(1);
    announce_partial_restart(pass, &cause);
    let reason =
        if counted { "RestartJobFailurePolicyAction" } else { "RestartJobAndIgnoreMaxRestartsFailurePolicyAction" };
    pass.warn(reason, format!("recreating Job {}: {}", job.name, cause.message));
    let action =
        if counted { FailurePolicyAction::RestartJob } else { FailurePolicyAction::RestartJobAndIgnoreMaxRestarts };
    push_fact(pass, action, counted, &cause);
    ControlFlow::Continue(())
}

/// Recreates the Jobs of one replicatedJob: the pass that reads its counter back deletes them.
fn restart_replicated_job(pass: &mut Pass<'_>, job: &FailedJob<'_>, cause: &Cause) -> ControlFlow<()> {
    budget::require(pass, Scope::ReplicatedJob(job.replicated_job), cause)?;
    let ahead = ahead(pass, |current| current.group == job.group);
    let status = &mut pass.status.replicated_jobs_status[job.group];
    status.restarts_count_towards_max = status.restarts_count_towards_max.saturating_add(1);
    status.restarts = status.restarts.saturating_add(ahead).saturating_add(1);
    announce_partial_restart(pass, cause);
    let message = format!("recreating the Jobs of replicatedJob {}: {}", job.replicated_job, cause.message);
    pass.warn("RestartReplicatedJobFailurePolicyAction", message);
    push_fact(pass, FailurePolicyAction::RestartReplicatedJob, true, cause);
    ControlFlow::Continue(())
}

/// In place, the workers of other Jobs cannot go on without those that are recreated: they restart where they are. That
/// is part of this restart, which has been counted.
fn announce_partial_restart(pass: &mut Pass<'_>, cause: &Cause) {
    if pass.announce_free_epoch().is_break() {
        pass.status.deprecated_epoch = pass.status.synced_epoch;
        pass.status.group_restarts = pass.status.group_restarts.saturating_add(1);
        let message = format!("the others restart in place: {}", cause.message);
        pass.set_condition(conditions::RESTARTING, true, &cause.reason, &message);
    }
}

fn push_fact(pass: &mut Pass<'_>, action: FailurePolicyAction, counted: bool, cause: &Cause) {
    let Cause { trigger, failed_at, .. } = *cause;
    pass.facts.push(Fact::RestartBegan { strategy: pass.recreation(), action, counted, trigger, failed_at });
}

/// By how many attempts these Jobs are ahead of what the status knows. A restart goes above them, or it would leave them
/// as they are, and be made again and again.
fn ahead(pass: &Pass<'_>, is_one: impl Fn(&Current<'_>) -> bool) -> i32 {
    let ahead = |current: &Current<'_>| {
        let known = pass.status.job_attempt(&current.job.replicated_job, current.job.index.unwrap_or(-1));
        current.job.job_attempt.saturating_sub(known)
    };
    pass.current.iter().filter(|current| is_one(current)).map(ahead).max().unwrap_or(0).max(0)
}

/// The counter with this index, of a replicatedJob of so many Jobs.
fn counter(counters: &mut Vec<i32>, index: usize, replicas: i32) -> &mut i32 {
    if counters.len() <= index {
        counters.resize(index + 1, 0);
    }
    pad(counters, replicas);
    &mut counters[index]
}

/// Counters of single Jobs, if there are any, are as many as the Jobs: the Go JobSet, which may go on with the status,
/// fails each reconciliation where one is missing.
pub(super) fn pad(counters: &mut Vec<i32>, replicas: i32) {
    let wanted = usize::try_from(replicas).unwrap_or_default().min(COUNTED_ALONE);
    if !counters.is_empty() && counters.len() < wanted {
        counters.resize(wanted, 0);
    }
}

/// Whether the failure has been counted as a restart in place, which is under way: the Job's message names a Pod that
/// made it begin.
fn already_counted(pass: &Pass<'_>, job: &FailedJob<'_>) -> bool {
    let status = &pass.status;
    let (synced, free) = (status.synced_epoch, status.free_epoch);
    let under_way = pass.in_place() && synced > 0 && status.deprecated_epoch == synced && free != pass.next_epoch();
    let current = pass.current.iter().find(|current| current.name == job.name);
    let pods = current.and_then(|current| current.pods);
    under_way && pods.is_some_and(|pods| pods.broken_in(synced).any(|broken| job.message.contains(&broken.pod)))
}

/// The failed Jobs, the earliest first, ties by name.
fn failed_jobs<'a>(pass: &Pass<'a>) -> Vec<FailedJob<'a>> {
    let groups = pass.groups();
    let failed = pass.current.iter().filter_map(|current| {
        let Current { name, job, group, .. } = *current;
        let Some(Finished::Failed { reason, message, at }) = &job.finished else { return None };
        let (replicated_job, index) = (groups[group].name.as_str(), job.index.unwrap_or(-1));
        let reason = users_reason(&groups[group], reason, message).unwrap_or(reason);
        Some(FailedJob { at: *at, name, group, replicated_job, index, reason, message })
    });
    let mut failed: Vec<FailedJob<'a>> = failed.collect();
    failed.sort_by_key(|job| (job.at, job.name));
    failed
}

/// The reason that the template's podFailurePolicy gives to the failure (`setConditionReason`, KEP-262). Kubernetes does
/// not know the word; which rule failed the Job stands in the message of the Job controller.
fn users_reason<'a>(group: &'a ReplicatedJob, reason: &str, message: &str) -> Option<&'a str> {
    if reason != "PodFailurePolicy" {
        return None;
    }
    let (_, index) = message.rsplit_once("rule at index ")?;
    let digits = index.find(|c: char| !c.is_ascii_digit()).unwrap_or(index.len());
    group.template.spec.pod_failure_policy.as_ref()?.reason(index[..digits].parse().ok()?)
}

/// Whether the Job meets all requirements of the rule. An empty list is no requirement.
fn matches(rule: &FailurePolicyRule, patterns: &[Option<Regex>], job: &FailedJob<'_>) -> bool {
    let any = |list: &[String], value: &str| list.is_empty() || list.iter().any(|item| item == value);
    // A pattern that does not compile matches nothing.
    let message = patterns.is_empty() || patterns.iter().flatten().any(|pattern| pattern.is_match(job.message));
    rule.targets(job.replicated_job) && any(&rule.on_job_failure_reasons, job.reason) && message
}

fn cause(job: &FailedJob<'_>, rule: Option<(usize, &FailurePolicyRule)>) -> Cause {
    let (reason, message) = match rule {
        Some((index, rule)) => {
            let name = rule.condition_name(index);
            (format!("{}{name}", conditions::FAILURE_POLICY_RULE), format!("{}; rule {name}", describe(job)))
        }
        None => (conditions::DEFAULT_FAILURE_POLICY.to_owned(), describe(job)),
    };
    Cause { reason, message, trigger: Trigger::JobFailed, failed_at: Some(job.at) }
}

fn describe(job: &FailedJob<'_>) -> String {
    format!("Job {} failed ({}: {})", job.name, job.reason, job.message)
}
