//! The merge of a step into an object.

use serde_json::{Map, Value};

/// Lists that are merged by a key, as in a strategic merge patch of Kubernetes.
const NAMED: [(&str, &str); 5] = [
    ("conditions", "type"),
    ("containerStatuses", "name"),
    ("initContainerStatuses", "name"),
    ("replicatedJobs", "name"),
    ("replicatedJobsStatus", "name"),
];
/// An object that has only one field at a time.
const ONE_OF: &str = "state";

/// A JSON merge patch (RFC 7386), in which named lists are merged by name and a container's `state` is replaced.
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (field, value) in patch {
        if value.is_null() {
            fields.remove(&field);
            continue;
        }
        let current = fields.entry(field.clone()).or_insert(Value::Null);
        match (NAMED.iter().find(|(list, _)| *list == field), value) {
            (Some((_, key)), Value::Array(items)) => items.into_iter().for_each(|item| merge_item(current, key, item)),
            (_, value) if field == ONE_OF => *current = value,
            (_, value) => merge(current, value),
        }
    }
}

fn merge_item(list: &mut Value, key: &str, item: Value) {
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Some(items) = list.as_array_mut() else { return };
    match items.iter_mut().find(|known| known.get(key) == item.get(key)) {
        Some(known) => merge(known, item),
        None => items.push(item),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::of_a_field(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 3}}), json!({"a": {"b": 3, "c": 2}}))]
    #[case::of_null(json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2}))]
    #[case::of_a_plain_list(json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]}))]
    #[case::of_a_named_item(
        json!({"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]}),
        json!({"conditions": [{"type": "A", "status": "False"}, {"type": "C"}]}),
        json!({"conditions": [{"type": "A", "status": "False"}, {"type": "B"}, {"type": "C"}]}))]
    #[case::of_a_state(json!({"state": {"running": {}}}), json!({"state": {"waiting": {}}}), json!({"state": {"waiting": {}}}))]
    fn merge_changes_only_patched_fields(#[case] mut object: Value, #[case] patch: Value, #[case] expected: Value) {
        merge(&mut object, patch);
        assert_eq!(object, expected);
    }
}
