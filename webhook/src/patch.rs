//! The JSON patch that turns an object as it was sent into the object as it should be stored.

use serde::Serialize;

/// Patches that change an object from `before` to `after`.
///
/// Both are of one type, read from the same request: what that type does not know is in neither, so the patch leaves it
/// alone. A patch from the object as it was sent would remove it.
///
/// The patch applies to the object as it was sent only where that has what `before` has. A default that a rule adds must
/// therefore go into a parent that was sent, and not into one that the type itself makes up when it is absent.
///
/// # Errors
/// When a value cannot be written as JSON.
pub fn diff<T: Serialize>(before: &T, after: &T) -> Result<json_patch::Patch, serde_json::Error> {
    Ok(json_patch::diff(&serde_json::to_value(before)?, &serde_json::to_value(after)?))
}

#[cfg(test)]
mod tests {
    use jobset_api::{JobSet, defaults};
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

    fn pod_template() -> impl Strategy<Value = Value> {
        let pod = field(Just(json!({ "containers": [{ "name": "w", "new-field": 1 }], "new-field": { "a": [1] } })));
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
        (prop::collection::vec(replicated_job, 0..3), policy, network, claims).prop_map(|(jobs, policy, network, claims)| {
            let spec = object(vec![("replicatedJobs", Some(json!(jobs))), ("failurePolicy", policy), ("network", network), ("volumeClaimPolicies", claims), ("new-field", Some(json!(1)))]);
            json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "train" }, "spec": spec })
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_patch_applies_to_the_object_as_sent_and_keeps_what_is_unknown(sent in jobset()) {
            // What cannot be read is not patched.
            let Ok(before) = serde_json::from_value::<JobSet>(sent.clone()) else { return Ok(()) };
            let after = JobSet { spec: defaults::apply(&before.spec), ..before.clone() };
            let patch = diff(&before, &after).unwrap();
            let mut stored = sent.clone();
            prop_assert!(json_patch::patch(&mut stored, &patch).is_ok(), "{patch:?} on {sent}");
            prop_assert_eq!(unknown(&stored), unknown(&sent));
            prop_assert_eq!(serde_json::from_value::<JobSet>(stored).unwrap(), after);
        }
    }
}
