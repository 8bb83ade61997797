//! Which changes of a JobSet are allowed. The policies, the network and `managedBy` are immutable. Some annotations have
//! rules of their own. In a replicatedJob can change:
//!
//! - while the JobSet is suspended, the fields that decide where its Pods run, and, with a feature gate, requests and limits
//!   of containers ([`super::suspended`]),
//! - until the JobSet has finished, the numbers of Jobs and Pods ([`super::resize`]),
//! - nothing else ([`super::unchanged`]).

use serde_json::Value;

use super::unchanged::{AS_CREATED, AS_CREATED_OR_MORE_RESTARTS};
use super::{additional_restarts, resize, restart_budget, restart_request, suspended, unchanged};
use crate::field::{Errors, Path, shown};
use crate::gates::Gates;
use crate::{JobSet, JobSetSpec, JobSetStatus, defaults};

const MANAGED_BY: &str = "as the JobSet was created, because two controllers would work on one JobSet: delete the JobSet \
                          and create it again";
/// The immutable fields, besides `managedBy`, and what to do instead of a change.
const POLICIES: [(&str, &str); 5] = [
    ("network", AS_CREATED),
    ("successPolicy", AS_CREATED),
    ("failurePolicy", AS_CREATED_OR_MORE_RESTARTS),
    ("startupPolicy", AS_CREATED),
    ("volumeClaimPolicies", AS_CREATED),
];
const WHILE_IT_RUNS: &str = "while the JobSet runs: set spec.suspend to true with this change or before it";

/// Rejects changes that the controller does not execute.
pub(super) fn check(old: &JobSet, new: &JobSet, gates: Gates, spec: &Path<'_>, errors: &mut Errors) {
    let [managed_before, managed_after] = [old, new].map(|it| it.spec.managed_by.as_deref().map(Value::from));
    unchanged::compare(managed_before.as_ref(), managed_after.as_ref(), &spec.child("managedBy"), MANAGED_BY, errors);
    check_policies(&old.spec, &new.spec, spec, errors);
    restart_budget::check_update(old, new, AS_CREATED, errors);
    additional_restarts::check_update(old, new, errors);
    restart_request::check_update(old, new, errors);
    let path = spec.child("replicatedJobs");
    let (before, after) = (&old.spec.replicated_jobs, &new.spec.replicated_jobs);
    let [names_before, names_after] = [before, after].map(|it| it.iter().map(|it| &*it.name).collect::<Vec<_>>());
    if names_before != names_after {
        let required =
            format_args!("field is immutable: must stay {}, in this order, {AS_CREATED}", shown(&names_before));
        errors.invalid(&path, names_after, required);
        return;
    }
    // The update that suspends the JobSet counts as suspended, as in the Go JobSet: Kueue restores these fields with
    // it.
    let is_suspended = old.spec.is_suspended() || new.spec.is_suspended();
    let finished = old.status.as_ref().is_some_and(JobSetStatus::is_finished);
    for (index, (before, after)) in before.iter().zip(after).enumerate() {
        if before == after {
            continue;
        }
        let path = path.index(index);
        let mut resized = before.clone();
        let last = index + 1 == new.spec.replicated_jobs.len();
        let scope = resize::ResizeScope { elastic: gates.elastic_job_set, finished, last };
        resize::take_over(&mut resized, after, scope, &path, errors);
        let mut moved = resized.clone();
        suspended::take_over(&mut moved.template.spec.template, &after.template.spec.template);
        if !is_suspended {
            unchanged::check(&resized, &moved, &path, WHILE_IT_RUNS, errors);
        }
        let mut sized = moved.clone();
        suspended::take_over_resources(&mut sized.template.spec.template, &after.template.spec.template);
        if !gates.mutable_pod_resources_for_suspended_job_sets {
            unchanged::check(&moved, &sized, &path, suspended::RESOURCES_GATE_OFF, errors);
        } else if !is_suspended {
            unchanged::check(&moved, &sized, &path, WHILE_IT_RUNS, errors);
        }
        unchanged::check(&sized, after, &path, AS_CREATED, errors);
    }
}

/// Rejects changes of the [`POLICIES`]. The rules of the CRD's schema reject other values, too, but not a policy that is
/// added or removed. A default that is added or removed changes nothing.
fn check_policies(old: &JobSetSpec, new: &JobSetSpec, spec: &Path<'_>, errors: &mut Errors) {
    let (old, new) = (policies(old), policies(new));
    if old == new {
        return;
    }
    let [old, new] = [old, new].map(|policies| serde_json::to_value(defaults::apply(&policies)).unwrap_or_default());
    for (field, reason) in POLICIES {
        unchanged::compare(old.get(field), new.get(field), &spec.child(field), reason, errors);
    }
}

fn policies(spec: &JobSetSpec) -> JobSetSpec {
    JobSetSpec {
        network: spec.network.clone(),
        success_policy: spec.success_policy.clone(),
        failure_policy: spec.failure_policy.clone(),
        startup_policy: spec.startup_policy.clone(),
        volume_claim_policies: spec.volume_claim_policies.clone(),
        ..JobSetSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{Changes, assert_one, changed, in_place, jobset, read};
    use super::super::validate_update;
    use crate::gates::Gates;

    const JOB: &str = "/spec/replicatedJobs/1/template/spec";
    const SUSPEND: &str = "/spec/suspend";

    fn errors(old: &Value, changes: Changes<'_>) -> Vec<String> {
        let new = changed(old.clone(), changes);
        validate_update(&read(old), &read(&new), Gates::default()).iter().map(ToString::to_string).collect()
    }

    #[rstest]
    #[case::default_removed(&[("/spec/successPolicy", Value::Null)])]
    #[case::default_added(&[("/spec/network", json!({ "enableDNSHostnames": true }))])]
    fn update_outside_job_template_is_accepted(#[case] changes: Changes<'_>) {
        assert_eq!(errors(&jobset(&[]), changes), Vec::<String>::new());
    }

    #[rstest]
    #[case::group(&[("/spec/replicatedJobs/1/groupName", json!("g"))], r#"spec.replicatedJobs[1].groupName: Invalid value: "g": field is immutable: must stay absent, as the JobSet was created"#)]
    #[case::max_restarts(
        &[("/spec/failurePolicy/maxRestarts", json!(9))],
        "spec.failurePolicy.maxRestarts: Invalid value: 9: field is immutable: must stay 3, as the JobSet was created: delete the JobSet and create it again, or allow more restarts with the annotation jobset.sigs.k8s.io/additional-restarts"
    )]
    #[case::success_policy(&[("/spec/successPolicy/operator", json!("Any"))], r#"spec.successPolicy.operator: Invalid value: "Any": field is immutable: must stay "All", as the JobSet was created: delete the JobSet and create it again"#)]
    #[case::startup_policy_added(&[("/spec/startupPolicy", json!({ "startupPolicyOrder": "InOrder" }))], r#"spec.startupPolicy.startupPolicyOrder: Invalid value: "InOrder": field is immutable: must stay "AnyOrder""#)]
    #[case::network_added(&[("/spec/network", json!({ "subdomain": "a" }))], r#"spec.network.subdomain: Invalid value: "a": field is immutable: must stay absent"#)]
    #[case::image(
        &[("/spec/replicatedJobs/1/template/spec/template/spec/containers/0/image", json!("main:2"))],
        r#"spec.replicatedJobs[1].template.spec.template.spec.containers[0].image: Invalid value: "main:2": field is immutable: must stay "main:1", as the JobSet was created: delete the JobSet"#
    )]
    fn update_of_job_template_is_rejected(#[case] changes: Changes<'_>, #[case] expected: &str) {
        assert_one(&errors(&jobset(&[]), changes), expected);
        // The same while suspended.
        assert_one(&errors(&jobset(&[(SUSPEND, json!(true))]), changes), expected);
    }

    #[test]
    fn update_of_other_field_ignores_previous_errors() {
        let old = in_place(&[(&format!("{JOB}/backoffLimit"), json!(6)), ("/metadata/name", json!("a.b"))]);
        assert_eq!(errors(&old, &[(SUSPEND, json!(true))]), Vec::<String>::new());
        assert_eq!(errors(&old, &[("/spec/replicatedJobs/1/replicas", json!(3))]), Vec::<String>::new());
        let worse = errors(&old, &[("/spec/replicatedJobs/1/replicas", json!(-3))]);
        assert_one(&worse, "spec.replicatedJobs[1].replicas: Invalid value: -3: must not be negative");
    }

    #[test]
    fn update_suspend_resume_resize_of_invalid_stored_jobset_is_accepted() {
        let stages = json!([{ "name": "driver", "status": "Ready" }]);
        let old = in_place(&[
            (&format!("{JOB}/template/spec/restartPolicy"), json!("OnFailure")),
            ("/spec/replicatedJobs/1/dependsOn", stages),
            ("/spec/replicatedJobs/0/template/spec/completionMode", json!("NonIndexed")),
            ("/spec/coordinator", json!({ "replicatedJob": "driver" })),
            ("/spec/failurePolicy/rules/0/onJobFailureMessagePatterns", json!(["("])),
        ]);
        let suspended = changed(old.clone(), &[(SUSPEND, json!(true))]);
        assert_eq!(errors(&old, &[(SUSPEND, json!(true))]), Vec::<String>::new());
        assert_eq!(errors(&suspended, &[(SUSPEND, json!(false))]), Vec::<String>::new());
        assert_eq!(errors(&old, &[("/spec/replicatedJobs/1/replicas", json!(3))]), Vec::<String>::new());
    }

    #[test]
    fn update_with_more_previous_errors_than_reported_ignores_them() {
        let pods = vec![json!({ "name": "main", "volumeMounts": [{ "name": "data", "mountPath": "/a" }] }); 40];
        let containers = format!("{JOB}/template/spec/containers");
        let old = jobset(&[(&containers, json!(pods)), ("/spec/coordinator", json!({ "replicatedJob": "nobody" }))]);
        assert_eq!(errors(&old, &[("/spec/coordinator/replicatedJob", json!("driver"))]), Vec::<String>::new());
        let worse = errors(&old, &[("/spec/replicatedJobs/1/replicas", json!(-3))]);
        assert!(worse.len() == 1 && worse[0].contains("must not be negative"), "{worse:?}");
        // A new error after the last one that fits into the list is reported, too.
        let annotations = json!({ "alpha.jobset.sigs.k8s.io/exclusive-topology": "" });
        let worse = errors(
            &old,
            &[("/spec/coordinator/replicatedJob", json!("driver")), ("/metadata/annotations", annotations)],
        );
        assert!(worse.len() == 1 && worse[0].contains("must be the key of a label"), "{worse:?}");
    }

    #[test]
    fn update_adding_annotation_without_label_key_is_rejected() {
        let old = jobset(&[(&format!("{JOB}/completionMode"), json!("NonIndexed"))]);
        let annotation = json!({ "alpha.jobset.sigs.k8s.io/exclusive-topology": "" });
        let errors = errors(&old, &[("/metadata/annotations", annotation)]);
        assert!(errors.iter().any(|error| error.contains("must be the key of a label")), "{errors:?}");
    }

    #[test]
    fn update_suspend_with_gate_off_is_accepted() {
        let (old, off) = (in_place(&[]), Gates { in_place_restart: false, ..Gates::default() });
        let new = changed(old.clone(), &[(SUSPEND, json!(true))]);
        assert_eq!(validate_update(&read(&old), &read(&new), off).to_string(), "");
        let other = jobset(&[]);
        assert_ne!(validate_update(&read(&other), &read(&new), off).to_string(), "");
    }
}
