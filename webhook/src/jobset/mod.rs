//! What admission decides about a JobSet. Pure: a request comes in, an object or errors go out.

pub mod defaults;
pub mod immutable;
pub mod in_place;

use jobset_api::JobSet;
use kube::core::admission::{AdmissionRequest, Operation};

use crate::field::{Errors, Path};

/// The JobSet with its defaults, or `None` where nothing is to be defaulted.
///
/// Fields are defaulted on CREATE alone: a later release that defaults one more field must not change objects that
/// exist, least of all in fields that are immutable.
pub fn mutate(request: &AdmissionRequest<JobSet>) -> Option<JobSet> {
    let jobset = reviewed(request).filter(|_| request.operation == Operation::Create)?;
    let defaulted = JobSet { spec: defaults::apply(&jobset.spec), ..jobset.clone() };
    (defaulted != *jobset).then_some(defaulted)
}

/// Everything that is wrong with the JobSet of the request.
///
/// A specification that an update leaves as it was passes, whatever is in it: rules are added over time, and an object
/// that was admitted without them can still be labelled, and lose its finalizers.
pub fn validate(request: &AdmissionRequest<JobSet>) -> Errors {
    let mut errors = Errors::default();
    let Some(jobset) = reviewed(request) else { return errors };
    let unchanged = request.old_object.as_ref().is_some_and(|old| old.spec == jobset.spec);
    if request.operation == Operation::Update && unchanged {
        return errors;
    }
    let spec = Path::root("spec");
    in_place::validate(&jobset.spec, &spec, &mut errors);
    if let Some(old) = request.old_object.as_ref().filter(|_| request.operation == Operation::Update) {
        immutable::validate(&old.spec, &jobset.spec, &spec, &mut errors);
    }
    errors
}

/// The JobSet that rules look at, if any: not in deletions and in what concerns its status only, and not when it is
/// being deleted, so that nothing ever keeps one from going away.
fn reviewed(request: &AdmissionRequest<JobSet>) -> Option<&JobSet> {
    let writes = matches!(request.operation, Operation::Create | Operation::Update);
    let whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
    let jobset = request.object.as_ref().filter(|_| writes && whole)?;
    jobset.metadata.deletion_timestamp.is_none().then_some(jobset)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// A JobSet that breaks all three rules of in-place restart, and could be defaulted.
    fn bad() -> Value {
        json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "train" }, "spec": {
            "failurePolicy": { "restartStrategy": "InPlaceRestart" },
            "replicatedJobs": [{ "name": "w", "template": { "spec": { "backoffLimit": 1, "podReplacementPolicy": "x" } } }] } })
    }

    fn request(operation: &str, object: &Value, old: &Value) -> AdmissionRequest<JobSet> {
        serde_json::from_value(json!({
            "uid": "u", "operation": operation, "userInfo": {}, "name": "train",
            "kind": { "group": "jobset.x-k8s.io", "version": "v1alpha2", "kind": "JobSet" },
            "resource": { "group": "jobset.x-k8s.io", "version": "v1alpha2", "resource": "jobsets" },
            "object": object, "oldObject": old,
        }))
        .unwrap()
    }

    fn with(pointer: &str, field: &str, value: Value) -> Value {
        let mut object = bad();
        object.pointer_mut(pointer).unwrap()[field] = value;
        object
    }

    #[rstest]
    #[case::created(request("CREATE", &bad(), &Value::Null), 3)]
    #[case::changed(request("UPDATE", &bad(), &with("/spec", "suspend", json!(true))), 3)]
    #[case::label_added(request("UPDATE", &with("/metadata", "labels", json!({ "a": "b" })), &bad()), 0)]
    #[case::being_deleted(request("UPDATE", &with("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z")), &Value::Null), 0)]
    #[case::deleted(request("DELETE", &Value::Null, &bad()), 0)]
    fn operations_decide_what_is_validated(#[case] request: AdmissionRequest<JobSet>, #[case] errors: usize) {
        assert_eq!(validate(&request).iter().count(), errors);
    }

    #[test]
    fn a_status_update_is_not_validated() {
        let mut request = request("UPDATE", &bad(), &Value::Null);
        request.sub_resource = Some("status".to_owned());
        assert!(validate(&request).is_empty());
    }

    #[test]
    fn defaults_are_for_creation_alone() {
        assert!(mutate(&request("CREATE", &bad(), &Value::Null)).is_some());
        assert!(mutate(&request("UPDATE", &bad(), &bad())).is_none());
        let defaulted = mutate(&request("CREATE", &bad(), &Value::Null)).unwrap();
        assert!(mutate(&request("CREATE", &serde_json::to_value(defaulted).unwrap(), &Value::Null)).is_none());
    }
}
