//! The JSON patch that turns an object as it was sent into the object as it should be stored.

use jobset_api::entries;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde::Serialize;
use serde_json::{Map, Value};

/// Patches that change an object from `before` to `after`.
///
/// Both are of one type, read from the same request: what that type does not know is in neither, so the patch leaves it
/// alone. A patch from the object as it was sent would remove it.
///
/// The patch applies to the object as it was sent only where that has what `before` has. A default that a rule adds must
/// therefore go into a parent that was sent, and not into one that the type itself makes up when it is absent.
///
/// An entry that is put before others of a list is one operation. To turn each of them into the next, as a comparison
/// place by place does, would leave what is unknown in them behind, in the wrong entry.
pub fn diff<T: Serialize>(before: &T, after: &T) -> Result<Patch, serde_json::Error> {
    let mut patch = Patch::default();
    value(&serde_json::to_value(before)?, &serde_json::to_value(after)?, &mut PointerBuf::new(), &mut patch);
    Ok(patch)
}

fn value(before: &Value, after: &Value, path: &mut PointerBuf, operations: &mut Patch) {
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(before), Value::Object(after)) => object(before, after, path, operations),
        (Value::Array(old), Value::Array(new)) => match entries::places(old, new) {
            Some(places) => list(old, new, &places, path, operations),
            None if old.len() == new.len() => list(old, new, &(0..new.len()).collect::<Vec<_>>(), path, operations),
            None => replace(after, path, operations),
        },
        _ => replace(after, path, operations),
    }
}

fn object(before: &Map<String, Value>, after: &Map<String, Value>, path: &mut PointerBuf, operations: &mut Patch) {
    for (key, new) in after {
        path.push_back(key);
        match before.get(key) {
            Some(old) => value(old, new, path, operations),
            None => add(new, path, operations),
        }
        path.pop_back();
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        path.push_back(key);
        operations.0.push(PatchOperation::Remove(RemoveOperation { path: path.clone() }));
        path.pop_back();
    }
}

/// `places` says where each entry of `before` is in `after`. Entries are added from the front, so that each has its place
/// in the end.
fn list(before: &[Value], after: &[Value], places: &[usize], path: &mut PointerBuf, operations: &mut Patch) {
    let mut kept = before.iter().zip(places).peekable();
    for (place, new) in after.iter().enumerate() {
        path.push_back(place);
        match kept.next_if(|(_, kept)| **kept == place) {
            Some((old, _)) => value(old, new, path, operations),
            None => add(new, path, operations),
        }
        path.pop_back();
    }
}

fn add(value: &Value, path: &PointerBuf, operations: &mut Patch) {
    operations.0.push(PatchOperation::Add(AddOperation { path: path.clone(), value: value.clone() }));
}

fn replace(value: &Value, path: &PointerBuf, operations: &mut Patch) {
    operations.0.push(PatchOperation::Replace(ReplaceOperation { path: path.clone(), value: value.clone() }));
}

#[cfg(test)]
mod tests {
    use jobset_api::{JobSet, defaults, injection, labels, restore};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Values of a field as people and tools may send it: absent, null, empty, or with something in it.
    fn field(filled: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
        prop_oneof![Just(None), Just(Some(Value::Null)), Just(Some(json!({}))), filled.prop_map(Some)]
    }

    fn object(fields: Vec<(&'static str, Option<Value>)>) -> Value {
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// A container with a field that says whose it is.
    fn container(name: &str) -> Value {
        json!({ "name": name, "command": ["run"], "env": [{ "name": "A", "new-field": "A" }], "new-field": name })
    }

    fn pod() -> impl Strategy<Value = Value> {
        let init = field(
            prop::sample::subsequence(vec!["setup", "log", "jobset-agent", "jobset-agent-install"], 0..4)
                .prop_map(|names| names.into_iter().map(container).collect()),
        );
        init.prop_map(|init| {
            let containers = json!([container("w")]);
            object(vec![
                ("initContainers", init.filter(|init| !init.is_object())),
                ("containers", Some(containers)),
                ("volumes", Some(json!([{ "name": "mine", "new-field": "mine" }]))),
                ("new-field", Some(json!({ "a": [1] }))),
            ])
        })
    }

    fn pod_template() -> impl Strategy<Value = Value> {
        let pod = field(pod());
        (pod, field(Just(json!({ "labels": { "a": "b" } }))))
            .prop_map(|(spec, metadata)| object(vec![("spec", spec), ("metadata", metadata)]))
    }

    fn job() -> impl Strategy<Value = Value> {
        let template = field(pod_template());
        let more = prop_oneof![Just(None), Just(Some(json!("NonIndexed")))];
        (template, more, prop_oneof![Just(None), Just(Some(json!(2)))]).prop_map(|(template, mode, limit)| {
            object(vec![
                ("template", template),
                ("completionMode", mode),
                ("backoffLimit", limit),
                ("new-field", Some(json!(1))),
            ])
        })
    }

    fn jobset() -> impl Strategy<Value = Value> {
        let replicated_job = field(field(job()).prop_map(|spec| object(vec![("spec", spec)]))).prop_map(|template| {
            object(vec![("name", Some(json!("w"))), ("template", template), ("new-field", Some(json!(1)))])
        });
        let rules = prop_oneof![
            Just(None),
            Just(Some(json!([]))),
            Just(Some(json!([{ "action": "FailJobSet", "new-field": 1 }])))
        ];
        let strategy = prop_oneof![Just(None), Just(Some(json!("InPlaceRestart")))];
        let policy = field(
            (rules, strategy)
                .prop_map(|(rules, strategy)| object(vec![("rules", rules), ("restartStrategy", strategy)])),
        );
        let network = field(Just(json!({ "subdomain": "s", "new-field": 1 })));
        let claims = prop_oneof![Just(None), Just(Some(json!([{}]))), Just(Some(json!([{ "retentionPolicy": null }])))];
        let shape = prop::sample::select(vec!["Sidecar", "Supervisor", "None"]);
        (prop::collection::vec(replicated_job, 0..3), policy, network, claims, shape).prop_map(|(jobs, policy, network, claims, shape)| {
            let spec = object(vec![("replicatedJobs", Some(json!(jobs))), ("failurePolicy", policy), ("network", network), ("volumeClaimPolicies", claims), ("new-field", Some(json!(1)))]);
            json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "train", "annotations": { (labels::INJECT_AGENT): shape } }, "spec": spec })
        })
    }

    /// The number of fields that this build does not know.
    fn unknown(value: &Value) -> usize {
        match value {
            Value::Object(map) => map.iter().map(|(key, value)| usize::from(key == "new-field") + unknown(value)).sum(),
            Value::Array(list) => list.iter().map(unknown).sum(),
            _ => 0,
        }
    }

    /// Whether every field that this build does not know is where it was sent.
    fn are_in_place(value: &Value) -> bool {
        match value {
            Value::Object(map) => {
                let own = map.get("new-field").filter(|it| it.is_string()).is_none_or(|it| Some(it) == map.get("name"));
                own && map.values().all(are_in_place)
            }
            Value::Array(list) => list.iter().all(are_in_place),
            _ => true,
        }
    }

    fn apply(before: &JobSet, after: &JobSet, sent: &Value) -> Result<(), TestCaseError> {
        let patch = diff(before, after).unwrap();
        let mut stored = sent.clone();
        prop_assert!(json_patch::patch(&mut stored, &patch).is_ok(), "{patch:?} on {sent}");
        prop_assert_eq!(unknown(&stored), unknown(sent));
        prop_assert!(are_in_place(&stored), "{stored:#}");
        prop_assert_eq!(&serde_json::from_value::<JobSet>(stored).unwrap(), after);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn patch_applies_as_sent_and_keeps_unknown_fields(sent in jobset()) {
            // What cannot be read is not patched.
            let Ok(before) = serde_json::from_value::<JobSet>(sent.clone()) else { return Ok(()) };
            let mut spec = defaults::apply(&before.spec);
            let plain = diff(&before, &JobSet { spec: spec.clone(), ..before.clone() }).unwrap();
            let settings = injection::Settings { agent_image: Some("agent:1".to_owned()), ..injection::Settings::default() };
            injection::inject(&mut spec, &before.metadata.annotations.as_ref().unwrap()[labels::INJECT_AGENT], &settings);
            let after = JobSet { spec, ..before.clone() };
            apply(&before, &after, &sent)?;
            let spec = restore::restore(&after, &before).unwrap_or_else(|| before.spec.clone());
            apply(&before, &JobSet { spec, ..before.clone() }, &sent)?;
            // What defaults do not look at makes no difference to them.
            let mut before = before;
            defaults::outline(&mut before.spec);
            let after = JobSet { spec: defaults::apply(&before.spec), ..before.clone() };
            prop_assert_eq!(diff(&before, &after).unwrap(), plain);
        }
    }

    #[test]
    fn an_entry_before_others_is_one_operation() {
        let (before, after) = (json!([{ "name": "a" }]), json!([{ "name": "b" }, { "name": "a", "c": 1 }]));
        let patch = serde_json::to_value(diff(&before, &after).unwrap()).unwrap();
        let expected = json!([
            { "op": "add", "path": "/0", "value": { "name": "b" } },
            { "op": "add", "path": "/1/c", "value": 1 },
        ]);
        assert_eq!(patch, expected);
    }
}
