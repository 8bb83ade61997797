//! Reasons of failures (KEP-262) in the Pod failure policies of Jobs. Rules of `batch/v1` have none. So Kueue, which writes the list
//! of replicatedJobs as its own Go types have it, omits them when it admits a JobSet. Nobody can change them.

use super::agents::Stored;
use crate::{JobSetSpec, PodFailurePolicyRule};

/// Adds the stored `setConditionReason` to rules that are the stored ones without it.
pub(super) fn name(full: &mut JobSetSpec, stored: &Stored<'_>) {
    for job in &mut full.replicated_jobs {
        let stored = stored.get(job.name.as_str()).and_then(|stored| stored.pod_failure_policy.as_ref());
        let (Some(policy), Some(stored)) = (&mut job.template.spec.pod_failure_policy, stored) else { continue };
        let unnamed = |rule: &PodFailurePolicyRule| PodFailurePolicyRule { set_condition_reason: None, ..rule.clone() };
        if policy.rules.iter().cloned().eq(stored.rules.iter().map(unnamed)) {
            policy.rules.clone_from(&stored.rules);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::tests::{JOB, read, stored, updated, with};

    #[rstest]
    #[case::of_all_rules(&[])]
    #[case::of_none_where_a_rule_has_changed(&[("/rules/1/onExitCodes/values", json!([3]))])]
    #[case::of_none_where_one_is_kept(&[("/rules/0/setConditionReason", json!("Repeat"))])]
    fn restore_reason_unknown_to_kueue(#[case] changes: &[(&str, Value)]) {
        let exit_codes = |code: i32| json!({ "operator": "In", "values": [code] });
        let rules = json!([
            { "action": "FailJob", "onExitCodes": exit_codes(1), "setConditionReason": "Repeat" },
            { "action": "FailJob", "onExitCodes": exit_codes(2) },
            { "action": "FailJob", "onExitCodes": exit_codes(42), "setConditionReason": "Broken" },
        ]);
        let old = with(&stored("Sidecar").0, &format!("{JOB}/podFailurePolicy"), json!({ "rules": rules }));
        let without = |object: &Value, rule: usize| {
            with(object, &format!("{JOB}/podFailurePolicy/rules/{rule}/setConditionReason"), Value::Null)
        };
        let sent = changes.iter().fold(without(&without(&old, 0), 2), |it, (at, value)| {
            with(&it, &format!("{JOB}/podFailurePolicy{at}"), value.clone())
        });
        let expected = if changes.is_empty() { &old } else { &sent };
        assert_eq!(updated(&read(&old), &read(&sent)), expected["spec"]);
    }
}
