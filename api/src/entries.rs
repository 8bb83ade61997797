//! How entries of a list are told apart, in objects as JSON: by name, volume mounts by their path, ports by their number.
//! What has nothing of it is told apart by its place.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

/// Fields that tell the entries of Kubernetes' lists apart.
const KEYS: [&str; 3] = ["name", "mountPath", "containerPort"];

/// Whether the entry has something to be told apart by, besides its place.
pub fn has_key(entry: &Value) -> bool {
    keys(entry).iter().any(Option::is_some)
}

/// Whether two entries stand for the same thing, whatever else is in them.
pub fn same(one: &Value, other: &Value) -> bool {
    one.is_object() && other.is_object() && keys(one) == keys(other)
}

/// Where in `after` each entry of `before` is, if `after` has them all, in their order, and maybe others between them.
pub fn places(before: &[Value], after: &[Value]) -> Option<Vec<usize>> {
    let mut rest = after.iter().enumerate();
    before.iter().map(|entry| rest.find(|(_, other)| same(entry, other)).map(|(place, _)| place)).collect()
}

/// Where in `list` the entry is that stands for each one of `of`. Of several with the same name, the first stands for the
/// first, the second for the second.
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
    fn what_was_there_is_found_between_what_was_added() {
        let before = list(&json!([{ "name": "a" }, { "name": "b", "image": "1" }]));
        let after = list(&json!([{ "name": "x" }, { "name": "a" }, { "name": "b", "image": "2" }, { "name": "y" }]));
        assert_eq!(places(&before, &after), Some(vec![1, 2]));
        assert_eq!(places(&after, &before), None);
        let swapped = list(&json!([{ "name": "b" }, { "name": "a" }]));
        assert_eq!(places(&before, &swapped), None);
    }

    #[test]
    fn entries_of_one_name_are_told_apart_by_their_place() {
        let one = list(&json!([{ "name": "a" }, { "name": "b" }, { "name": "a" }]));
        let other = list(&json!([{ "name": "x" }, { "name": "a" }, { "name": "a" }]));
        assert_eq!(counterparts(&one, &other), [Some(1), None, Some(2)]);
        assert_eq!(counterparts(&other, &one), [None, Some(0), Some(2)]);
    }

    #[test]
    fn words_have_no_counterparts() {
        let (one, other) = (list(&json!(["a"])), list(&json!(["a", "b"])));
        assert_eq!(places(&one, &other), None);
        assert_eq!(counterparts(&one, &other), [None]);
    }
}
