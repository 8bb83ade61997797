//! Bytes and objects that nobody thought of: the service answers each, and what it admits can be carried out.
//!
//! `make fuzz` runs a million of them.

mod children;
mod mutation;
mod rules;

use jobset_api::JobSet;
use jobset_api::injection::Settings;
use jobset_harness::paths;
use jobset_webhook::jobset::Terms;
use jobset_webhook::review::{self, Reading};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError};
use serde_json::{Value, json};

use mutation::Mutation;

use crate::server::{self, UID};

/// So many cases, unless the environment asks for more.
fn cases(few: u32) -> Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(few);
    Config { cases, failure_persistence: None, ..Config::default() }
}

fn manifests() -> Vec<Value> {
    let folder = paths::workspace().join("e2e/manifests");
    let injected = paths::workspace().join("api/cases/injection");
    let folders = [folder.clone(), folder.join("examples"), folder.join("features"), folder.join("seeds"), injected];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    let mut yaml: Vec<_> = files.filter(|file| file.extension().is_some_and(|it| it == "yaml")).collect();
    yaml.sort();
    yaml.iter().map(|file| serde_yaml_ng::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()).collect()
}

pub(crate) fn review(operation: &str, object: &Value, old: &Value) -> Value {
    let mut review = server::review(object);
    let request = &mut review["request"];
    (request["operation"], request["oldObject"]) = (json!(operation), old.clone());
    request["name"] = json!(object["metadata"]["name"].as_str().unwrap_or_default());
    review
}

/// The answers of both webhooks; none where the body is no review.
fn answers(body: &[u8]) -> (Option<Value>, Option<Value>) {
    let written = |answer| serde_json::to_value(answer).unwrap();
    let injection = Settings { agent_image: Some("jobset-agent:1".to_owned()), ..Settings::default() };
    let terms = Terms { injection, ..Terms::default() };
    let mutated = review::mutate(body, Reading::Careful, &terms.injection);
    (mutated.ok().map(written), review::validate(body, Reading::Careful, &terms).ok().map(written))
}

/// Has an object admitted as the API server does. The object to be stored, if it is admitted.
fn admit(operation: &str, object: &Value, old: &Value) -> Result<Option<Value>, TestCaseError> {
    if !object.is_object() || !(old.is_object() || old.is_null()) {
        // An API server does not ask that.
        return Ok(None);
    }
    let body = review(operation, object, old).to_string();
    let (Some(mutated), Some(_)) = answers(body.as_bytes()) else {
        return Err(TestCaseError::fail(format!("not answered: {body}")));
    };
    prop_assert_eq!(&mutated["response"]["uid"], UID);
    if mutated["response"]["allowed"] != true {
        return Ok(None);
    }
    let mut stored = object.clone();
    if let Some(patch) = mutated["response"].get("patch") {
        let patch: k8s_openapi::ByteString = serde_json::from_value(patch.clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
        prop_assert!(json_patch::patch(&mut stored, &patch).is_ok(), "{patch:?} does not apply");
        let (again, _) = answers(review(operation, &stored, old).to_string().as_bytes());
        let again = again.unwrap_or_default();
        prop_assert_eq!(again["response"].get("patch"), None, "a second time changes nothing");
    }
    let (_, validated) = answers(review(operation, &stored, old).to_string().as_bytes());
    let response = &validated.unwrap()["response"];
    prop_assert_eq!(&response["uid"], UID);
    if response["allowed"] == true {
        return Ok(Some(stored));
    }
    prop_assert_eq!(&response["status"]["code"], 422);
    let causes = response["status"]["details"]["causes"].as_array().map_or(0, Vec::len);
    prop_assert!(causes > 0, "refused without a cause: {response}");
    Ok(None)
}

/// A manifest, changed in some places.
fn changed(most: usize) -> impl Strategy<Value = Value> {
    let manifests = manifests();
    (any::<Index>(), prop::collection::vec(Mutation::any(), 0..most)).prop_map(move |(index, mutations)| {
        let mut object = index.get(&manifests).clone();
        for mutation in mutations {
            mutation.apply(&mut object);
        }
        object
    })
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn no_bytes_make_the_service_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        answers(&bytes);
    }

    #[test]
    fn no_damage_to_a_review_makes_the_service_panic(
        object in changed(3),
        damage in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        end in any::<Index>(),
        of_the_review in prop::collection::vec(Mutation::any(), 0..3),
    ) {
        let mut review = review("UPDATE", &object, &object);
        for mutation in of_the_review {
            mutation.apply(&mut review);
        }
        let mut body = review.to_string().into_bytes();
        answers(&body);
        for (index, byte) in damage {
            let place = index.index(body.len());
            body[place] = byte;
        }
        answers(&body);
        body.truncate(end.index(body.len()));
        answers(&body);
    }

    #[test]
    fn whatever_is_admitted_can_be_reconciled(object in changed(6)) {
        let Some(stored) = admit("CREATE", &object, &Value::Null)? else { return Ok(()) };
        // The API server takes this away from what is created.
        if stored["metadata"]["deletionTimestamp"].is_null() {
            let jobset: JobSet = serde_json::from_value(stored).map_err(|error| TestCaseError::fail(error.to_string()))?;
            rules::reconcile(jobset);
        }
    }

    #[test]
    fn every_change_of_any_object_is_answered(object in changed(3), old in changed(3)) {
        admit("UPDATE", &object, &old)?;
    }
}
