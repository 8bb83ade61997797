//! Rules that restart single Jobs.

use super::field::{Errors, Path};
use super::subject::Subject;
use crate::FailurePolicyAction::{RecreateJob, RestartJob, RestartJobAndIgnoreMaxRestarts};
use crate::FailurePolicyRule;

/// Most Jobs of a replicatedJob that are restarted one by one: the status counts the restarts of each.
const LIMIT: i32 = 1024;

/// Refuses more Jobs than the status can count the restarts of, where a rule may restart one alone.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let rules = subject.spec.failure_policy.iter().flat_map(|policy| &policy.rules).enumerate();
    let single: Vec<_> = rules.filter(|(_, rule)| restarts_single_jobs(rule)).collect();
    let path = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let replicas = replicated_job.replicas();
        if replicas <= LIMIT {
            continue;
        }
        if let Some((rule, FailurePolicyRule { action, .. })) =
            single.iter().find(|(_, rule)| rule.targets(&replicated_job.name))
        {
            let required = format_args!(
                "must not exceed 1024, since spec.failurePolicy.rules[{rule}] restarts single Jobs of it: choose action \
                 RestartReplicatedJob or RestartJobSet instead of {action:?}, or other targetReplicatedJobs"
            );
            errors.invalid(&path.index(index).child("replicas"), replicas, required);
        }
    }
}

fn restarts_single_jobs(rule: &FailurePolicyRule) -> bool {
    matches!(rule.action, RestartJob | RestartJobAndIgnoreMaxRestarts | RecreateJob)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::testing::{accepts, refuses};

    const REPLICAS: &str = "/spec/replicatedJobs/1/replicas";
    const RULES: &str = "/spec/failurePolicy/rules";

    #[rstest]
    #[case::as_many_as_are_counted(1024, "RestartJob", &[])]
    #[case::other_target(1025, "RestartJob", &["driver"])]
    #[case::whole_group(1025, "RestartReplicatedJob", &["workers"])]
    #[case::whole_jobset(1025, "RestartJobSet", &[])]
    #[case::left_failed(1025, "FailJob", &[])]
    fn jobs_that_can_be_counted_are_accepted(#[case] replicas: i32, #[case] action: &str, #[case] targets: &[&str]) {
        accepts(&[
            (REPLICAS, json!(replicas)),
            (RULES, json!([{ "action": action, "targetReplicatedJobs": targets }])),
        ]);
    }

    #[rstest]
    #[case::all("RestartJob", &[])]
    #[case::target("RestartJobAndIgnoreMaxRestarts", &["driver", "workers"])]
    #[case::the_name_in_the_kep("RecreateJob", &["workers"])]
    fn more_jobs_than_the_status_counts_are_refused(#[case] action: &str, #[case] targets: &[&str]) {
        let rules = json!([{ "action": "FailJob" }, { "action": action, "targetReplicatedJobs": targets }]);
        let expected = "spec.replicatedJobs[1].replicas: Invalid value: 1025: must not exceed 1024, since \
                        spec.failurePolicy.rules[1] restarts single Jobs";
        refuses(&[(REPLICAS, json!(1025)), (RULES, rules)], expected);
    }
}
