//! Identity of list entries in JSON objects. A name identifies an entry; a path identifies a volume mount, and a number
//! a port. Any other entry is identified by its index.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

/// Fields that identify the entries of Kubernetes' lists.
const KEYS: [&str; 3] = ["name", "mountPath", "containerPort"];

/// Whether a field identifies the entry.
pub fn has_key(entry: &Value) -> bool {
    keys(entry).iter().any(Option::is_some)
}

/// Whether two entries have the same identity. Their other fields may differ.
pub fn same(one: &Value, other: &Value) -> bool {
    one.is_object() && other.is_object() && keys(one) == keys(other)
}

/// The index in `after` of each entry of `before`. `None` unless `after` has all of them in the same order. Other
/// entries may be between them.
pub fn places(before: &[Value], after: &[Value]) -> Option<Vec<usize>> {
    let mut rest = after.iter().enumerate();
    before.iter().map(|entry| rest.find(|(_, other)| same(entry, other)).map(|(place, _)| place)).collect()
}

/// The index in `list` of the counterpart of each entry of `of`. If several entries have the same identity, the first
/// is the counterpart of the first, and the second of the second.
pub fn counterparts(of: &[Value], list: &[Value]) -> Vec<Option<usize>> {
    let mut places: HashMap<_, VecDeque<usize>> = HashMap::new();
    for (place, entry) in list.iter().enumerate().filter(|(_, entry)| entry.is_object()) {
        places.entry(keys(entry)).or_default().push_back(place);
    }
    of.iter().map(|entry| places.get_mut(&keys(entry)).filter(|_| entry.is_object())?.pop_front()).collect()
}

fn keys(entry: &Value) -> [Option<&Value>; 3] {
    KEYS.map(|key| entry.get(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(value: &Value) -> Vec<Value> {
        value.as_array().unwrap().clone()
    }

    #[test]
    fn places_with_added_entries_finds_previous_ones_in_order() {
        let before = list(&json!([{ "name": "a" }, { "name": "b", "image": "1" }]));
        let after = list(&json!([{ "name": "x" }, { "name": "a" }, { "name": "b", "image": "2" }, { "name": "y" }]));
        assert_eq!(places(&before, &after), Some(vec![1, 2]));
        assert_eq!(places(&after, &before), None);
        let swapped = list(&json!([{ "name": "b" }, { "name": "a" }]));
        assert_eq!(places(&before, &swapped), None);
    }

    #[test]
    fn counterparts_of_duplicate_names_pair_in_order() {
        let one = list(&json!([{ "name": "a" }, { "name": "b" }, { "name": "a" }]));
        let other = list(&json!([{ "name": "x" }, { "name": "a" }, { "name": "a" }]));
        assert_eq!(counterparts(&one, &other), [Some(1), None, Some(2)]);
        assert_eq!(counterparts(&other, &one), [None, Some(0), Some(2)]);
    }

    #[test]
    fn counterparts_of_strings_are_none() {
        let (one, other) = (list(&json!(["a"])), list(&json!(["a", "b"])));
        assert_eq!(places(&one, &other), None);
        assert_eq!(counterparts(&one, &other), [None]);
    }
}
