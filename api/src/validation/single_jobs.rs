//! Rules of the failure policy that restart single Jobs.

use std::collections::HashMap;

use super::subject::Subject;
use crate::FailurePolicyAction::{RecreateJob, RestartJob, RestartJobAndIgnoreMaxRestarts};
use crate::FailurePolicyRule;
use crate::field::{Errors, Path};

/// Maximum number of Jobs of a replicatedJob that restart one by one. The status counts the restarts of each.
const LIMIT: i32 = 1024;

/// Rejects rules that restart a single Job while the feature gate is off. While it is on, rejects more Jobs than the
/// status has counters for.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let rules = subject.spec.failure_rules().iter().enumerate();
    let single: Vec<_> = rules.filter(|(_, rule)| restarts_single_jobs(rule)).collect();
    if !subject.gates.restart_job {
        let rules = spec.child("failurePolicy.rules");
        for (index, FailurePolicyRule { action, .. }) in single {
            let required = format_args!(
                "must not be {action:?} while the feature gate RestartJob is off: start controller and webhook with \
                 --feature-gates=RestartJob=true, or use action RestartReplicatedJob or RestartJobSet"
            );
            errors.invalid(&rules.index(index).child("action"), action, required);
        }
        return;
    }
    let single = FirstRules::of(&single);
    let path = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let replicas = replicated_job.replicas();
        if replicas <= LIMIT {
            continue;
        }
        if let Some((rule, FailurePolicyRule { action, .. })) = single.rule_for(&replicated_job.name) {
            let required = format_args!(
                "must not exceed 1024, since spec.failurePolicy.rules[{rule}] restarts single Jobs of it: choose action \
                 RestartReplicatedJob or RestartJobSet instead of {action:?}, or other targetReplicatedJobs"
            );
            errors.invalid(&path.index(index).child("replicas"), replicas, required);
        }
    }
}

/// The first rule for each replicatedJob, with its index.
struct FirstRules<'a> {
    by_target: HashMap<&'a str, (usize, &'a FailurePolicyRule)>,
    without_targets: Option<(usize, &'a FailurePolicyRule)>,
}

impl<'a> FirstRules<'a> {
    fn of(rules: &[(usize, &'a FailurePolicyRule)]) -> Self {
        let mut first = Self { by_target: HashMap::new(), without_targets: None };
        for (index, rule) in rules.iter().copied() {
            if rule.target_replicated_jobs.is_empty() {
                first.without_targets.get_or_insert((index, rule));
            }
            for target in &rule.target_replicated_jobs {
                first.by_target.entry(target).or_insert((index, rule));
            }
        }
        first
    }

    fn rule_for(&self, replicated_job: &str) -> Option<(usize, &'a FailurePolicyRule)> {
        let targeted = self.by_target.get(replicated_job).copied();
        targeted.into_iter().chain(self.without_targets).min_by_key(|(index, _)| *index)
    }
}

fn restarts_single_jobs(rule: &FailurePolicyRule) -> bool {
    matches!(rule.action, RestartJob | RestartJobAndIgnoreMaxRestarts | RecreateJob)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::testing::{assert_one, jobset, read};
    use super::super::validate_create;
    use crate::gates::Gates;

    const RULES: &str = "/spec/failurePolicy/rules";

    #[rstest]
    #[case("RestartJob")]
    #[case("RestartJobAndIgnoreMaxRestarts")]
    #[case("RecreateJob")]
    fn single_job_action_with_gate_off_is_rejected(#[case] action: &str) {
        let object = jobset(&[(RULES, json!([{ "action": "FailJob" }, { "action": action }]))]);
        let off = Gates { restart_job: false, ..Gates::default() };
        let errors: Vec<_> = validate_create(&read(&object), off).iter().map(ToString::to_string).collect();
        let expected = format!("spec.failurePolicy.rules[1].action: Invalid value: \"{action}\": must not be {action}");
        assert_one(&errors, &expected);
        assert!(errors[0].contains("--feature-gates=RestartJob=true"), "{errors:?}");
    }
}
