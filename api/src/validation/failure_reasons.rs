//! Failure reasons of Jobs: those of Kubernetes, and those of `setConditionReason` (KEP-262).

use std::collections::BTreeSet;

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::syntax;
use crate::{FailurePolicyRule, ReplicatedJob};

/// Reasons of the Job condition Failed in Kubernetes 1.36.
const OF_KUBERNETES: [&str; 5] =
    ["BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"];
/// Action of a podFailurePolicy that fails the Job.
const FAIL_JOB: &str = "FailJob";
/// Maximum number of characters of a condition reason.
const LENGTH: usize = 1024;

const ACTION: &str = "may be set with action FailJob alone: no other action fails the Job for this reason";
const NOT_OF_KUBERNETES: &str = "must not be a reason that Kubernetes itself gives to failed Jobs: choose another name";

/// Rejects reasons that no Job of the rule's targets can have, and values of `setConditionReason` that no Job can have.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let path = spec.child("failurePolicy.rules");
    for (index, rule) in subject.spec.failure_policy.iter().flat_map(|policy| &policy.rules).enumerate() {
        matched_reasons(rule, &subject.spec.replicated_jobs, &path.index(index), errors);
    }
    let path = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        given_reasons(replicated_job, &path.index(index), errors);
    }
}

/// Checks the reasons of a rule of the failure policy.
fn matched_reasons(rule: &FailurePolicyRule, replicated_jobs: &[ReplicatedJob], path: &Path<'_>, errors: &mut Errors) {
    let known = |reason: &String| OF_KUBERNETES.contains(&reason.as_str());
    if rule.on_job_failure_reasons.iter().all(known) {
        return;
    }
    let targeted = |it: &&ReplicatedJob| rule.targets(&it.name);
    let mut supported: BTreeSet<&str> = replicated_jobs.iter().filter(targeted).flat_map(set_reasons).collect();
    supported.extend(OF_KUBERNETES);
    let path = path.child("onJobFailureReasons");
    for (index, reason) in rule.on_job_failure_reasons.iter().enumerate() {
        if !supported.contains(reason.as_str()) {
            let list = supported.iter().map(|reason| format!("\"{reason}\"")).collect::<Vec<_>>().join(", ");
            let list =
                format_args!("{list}, and what podFailurePolicy.rules[].setConditionReason of the targets gives");
            errors.not_supported(&path.index(index), reason, list);
        }
    }
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{accepts, rejects};

    const REASONS: &str = "/spec/failurePolicy/rules/0/onJobFailureReasons";
    const TARGETS: &str = "/spec/failurePolicy/rules/0/targetReplicatedJobs";
    const POLICY: &str = "/spec/replicatedJobs/1/template/spec/podFailurePolicy";

    /// The podFailurePolicy of `workers`, with one rule.
    fn policy(action: &str, reason: &str) -> (&'static str, Value) {
        (POLICY, json!({ "rules": [{ "action": action, "setConditionReason": reason }] }))
    }

    #[rstest]
    #[case::none(&[(REASONS, json!([]))])]
    #[case::of_kubernetes(&[(REASONS, json!(["BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"]))])]
    #[case::set_by_a_target(&[policy("FailJob", "ExitCode3"), (REASONS, json!(["ExitCode3"])), (TARGETS, json!(["workers"]))])]
    #[case::set_by_one_of_all(&[policy("FailJob", "ExitCode3"), (REASONS, json!(["ExitCode3", "PodFailurePolicy"])), (TARGETS, json!([]))])]
    #[case::not_set(&[policy("Ignore", "")])]
    fn failure_reason_that_jobs_can_have_is_accepted(#[case] changes: &[(&str, Value)]) {
        accepts(changes);
    }

    #[rstest]
    #[case::unknown(
        &[(REASONS, json!(["PodFailurePolicy", "Boredom"]))],
        r#"spec.failurePolicy.rules[0].onJobFailureReasons[1]: Unsupported value: "Boredom": supported values: "BackoffLimitExceeded", "DeadlineExceeded""#
    )]
    #[case::set_by_another(
        &[policy("FailJob", "ExitCode3"), (REASONS, json!(["ExitCode3"])), (TARGETS, json!(["driver"]))],
        r#"spec.failurePolicy.rules[0].onJobFailureReasons[0]: Unsupported value: "ExitCode3""#
    )]
    #[case::other_set(
        &[policy("FailJob", "ExitCode3"), (REASONS, json!(["ExitCode4"])), (TARGETS, json!([]))],
        r#"Unsupported value: "ExitCode4": supported values: "BackoffLimitExceeded", "DeadlineExceeded", "ExitCode3", "FailedIndexes""#
    )]
    #[case::malformed(
        &[policy("FailJob", "exit code 3")],
        r#"spec.replicatedJobs[1].template.spec.podFailurePolicy.rules[0].setConditionReason: Invalid value: "exit code 3": must consist of"#
    )]
    #[case::long(&[policy("FailJob", &"a".repeat(1025))], "podFailurePolicy.rules[0].setConditionReason: Invalid value")]
    #[case::of_kubernetes(&[policy("FailJob", "DeadlineExceeded")], r#"Invalid value: "DeadlineExceeded": must not be a reason that"#)]
    #[case::not_fail_job(&[policy("FailIndex", "ExitCode3")], "setConditionReason: Forbidden: may be set with action FailJob alone")]
    fn failure_reason_that_no_job_can_have_is_rejected(#[case] changes: &[(&str, Value)], #[case] expected: &str) {
        rejects(changes, expected);
    }
}
