//! The controller that is responsible for the JobSet.

use serde_json::Map;

use super::subject::Subject;
use super::warnings::Warnings;
use crate::field::{Errors, Path};
use crate::{labels, syntax};

/// Maximum number of characters of the field.
const LENGTH: usize = 63;
/// The fields of the failure policy that Kueue 0.19 knows.
const FAILURE_POLICY_OF_KUEUE: [&str; 3] = ["maxRestarts", "restartStrategy", "rules"];
pub(super) const FORM: &str =
    "must be a domain and a path of at most 63 characters together, such as \"example.com/dispatcher\"";

/// Rejects a value that is not a valid name of a controller.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let Some(manager) = subject.spec.managed_by.as_deref() else { return };
    if !is_controller_name(manager) {
        errors.invalid(&spec.child("managedBy"), manager, FORM);
    }
}

/// Whether the text has the [`FORM`] of a controller's name.
pub(super) fn is_controller_name(name: &str) -> bool {
    let formed = name
        .split_once('/')
        .is_some_and(|(domain, path)| syntax::is_dns1123_subdomain(domain) && syntax::is_http_path(path));
    formed && name.len() <= LENGTH
}

/// Warns of fields that Kueue's MultiKueue leaves out: it creates the JobSet in the other cluster by its own Go types.
pub(super) fn warn(subject: &Subject<'_>, warnings: &mut Warnings) {
    if subject.spec.managed_by.as_deref() != Some(labels::MULTIKUEUE) {
        return;
    }
    let spec = Path::root("spec");
    let mut left_out = |path: &Path<'_>, is_set: bool| {
        if is_set {
            warnings.push(path, "Kueue 0.19 creates the JobSet in the other cluster without this field");
        }
    };
    left_out(&spec.child("activeDeadlineSeconds"), subject.spec.active_deadline_seconds.is_some());
    let policy = spec.child("failurePolicy");
    let set = serde_json::to_value(&subject.spec.failure_policy).unwrap_or_default();
    for field in set.as_object().into_iter().flat_map(Map::keys) {
        left_out(&policy.child(field), !FAILURE_POLICY_OF_KUEUE.contains(&field.as_str()));
    }
    let jobs = spec.child("replicatedJobs");
    for (index, job) in subject.spec.replicated_jobs.iter().enumerate() {
        let path = jobs.index(index);
        left_out(&path.child("replicas"), job.replicas == Some(0));
        let rules = path.child("template.spec.podFailurePolicy.rules");
        let policy = job.template.spec.pod_failure_policy.as_ref();
        for (index, rule) in policy.into_iter().flat_map(|policy| &policy.rules).enumerate() {
            left_out(&rules.index(index).child("setConditionReason"), rule.set_condition_reason.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::jobset;
    use super::super::warnings::warnings;
    use crate::labels;

    #[rstest]
    #[case::deadline("/spec/activeDeadlineSeconds", json!(60), "spec.activeDeadlineSeconds")]
    #[case::backoff(
        "/spec/failurePolicy",
        json!({ "maxRestarts": 1, "restartBackoff": { "initialSeconds": 1 } }),
        "spec.failurePolicy.restartBackoff"
    )]
    #[case::no_jobs("/spec/replicatedJobs/1/replicas", json!(0), "spec.replicatedJobs[1].replicas")]
    #[case::reason(
        "/spec/replicatedJobs/0/template/spec/podFailurePolicy",
        json!({ "rules": [
            { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [1] }, "setConditionReason": "Broken" },
        ] }),
        "spec.replicatedJobs[0].template.spec.podFailurePolicy.rules[0].setConditionReason"
    )]
    fn field_that_multikueue_leaves_out_gets_warning(#[case] at: &str, #[case] value: Value, #[case] path: &str) {
        let warnings_with = |manager: &str| {
            let object = jobset(&[("/spec/managedBy", json!(manager)), (at, value.clone())]);
            warnings(&serde_json::from_value(object).unwrap())
        };
        let expected = format!("{path}: Kueue 0.19 creates the JobSet in the other cluster without this field");
        assert_eq!(warnings_with(labels::MULTIKUEUE), [expected]);
        assert_eq!(warnings_with(labels::CONTROLLER_NAME), [""; 0]);
    }
}
