//! The failure policy (KEP-262): what a failed Job leads to.

use std::ops::ControlFlow;

use jobset_api::{FailurePolicyAction, FailurePolicyRule, conditions};
use k8s_openapi::jiff::Timestamp;
use regex::Regex;

use super::Pass;
use super::restart::{Counting, recreate};
use crate::store::Finished;

/// A failed Job of the current attempt.
#[derive(Clone, Debug, PartialEq)]
struct FailedJob {
    at: Timestamp,
    name: String,
    replicated_job: String,
    reason: String,
    message: String,
}

/// Carries out the first rule that any failed Job matches, for the earliest of the Jobs that match it, ties by name.
/// Where none matches, the JobSet is restarted; where there is no policy at all, it fails.
pub(super) fn apply_policy(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let failed = failed_jobs(pass);
    let Some(first) = failed.first() else { return ControlFlow::Continue(()) };
    let Some(policy) = &pass.seen.jobset.spec.failure_policy else {
        let cause = describe(first);
        return pass.fail(conditions::FAILED_JOBS, format!("{cause}; there is no failure policy"));
    };
    let matched = policy.rules.iter().enumerate().find_map(|(index, rule)| {
        let job = failed.iter().find(|job| matches(rule, job))?;
        Some((index, rule, job))
    });
    let (action, cause) = match matched {
        Some((index, rule, job)) => {
            let name = rule.name.clone().unwrap_or_else(|| format!("failurePolicyRule{index}"));
            (rule.action, format!("{}; rule {name}", describe(job)))
        }
        None => (FailurePolicyAction::RestartJobSet, describe(first)),
    };
    match action {
        FailurePolicyAction::FailJobSet => pass.fail(conditions::FAIL_JOB_SET_ACTION, cause),
        FailurePolicyAction::RestartJobSetAndIgnoreMaxRestarts => recreate(pass, Counting::Ignored, &cause),
        // The remaining actions are refused before this rule is reached.
        _ => recreate(pass, Counting::Counted, &cause),
    }
}

/// The failed Jobs, the earliest first, ties by name.
fn failed_jobs(pass: &Pass<'_>) -> Vec<FailedJob> {
    let mut failed: Vec<FailedJob> = pass
        .current_jobs()
        .filter_map(|(name, job)| match &job.finished {
            Some(Finished::Failed { reason, message, at }) => Some(FailedJob {
                at: *at,
                name: name.to_owned(),
                replicated_job: job.replicated_job.clone(),
                reason: reason.clone(),
                message: message.clone(),
            }),
            _ => None,
        })
        .collect();
    failed.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
    failed
}

/// Whether the Job meets all requirements of the rule. An empty list is no requirement.
fn matches(rule: &FailurePolicyRule, job: &FailedJob) -> bool {
    let any = |list: &[String], holds: &dyn Fn(&str) -> bool| list.is_empty() || list.iter().any(|item| holds(item));
    any(&rule.target_replicated_jobs, &|target| target == job.replicated_job)
        && any(&rule.on_job_failure_reasons, &|reason| reason == job.reason)
        && any(&rule.on_job_failure_message_patterns, &|pattern| {
            Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(&job.message))
        })
}

fn describe(job: &FailedJob) -> String {
    format!("Job {} failed ({}: {})", job.name, job.reason, job.message)
}
