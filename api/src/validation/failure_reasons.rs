//! Failure reasons of Jobs: those of Kubernetes, and those of `setConditionReason` (KEP-262).

use std::collections::BTreeSet;

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::syntax;
use crate::{FailurePolicyRule, ReplicatedJob, conditions};

/// Reasons of the Job condition Failed in Kubernetes 1.36.
const OF_KUBERNETES: [&str; 5] =
    ["BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"];
/// Reason that the controller gives when the group restarts because no worker makes progress. No Job has it.
const OF_STALLS: &str = conditions::PROGRESS_STALLED;
/// Action of a podFailurePolicy that fails the Job.
const FAIL_JOB: &str = "FailJob";
/// Maximum number of given reasons that an error lists.
const LISTED: usize = 20;
/// Maximum number of characters of a condition reason.
const LENGTH: usize = 1024;

const ACTION: &str = "may be set with action FailJob alone: no other action fails the Job for this reason";
const NOT_OF_KUBERNETES: &str = "must not be a reason that Kubernetes itself gives to failed Jobs: choose another name";

/// Rejects reasons that no Job of the rule's targets can have, and values of `setConditionReason` that no Job can have.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let path = spec.child("failurePolicy.rules");
    let given = GivenReasons::of(&subject.spec.replicated_jobs);
    for (index, rule) in subject.spec.failure_rules().iter().enumerate() {
        matched_reasons(subject, rule, &given, &path.index(index), errors);
    }
    let path = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        given_reasons(replicated_job, &path.index(index), errors);
    }
}

/// The reasons of `setConditionReason`: all of them, and those of each replicatedJob.
struct GivenReasons<'a> {
    all: BTreeSet<&'a str>,
    of: Vec<BTreeSet<&'a str>>,
}

impl<'a> GivenReasons<'a> {
    fn of(replicated_jobs: &'a [ReplicatedJob]) -> Self {
        let of: Vec<BTreeSet<_>> = replicated_jobs.iter().map(|it| set_reasons(it).collect()).collect();
        Self { all: of.iter().flatten().copied().collect(), of }
    }
}

/// Checks the reasons of a rule of the failure policy.
fn matched_reasons(
    subject: &Subject<'_>,
    rule: &FailurePolicyRule,
    given: &GivenReasons<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let known = |reason: &str| OF_KUBERNETES.contains(&reason) || reason == OF_STALLS;
    let reasons = rule.on_job_failure_reasons.iter().enumerate().filter(|(_, reason)| !known(reason));
    let reasons: Vec<_> = reasons.collect();
    let targets: BTreeSet<usize> =
        rule.target_replicated_jobs.iter().filter_map(|target| subject.place(target)).collect();
    let of_targets = || targets.iter().filter_map(|place| given.of.get(*place));
    // Of two ways to look the reasons up, the shorter one: many rules may have few, or few rules many.
    let (each, union) = (reasons.len() * targets.len(), of_targets().map(BTreeSet::len).sum::<usize>());
    let union: Option<BTreeSet<&str>> = (union < each).then(|| of_targets().flatten().copied().collect());
    let path = path.child("onJobFailureReasons");
    for (index, reason) in reasons {
        let reason = reason.as_str();
        let is_given = match &union {
            _ if rule.target_replicated_jobs.is_empty() => given.all.contains(reason),
            Some(union) => union.contains(reason),
            None => of_targets().any(|reasons| reasons.contains(reason)),
        };
        if !is_given {
            let listed = if rule.target_replicated_jobs.is_empty() { Some(&given.all) } else { of_targets().next() };
            errors.not_supported(&path.index(index), reason, supported(listed));
        }
    }
}

/// The supported reasons: those of Kubernetes, that of stalls, and the first of the given ones.
fn supported(given: Option<&BTreeSet<&str>>) -> String {
    let given = given.into_iter().flatten().copied().take(LISTED);
    let reasons: BTreeSet<&str> = given.chain(OF_KUBERNETES).chain([OF_STALLS]).collect();
    let list = reasons.iter().map(|reason| format!("\"{reason}\"")).collect::<Vec<_>>().join(", ");
    format!("{list}, and what podFailurePolicy.rules[].setConditionReason of the targets gives")
}

/// The values of `setConditionReason` in a Job template.
fn set_reasons(replicated_job: &ReplicatedJob) -> impl Iterator<Item = &str> {
    let rules = replicated_job.template.spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    rules.filter_map(|rule| rule.set_condition_reason.as_deref()).filter(|reason| !reason.is_empty())
}

/// Checks the values of `setConditionReason` in a Job template.
fn given_reasons(replicated_job: &ReplicatedJob, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("template.spec.podFailurePolicy.rules");
    let rules = replicated_job.template.spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    for (index, rule) in rules.enumerate() {
        let Some(reason) = rule.set_condition_reason.as_deref().filter(|reason| !reason.is_empty()) else { continue };
        let path = path.index(index);
        let path = path.child("setConditionReason");
        if !syntax::is_condition_reason(reason) || reason.len() > LENGTH {
            errors.invalid(&path, reason, format_args!("{}, at most 1024 characters", syntax::CONDITION_REASON));
        } else if OF_KUBERNETES.contains(&reason) {
            errors.invalid(&path, reason, NOT_OF_KUBERNETES);
        }
        if rule.action != FAIL_JOB {
            errors.forbidden(&path, ACTION);
        }
    }
}
