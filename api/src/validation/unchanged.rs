//! Immutable fields, compared as Kubernetes compares them.
//!
//! A client written in Go reads an object into types and writes it back. An absent value becomes an empty one
//! (`resources: {}`), an empty value becomes absent, and `1000m` becomes `1`. None of this is a change. Queueing
//! systems write JobSets in this way, and admission must accept it.

use serde_json::{Map, Value};

use crate::ReplicatedJob;
use crate::field::{Errors, Path, shown};
use crate::quantity::nanos;

/// How an immutable field must stay, and what to do instead of a change. The schema of the CRD says the same.
pub(crate) const AS_CREATED: &str = "as the JobSet was created: delete the JobSet and create it again";
/// The same for `failurePolicy`.
pub(crate) const AS_CREATED_OR_MORE_RESTARTS: &str = "as the JobSet was created: delete the JobSet and create it again, or \
                                                      allow more restarts with the annotation \
                                                      jobset.sigs.k8s.io/additional-restarts";

/// Fields that Go writes as an empty object if they are absent, or omits if they are empty.
const EMPTY_OBJECTS: [&str; 2] = ["metadata", "resources"];
/// Fields that are maps with keys of the user. Go omits empty maps.
const MAPS: [&str; 8] =
    ["annotations", "labels", "limits", "matchLabels", "nodeSelector", "options", "overhead", "requests"];
/// The maps whose values are quantities.
const QUANTITIES: [&str; 3] = ["limits", "overhead", "requests"];
/// Stands for the key of an entry of such a map.
const QUANTITY_ENTRY: &str = "{}";
/// Fields that are quantities themselves.
const QUANTITY: [&str; 3] = ["divisor", "sizeLimit", QUANTITY_ENTRY];
/// Numbers and booleans that Go omits if they are 0 or false.
const ZEROS: [&str; 13] = [
    "failureThreshold",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "initialDelaySeconds",
    "periodSeconds",
    "readOnly",
    "stdin",
    "stdinOnce",
    "successThreshold",
    "timeoutSeconds",
    "tty",
];
/// The string for which empty and absent have different meanings.
const EMPTY_TEXT: &str = "storageClassName";
/// The key of a list entry.
const ENTRY: &str = "[]";

/// Rejects each field in which `new` differs from `old`. `reason` says until when the field is immutable, and what to
/// do.
pub(super) fn check(old: &ReplicatedJob, new: &ReplicatedJob, path: &Path<'_>, reason: &str, errors: &mut Errors) {
    // The common case, and much cheaper than the full comparison.
    if old == new {
        return;
    }
    let normal = |job: &ReplicatedJob| serde_json::to_value(job).ok().and_then(|job| normal("", job));
    compare(normal(old).as_ref(), normal(new).as_ref(), path, reason, errors);
}

/// Rejects a value that differs, or its fields and entries that differ.
pub(super) fn compare(old: Option<&Value>, new: Option<&Value>, path: &Path<'_>, reason: &str, errors: &mut Errors) {
    compare_field("", old, new, path, reason, errors);
}

/// `field` is the name of the field that has the value, or [`ENTRY`], or [`QUANTITY_ENTRY`].
fn compare_field(
    field: &str,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &Path<'_>,
    reason: &str,
    errors: &mut Errors,
) {
    match (old, new) {
        (old, new) if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                let within = if QUANTITIES.contains(&field) { QUANTITY_ENTRY } else { key };
                compare_field(within, old.get(key), new.get(key), &entry(path, key), reason, errors);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                compare_field(ENTRY, Some(old), Some(new), &path.index(index), reason, errors);
            }
        }
        // An error shows both quantities as they were written.
        (Some(Value::String(old)), Some(Value::String(new))) if QUANTITY.contains(&field) && is_same(old, new) => {}
        (Some(old), new) => {
            errors.wrong(path, new, format_args!("field is immutable: must stay {}, {reason}", shown(old)));
        }
        (None, new) => errors.invalid(path, new, format_args!("field is immutable: must stay absent, {reason}")),
    }
}

/// The path of a field, or of an entry of a map. Names of fields are alphanumeric.
fn entry<'a>(path: &'a Path<'a>, key: &'a str) -> Path<'a> {
    if key.bytes().all(|byte| byte.is_ascii_alphanumeric()) { path.child(key) } else { path.key(key) }
}

/// Whether the texts stand for the same quantity.
fn is_same(one: &str, other: &str) -> bool {
    nanos(one).is_some_and(|amount| nanos(other) == Some(amount))
}

/// The value as Go writes it, with quantities as they are. `None` if Go omits it.
fn normal(key: &str, value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if MAPS.contains(&key) => (!map.is_empty()).then_some(Value::Object(map)),
        Value::Object(map) => {
            let fields = map.into_iter().filter_map(|(key, value)| normal(&key, value).map(|value| (key, value)));
            let map: Map<_, _> = fields.collect();
            (!map.is_empty() || !EMPTY_OBJECTS.contains(&key)).then_some(Value::Object(map))
        }
        // Go keeps an entry of a list even if it is empty.
        Value::Array(list) if !list.is_empty() => {
            Some(list.into_iter().map(|entry| normal(ENTRY, entry).unwrap_or_default()).collect())
        }
        Value::String(text) if QUANTITY.contains(&key) => (nanos(&text) != Some(0)).then_some(Value::String(text)),
        Value::String(text) => (!text.is_empty() || [EMPTY_TEXT, ENTRY].contains(&key)).then_some(Value::String(text)),
        Value::Null | Value::Array(_) => None,
        number_or_bool => {
            let zero = number_or_bool == 0 || number_or_bool == false;
            (!zero || !ZEROS.contains(&key)).then_some(number_or_bool)
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::testing::{assert_one, changed, jobset, read};
    use super::super::validate_update;
    use super::*;
    use crate::gates::Gates;

    const REPLICATED_JOB: &str = "/spec/replicatedJobs/1";
    const POD: &str = "/spec/replicatedJobs/1/template/spec/template/spec";
    const CONTAINER: &str = "/spec/replicatedJobs/1/template/spec/template/spec/containers/0";

    fn errors(parent: &str, field: &str, old: Value, new: Value) -> Vec<String> {
        let pointer = format!("{parent}/{field}");
        let old = jobset(&[(&pointer, old)]);
        let new = changed(old.clone(), &[(&pointer, new)]);
        validate_update(&read(&old), &read(&new), Gates::default()).iter().map(ToString::to_string).collect()
    }

    #[rstest]
    #[case::metadata(REPLICATED_JOB, "template/metadata", Value::Null, json!({ "creationTimestamp": null }))]
    #[case::pod_metadata(REPLICATED_JOB, "template/spec/template/metadata", Value::Null, json!({ "creationTimestamp": null, "labels": {} }))]
    #[case::divisor(
        CONTAINER,
        "env",
        json!([{ "name": "A", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu" } } }]),
        json!([{ "name": "A", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu", "divisor": "0" } } }])
    )]
    #[case::default_of_the_schema(REPLICATED_JOB, "groupName", json!(""), Value::Null)]
    fn compare_values_with_same_meaning_finds_no_change(
        #[case] parent: &str,
        #[case] field: &str,
        #[case] one: Value,
        #[case] other: Value,
    ) {
        assert_eq!(errors(parent, field, one.clone(), other.clone()), Vec::<String>::new());
        assert_eq!(errors(parent, field, other, one), Vec::<String>::new());
    }

    #[rstest]
    #[case::label(REPLICATED_JOB, "template/metadata", json!({ "labels": { "a": "" } }), json!({ "labels": {} }))]
    #[case::selector(
        POD,
        "topologySpreadConstraints",
        json!([{ "maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {} }]),
        json!([{ "maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule" }])
    )]
    #[case::class(
        POD,
        "volumes",
        json!([{ "name": "a", "ephemeral": { "volumeClaimTemplate": { "spec": { "storageClassName": "" } } } }]),
        json!([{ "name": "a", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } }])
    )]
    fn compare_values_with_other_meaning_finds_change(
        #[case] parent: &str,
        #[case] field: &str,
        #[case] one: Value,
        #[case] other: Value,
    ) {
        assert_ne!(errors(parent, field, one.clone(), other.clone()), Vec::<String>::new());
        assert_ne!(errors(parent, field, other, one), Vec::<String>::new());
    }

    #[test]
    fn compare_map_entry_has_key_in_path() {
        let labels = |value: &str| json!({ "labels": { "example.com/a": value } });
        let errors = errors(REPLICATED_JOB, "template/metadata", labels("b"), labels("c"));
        let expected = r#"spec.replicatedJobs[1].template.metadata.labels[example.com/a]: Invalid value: "c": field is immutable: must stay "b", as the JobSet was created"#;
        assert!(errors[0].starts_with(expected), "{errors:?}");
    }

    #[rstest]
    #[case::changed(json!({ "limits": { "memory": "500G", "cpu": "1000m" } }), json!({ "limits": { "memory": "600G", "cpu": "1" } }), r#"limits.memory: Invalid value: "600G": field is immutable: must stay "500G""#)]
    #[case::no_quantity(json!({ "limits": { "memory": "500G" } }), json!({ "limits": { "memory": "x" } }), r#"limits.memory: Invalid value: "x": field is immutable: must stay "500G""#)]
    #[case::removed(json!({ "limits": { "memory": "500G" } }), Value::Null, r#"resources: Required value: field is immutable: must stay {"limits":{"memory":"500G"}}"#)]
    #[case::added(json!({}), json!({ "limits": { "cpu": "0.5" } }), r#"resources: Invalid value: {"limits":{"cpu":"0.5"}}: field is immutable: must stay absent"#)]
    fn compare_shows_quantity_as_written(#[case] old: Value, #[case] new: Value, #[case] expected: &str) {
        assert_one(&errors(CONTAINER, "resources", old, new), expected);
    }
}
