//! Changes of a JSON document, as mistakes and malice make them: a field removed, a value of another kind or at a bound, a
//! field of another place, an entry twice.

use proptest::prelude::*;
use serde_json::{Value, json};

/// One change, at one of the document's places.
#[derive(Clone, Debug)]
pub(crate) struct Mutation {
    /// Counted from the root, modulo their number.
    place: u16,
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    Remove,
    Set(Value),
    /// Adds a field, to an object.
    Add(&'static str, Value),
    /// Adds the last entry again, to a list.
    Repeat,
    /// Puts what is at another place here.
    Copy(u16),
}

impl Mutation {
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        let change = prop_oneof![
            1 => Just(Change::Remove),
            4 => value().prop_map(Change::Set),
            4 => field().prop_map(|(name, value)| Change::Add(name, value)),
            1 => Just(Change::Repeat),
            1 => any::<u16>().prop_map(Change::Copy),
        ];
        (any::<u16>(), change).prop_map(|(place, change)| Self { place, change })
    }

    pub(crate) fn apply(&self, document: &mut Value) {
        self.apply_where(document, |_| true);
    }

    /// Changes the document at one of those places whose JSON pointer is `allowed`.
    pub(crate) fn apply_where(&self, document: &mut Value, allowed: impl Fn(&str) -> bool) {
        let mut places = vec![String::new()];
        collect(document, "", &mut places);
        places.retain(|place| allowed(place));
        let pointer = |place: u16| &places[usize::from(place) % places.len()];
        let here = pointer(self.place);
        match &self.change {
            Change::Remove => remove(document, here),
            Change::Set(value) => set(document, here, value.clone()),
            Change::Copy(other) => {
                let copy = document.pointer(pointer(*other)).cloned().unwrap_or_default();
                set(document, here, copy);
            }
            Change::Add(name, value) => {
                if let Some(Value::Object(fields)) = document.pointer_mut(here) {
                    fields.insert((*name).to_owned(), value.clone());
                }
            }
            Change::Repeat => {
                if let Some(Value::Array(entries)) = document.pointer_mut(here) {
                    entries.extend(entries.last().cloned());
                }
            }
        }
    }
}

/// The JSON pointers of all values.
fn collect(value: &Value, path: &str, places: &mut Vec<String>) {
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, it)| (name.replace('~', "~0").replace('/', "~1"), it)).collect()
        }
        Value::Array(entries) => entries.iter().enumerate().map(|(index, it)| (index.to_string(), it)).collect(),
        _ => Vec::new(),
    };
    for (name, value) in entries {
        let path = format!("{path}/{name}");
        collect(value, &path, places);
        places.push(path);
    }
}

fn set(document: &mut Value, pointer: &str, value: Value) {
    if let Some(place) = document.pointer_mut(pointer) {
        *place = value;
    }
}

fn remove(document: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    match document.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(&name.replace("~1", "/").replace("~0", "~"))),
        Some(Value::Array(entries)) => {
            if let Ok(index) = name.parse::<usize>() {
                entries.remove(index);
            }
        }
        _ => {}
    }
}

/// Values at bounds, of all kinds, and words that mean something.
fn value() -> impl Strategy<Value = Value> {
    let words = [
        "",
        "a",
        "A",
        "a.b",
        "-a",
        "0",
        "81",
        "true",
        "\u{0}",
        "ü",
        "^(",
        "(a|b)*",
        "Always",
        "Never",
        "OnFailure",
        "Indexed",
        "NonIndexed",
        "InPlaceRestart",
        "Recreate",
        "BlockingRecreate",
        "InOrder",
        "AnyOrder",
        "Any",
        "All",
        "Ready",
        "Complete",
        "FailJob",
        "FailJobSet",
        "RestartJob",
        "RestartReplicatedJob",
        "RestartJobSet",
        "Terminate",
        "RestartPod",
        "Restart",
        "RestartAllContainers",
        "PodFailurePolicy",
        "BackoffLimitExceeded",
        "driver",
        "workers",
        "worker",
        "agent",
        "Sidecar",
        "Supervisor",
        "example.com/x",
        "Retain",
    ];
    let numbers = [
        0_i64,
        1,
        -1,
        2,
        4,
        255,
        256,
        1024,
        1025,
        100_001,
        i64::from(i32::MAX),
        i64::from(i32::MIN),
        i64::MAX,
        i64::MIN,
    ];
    prop_oneof![
        4 => prop::sample::select(words.to_vec()).prop_map(Value::from),
        4 => prop::sample::select(numbers.to_vec()).prop_map(Value::from),
        1 => any::<i32>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => prop::sample::select(vec![json!(null), json!([]), json!({}), json!(1e300), json!(["a"]), json!({ "a": "b" })]),
        1 => (1_usize..5000).prop_map(|length| Value::from("x".repeat(length))),
        1 => any::<String>().prop_map(Value::from),
    ]
}

/// Fields that rules look at, with values that are mostly right somewhere.
fn field() -> impl Strategy<Value = (&'static str, Value)> {
    let fields = [
        ("suspend", json!(true)),
        ("replicas", json!(3)),
        ("parallelism", json!(2)),
        ("completions", json!(2)),
        ("groupName", json!("group")),
        ("managedBy", json!("example.com/other")),
        ("ttlSecondsAfterFinished", json!(0)),
        ("coordinator", json!({ "replicatedJob": "workers", "jobIndex": 0, "podIndex": 0 })),
        ("dependsOn", json!([{ "name": "driver", "status": "Complete" }])),
        ("startupPolicy", json!({ "startupPolicyOrder": "InOrder" })),
        ("successPolicy", json!({ "operator": "Any", "targetReplicatedJobs": ["workers"] })),
        ("failurePolicy", json!({ "restartStrategy": "InPlaceRestart", "maxRestarts": 2 })),
        (
            "failurePolicy",
            json!({ "maxRestarts": 1, "rules": [{ "action": "RestartJob" }, { "action": "FailJob", "targetReplicatedJobs": ["driver"] }] }),
        ),
        ("network", json!({ "subdomain": "sub", "enableDNSHostnames": false })),
        ("volumeClaimPolicies", json!([{ "templates": [{ "metadata": { "name": "data" }, "spec": {} }] }])),
        ("annotations", json!({ "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack" })),
        ("annotations", json!({ "jobset.sigs.k8s.io/inject-agent": "Sidecar" })),
        ("annotations", json!({ "jobset.sigs.k8s.io/inject-agent": "Supervisor" })),
        ("labels", json!({ "a": "b" })),
        ("generateName", json!("made-")),
        ("backoffLimit", json!(i32::MAX)),
        ("podReplacementPolicy", json!("Failed")),
        (
            "podFailurePolicy",
            json!({ "rules": [{ "action": "FailJob", "setConditionReason": "Mine", "onExitCodes": { "operator": "In", "values": [1] } }] }),
        ),
        (
            "restartPolicyRules",
            json!([{ "action": "Terminate", "exitCodes": { "operator": "In", "values": [3] } }, { "action": "RestartPod", "exitCodes": { "operator": "NotIn", "values": [0] } }]),
        ),
        ("command", json!(["/agent/jobset-agent", "supervise", "--", "train"])),
        ("env", json!([{ "name": "RESTART_POD_IN_PLACE_EXIT_CODE", "value": "7" }])),
        ("startupProbe", json!({ "httpGet": { "port": 8080 } })),
        ("livenessProbe", json!({ "exec": {} })),
        ("deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("new-field", json!({ "a": [1] })),
    ];
    prop::sample::select(fields.to_vec())
}
