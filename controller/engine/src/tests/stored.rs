//! JobSets that take too much memory, one by one and together, and those that do not match the schema.

use std::time::{Duration, Instant};

use jobset_api::{JobSet, JobSetLimits, JobSetSpec, JobSetStatus, conditions, event};
use jobset_rules::{Action, Plan};
use jobset_store::*;
use k8s_openapi::jiff::Timestamp;
use kube::core::{ObjectList, WatchEvent as ApiEvent};
use serde_json::{Value, json};

use crate::*;

fn key(name: &str) -> Key {
    Key { namespace: "ml".to_owned(), name: name.to_owned() }
}

/// A JobSet of one Job whose Pods have so many volumes, which take 3 KiB of memory each.
fn jobset(name: &str, volumes: usize) -> Value {
    let volumes: Vec<_> = (0..volumes).map(|number| json!({ "name": format!("v{number}") })).collect();
    let pod = json!({ "spec": { "containers": [], "volumes": volumes } });
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": name, "namespace": "ml", "uid": name, "generation": 1, "resourceVersion": "1",
                      "managedFields": [{ "manager": "m", "fieldsV1": { "f:spec": {} } }],
                      "annotations": { (jobset_api::labels::RESTART_BUDGET): "Shared" } },
        "spec": { "network": { "enableDNSHostnames": false },
                  "replicatedJobs": [{ "name": "w", "template": { "spec": { "template": pod } } }] },
    })
}

fn stored(object: &Value) -> WatchEvent {
    WatchEvent::stored_jobset(serde_json::from_str(&object.to_string()).unwrap())
}

/// An engine in which one JobSet may take 1 MiB, and those of a namespace together 4 MiB.
fn engine() -> Engine {
    let limits = JobSetLimits { memory: 1 << 20, ..JobSetLimits::default() };
    Engine::new(Settings { limits, memory_of_namespace: 4 << 20, ..Settings::default() })
}

fn plan(engine: &Engine, name: &str) -> Plan {
    let now = Now { instant: Instant::now(), time: Timestamp::UNIX_EPOCH };
    engine.plan_now(&key(name), now).unwrap().1
}

/// The message of the condition Invalid, while it is true.
fn invalid(plan: &Plan) -> Option<&str> {
    let condition = plan.status.conditions.iter().find(|it| it.type_ == conditions::INVALID)?;
    (condition.status == "True").then_some(&condition.message)
}

/// Whether the JobSet is read, and its Job would be created.
fn is_read(engine: &Engine, name: &str) -> bool {
    let plan = plan(engine, name);
    let creates = matches!(plan.actions[..], [Action::CreateJob(_)]);
    assert_ne!(creates, invalid(&plan).is_some(), "{plan:?}");
    creates
}

#[test]
fn jobset_within_its_limit_is_read_whole() {
    let (mut engine, object) = (engine(), jobset("a", 100));
    engine.apply(stored(&object), Instant::now());
    let mut expected: JobSet = serde_json::from_value(object).unwrap();
    expected.metadata.managed_fields = None;
    assert_eq!(engine.store.jobset(&key("a")).map(|it| JobSet::clone(it)), Some(expected));
    assert!(is_read(&engine, "a"));
}

#[test]
fn jobset_above_its_limit_is_left_alone_and_says_so() {
    let (mut engine, mut object) = (engine(), jobset("a", 1000));
    let status = json!({ "restarts": 3, "groupRestarts": 3, "syncedEpoch": 7, "deprecatedEpoch": 6,
        "replicatedJobsStatus": [{ "name": "w", "succeeded": 1, "jobRestarts": [4], "syncedPods": "0", "syncedParallelism": 1 }] });
    object["status"] = status;
    engine.apply(stored(&object), Instant::now());
    let kept = engine.store.jobset(&key("a")).unwrap().clone();
    assert_eq!(kept.spec, JobSetSpec::default());
    let plan = plan(&engine, "a");
    let expected = "the JobSet is left alone, and its Jobs and Pods go on: its specification takes more than 1 MiB of memory, the \
                    limit of one JobSet (--max-memory-per-jobset of the controller): delete the JobSet and create a smaller one, or \
                    raise the limit";
    assert_eq!(invalid(&plan), Some(expected));
    assert_eq!((plan.actions, plan.notes.len(), plan.notes[0].reason), (Vec::new(), 1, event::INVALID_SPECIFICATION));
    // Nothing else of the status changes but the ledger and what is known of requests: it has counters that nobody else has.
    let mut stored_status = kept.status.clone().unwrap();
    stored_status.restart_requests.clone_from(&plan.status.restart_requests);
    stored_status.conditions.clone_from(&plan.status.conditions);
    stored_status.ledger.clone_from(&plan.status.ledger);
    assert_eq!(plan.status, stored_status);
}

#[test]
fn jobset_is_read_when_it_has_become_smaller() {
    let mut engine = engine();
    engine.apply(stored(&jobset("a", 1000)), Instant::now());
    assert!(!is_read(&engine, "a"));
    let mut smaller = jobset("a", 10);
    (smaller["metadata"]["generation"], smaller["metadata"]["resourceVersion"]) = (json!(2), json!("2"));
    smaller["status"] = serde_json::to_value(plan(&engine, "a").status).unwrap();
    engine.apply(stored(&smaller), Instant::now());
    assert!(is_read(&engine, "a"));
}

#[test]
fn unreadable_jobset_of_another_manager_is_left_alone() {
    let (mut engine, mut object) = (engine(), jobset("a", 1000));
    object["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
    object["status"] = json!({ "replicatedJobsStatus": [{ "name": "w", "ready": 1 }], "jobsReady": "1/1" });
    engine.apply(stored(&object), Instant::now());
    let (jobset, plan) = engine.plan_now(&key("a"), now(0)).unwrap();
    assert_eq!((plan.actions, plan.notes, Some(plan.status)), (Vec::new(), Vec::new(), jobset.status.clone()));
}

#[test]
fn finished_jobset_expires_though_it_is_not_read() {
    let (mut engine, mut object) = (engine(), jobset("a", 1000));
    object["spec"]["ttlSecondsAfterFinished"] = json!(0);
    object["status"] = json!({ "terminalState": "Completed", "conditions": [{ "type": "Completed", "status": "True",
        "reason": "a", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z" }] });
    engine.apply(stored(&object), Instant::now());
    assert_eq!(plan(&engine, "a").actions, [Action::DeleteJobSet]);
    object["spec"]["ttlSecondsAfterFinished"] = json!(9);
    object["metadata"]["resourceVersion"] = json!("2");
    engine.apply(stored(&object), Instant::now());
    let plan = plan(&engine, "a");
    assert_eq!((invalid(&plan), plan.actions.len(), plan.notes.len()), (None, 0, 0));
}

#[test]
fn status_that_is_too_heavy_is_not_written() {
    let (mut engine, mut object) = (engine(), jobset("a", 1));
    let counts: Vec<_> = (0..30_000).map(|number| json!({ "name": format!("w{number}") })).collect();
    object["status"] = json!({ "replicatedJobsStatus": counts });
    engine.apply(stored(&object), Instant::now());
    let (jobset, plan) = engine.plan_now(&key("a"), now(0)).unwrap();
    assert_eq!((jobset.status.as_ref(), &plan.status), (None, &JobSetStatus::default()));
    assert_eq!(plan.notes.len(), 1);
    assert!(plan.notes[0].message.ends_with("its status takes more than 4 MiB of memory"), "{:?}", plan.notes);
}

#[test]
fn metadata_that_is_too_heavy_leaves_the_identity() {
    let (mut engine, mut object) = (engine(), jobset("a", 1));
    let labels = (0..60_000).map(|number| (format!("l{number}"), json!("")));
    object["metadata"]["labels"] = Value::Object(labels.collect());
    engine.apply(stored(&object), Instant::now());
    assert!(invalid(&plan(&engine, "a")).unwrap().ends_with("its metadata takes more than 4 MiB of memory"));
    let metadata = &engine.store.jobset(&key("a")).unwrap().metadata;
    assert_eq!((metadata.uid.as_deref(), metadata.generation, &metadata.labels), (Some("a"), Some(1), &None));
}

#[rstest::rstest]
#[case::of_a_newer_release("/spec/failurePolicy", json!({ "rules": [{ "action": "New" }] }), "specification does not match the schema: unknown variant `New`")]
#[case::list("/spec/network", json!([]), "specification does not match the schema: invalid type: sequence")]
#[case::status("/status", json!({ "restarts": "many" }), "status does not match the schema: invalid type: string")]
#[case::metadata("/metadata/labels", json!({ "a": 1 }), "metadata does not match the schema: invalid type: integer")]
fn jobset_that_does_not_match_the_schema_says_so(#[case] pointer: &str, #[case] value: Value, #[case] expected: &str) {
    let (mut engine, mut object) = (engine(), jobset("a", 1));
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    engine.apply(stored(&object), Instant::now());
    let plan = plan(&engine, "a");
    assert!(plan.notes[0].message.contains(expected), "{:?}", plan.notes);
    assert_eq!((invalid(&plan).is_some(), plan.actions.len()), (!pointer.starts_with("/status"), 0));
}

#[test]
fn jobset_without_specification_says_so() {
    let (mut engine, mut object) = (engine(), jobset("a", 1));
    object.as_object_mut().unwrap().remove("spec");
    engine.apply(stored(&object), Instant::now());
    assert!(invalid(&plan(&engine, "a")).unwrap().contains("its specification does not match the schema"));
}

/// 250 volumes take 0.8 MiB, so that a namespace has room for four such JobSets.
#[test]
fn jobsets_beyond_namespace_memory_wait_for_room() {
    let mut engine = engine();
    let objects: Vec<Value> = (0..8).map(|number| jobset(&format!("j{number}"), 250)).collect();
    for object in &objects {
        engine.apply(stored(object), Instant::now());
    }
    let read = |engine: &Engine| -> Vec<bool> {
        let names = (0..8).map(|number| format!("j{number}"));
        names.filter(|name| engine.store.jobset(&key(name)).is_some()).map(|name| is_read(engine, &name)).collect()
    };
    assert_eq!(read(&engine), [true, true, true, true, false, false, false, false]);
    let message = plan(&engine, "j7");
    assert!(invalid(&message).unwrap().contains("--max-memory-per-namespace of the controller"), "{message:?}");
    // Other namespaces have room of their own.
    let mut other = jobset("other", 250);
    other["metadata"]["namespace"] = json!("other");
    engine.apply(stored(&other), Instant::now());
    assert!(
        engine
            .store
            .jobset(&Key { namespace: "other".to_owned(), name: "other".to_owned() })
            .is_some_and(|it| it.spec != JobSetSpec::default())
    );

    assert_eq!(engine.take_relist(), []);
    for name in ["j0", "j1"] {
        engine.apply(WatchEvent::Gone(Kind::JobSet, key(name), 9), Instant::now());
    }
    let mut listed = Vec::new();
    while let [next] = &engine.take_relist()[..] {
        let object = objects.iter().find(|object| object["metadata"]["name"] == next.name).unwrap();
        engine.rebuild(next, vec![stored(object)], Instant::now());
        listed.push(next.name.clone());
    }
    assert_eq!(listed, ["j4"], "as long as half of the memory is free");
    assert_eq!(read(&engine), [true, true, true, false, false, false]);
}

#[test]
fn no_limits_read_anything() {
    let settings = Settings { limits: JobSetLimits::NONE, memory_of_namespace: 0, ..Settings::default() };
    let mut engine = Engine::new(settings);
    engine.apply(stored(&jobset("a", 5000)), Instant::now());
    assert!(is_read(&engine, "a"));
}

#[test]
fn jobset_is_kept_as_text_by_lists_and_watches() {
    let object = jobset("a", 2);
    let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "9" }, "items": [object] });
    let list: ObjectList<StoredJobSet> = serde_json::from_str(&list.to_string()).unwrap();
    let event = format!(r#"{{"type":"ADDED","object":{object}}}"#);
    let Ok(ApiEvent::Added(added)) = serde_json::from_str(&event) else { panic!("{event}") };
    for stored in list.items.into_iter().chain([added]) {
        assert_eq!((Key::of(&stored), version(&stored)), (key("a"), 1));
        let whole = stored.whole(1 << 20).unwrap();
        assert_eq!((whole.spec, stored.whole(1000)), (serde_json::from_value(object["spec"].clone()).unwrap(), None));
    }
}

fn now(seconds: u64) -> Now {
    Now { instant: Instant::now() + Duration::from_secs(seconds), time: Timestamp::UNIX_EPOCH }
}

/// All namespaces have room for ten such JobSets. Beyond that, each has at least [`RESERVED`](super::stored::RESERVED).
#[test]
fn namespaces_share_memory_and_each_has_room() {
    let settings = Settings { memory_of_namespace: 8 << 20, ..Settings::default() };
    let mut engine = Engine::new(settings);
    let names = ["a", "b", "c", "d"];
    let of = |namespace: &str, number: i32| {
        let mut object = jobset(&format!("j{number}"), 250);
        object["metadata"]["namespace"] = json!(namespace);
        object
    };
    let mut see = |namespace: &str| {
        for number in 0..12 {
            engine.apply(stored(&of(namespace, number)), Instant::now());
        }
    };
    for namespace in names {
        see(namespace);
    }
    let read = |namespace: &str| {
        let key = |number| Key { namespace: namespace.to_owned(), name: format!("j{number}") };
        (0..12)
            .filter(|number| engine.store.jobset(&key(*number)).is_some_and(|it| it.spec != JobSetSpec::default()))
            .count()
    };
    let counts = names.map(read);
    assert!(counts[0] > counts[2] && counts[2] == counts[3] && counts[3] > 0, "{counts:?}");
    engine.take_relist();
    for (namespace, number) in
        ["a", "b"].into_iter().flat_map(|namespace| (0..12).map(move |number| (namespace, number)))
    {
        let key = Key { namespace: namespace.to_owned(), name: format!("j{number}") };
        engine.apply(WatchEvent::Gone(Kind::JobSet, key, 9), Instant::now());
    }
    let listed = engine.take_relist();
    assert!(
        listed.iter().any(|key| ["c", "d"].contains(&key.namespace.as_str())),
        "what others leave is for those that wait: {listed:?}"
    );
}
