//! What admission decides about a request: which of the rules that it shares with the controller apply. Pure: a request
//! comes in, an object or errors go out.

use jobset_api::gates::Gates;
use jobset_api::validation::{self, Errors};
use jobset_api::{JobSet, defaults};
use kube::core::admission::{AdmissionRequest, Operation};

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
/// What replaces an object that cannot be read is checked as if it were new.
pub fn validate(request: &AdmissionRequest<JobSet>, gates: Gates) -> Errors {
    let Some(jobset) = reviewed(request) else { return Errors::default() };
    match &request.old_object {
        Some(old) if request.operation == Operation::Update => validation::validate_update(old, jobset, gates),
        _ => validation::validate(jobset, gates),
    }
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

    /// A JobSet that breaks rules of in-place restart, and could be defaulted.
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
    #[case::created(request("CREATE", &bad(), &Value::Null), 5)]
    #[case::replaced_what_cannot_be_read(request("UPDATE", &bad(), &Value::Null), 5)]
    #[case::became_bad(request("UPDATE", &bad(), &with("/spec", "failurePolicy", json!({}))), 5)]
    #[case::was_bad(request("UPDATE", &bad(), &with("/spec", "suspend", json!(true))), 0)]
    #[case::resized(request("UPDATE", &with("/spec/replicatedJobs/0", "replicas", json!(-1)), &bad()), 1)]
    #[case::label_added(request("UPDATE", &with("/metadata", "labels", json!({ "a": "b" })), &bad()), 0)]
    #[case::being_deleted(request("UPDATE", &with("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z")), &Value::Null), 0)]
    #[case::deleted(request("DELETE", &Value::Null, &bad()), 0)]
    fn operations_decide_what_is_validated(#[case] request: AdmissionRequest<JobSet>, #[case] errors: usize) {
        assert_eq!(validate(&request, Gates::default()).iter().count(), errors);
    }

    #[test]
    fn a_status_update_is_not_validated() {
        let mut request = request("UPDATE", &bad(), &Value::Null);
        request.sub_resource = Some("status".to_owned());
        assert!(validate(&request, Gates::default()).is_empty());
    }

    #[test]
    fn defaults_are_for_creation_alone() {
        assert!(mutate(&request("CREATE", &bad(), &Value::Null)).is_some());
        assert!(mutate(&request("UPDATE", &bad(), &bad())).is_none());
        let defaulted = mutate(&request("CREATE", &bad(), &Value::Null)).unwrap();
        assert!(mutate(&request("CREATE", &serde_json::to_value(defaulted).unwrap(), &Value::Null)).is_none());
    }
}
