use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{JobSet, JobSetSpec};

/// Most that is read here.
const LIMIT: usize = 16 << 20;

fn jobset() -> Value {
    json!({ "metadata": { "name": "train" }, "spec": {
        "network": {}, "failurePolicy": { "rules": [{ "action": "FailJobSet", "onJobFailureReasons": ["a"] }] },
        "replicatedJobs": [{ "name": "a", "replicas": 2, "template": { "spec": { "template": { "spec": {
            "containers": [{ "name": "b", "livenessProbe": { "httpGet": { "port": "http" } } }] } } } } }],
    } })
}

/// The specification of a JobSet whose Pods have this.
fn pod(field: &str, value: Value) -> Value {
    let mut jobset = jobset();
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][field] = value;
    jobset
}

fn read_jobset(object: &Value) -> Result<JobSet, String> {
    let text = object.to_string();
    let read = read::<JobSet>(&text, LIMIT);
    assert!(
        read.is_err() || serde_json::from_str::<JobSet>(&text).ok() == read.as_ref().ok().map(|it| it.value.clone())
    );
    read.map(|read| read.value).map_err(|error| error.to_string())
}

fn weight(spec: &Value) -> usize {
    serde_json::from_value::<Weighed<JobSetSpec>>(spec.clone()).unwrap().weight
}

#[test]
fn as_many_entries_as_fit_are_read_and_no_more() {
    let with = |count: usize| pod("spec", json!({ "containers": [], "volumes": vec![json!({}); count] }));
    assert!(read_jobset(&with(1000)).is_ok());
    let error = read_jobset(&with(5000)).unwrap_err();
    assert!(error.starts_with("the object is too large: its lists have too many entries"), "{error}");
}

#[test]
fn as_many_labels_as_fit_are_read_and_no_more() {
    let with = |count: usize| {
        let labels: serde_json::Map<_, _> = (0..count).map(|number| (format!("{number:x}"), json!(""))).collect();
        pod("metadata", json!({ "labels": labels }))
    };
    // As many as fit into the 1.5 MiB that etcd stores.
    assert!(read_jobset(&with(130_000)).is_ok());
    let error = read_jobset(&with(200_000)).unwrap_err();
    assert!(error.starts_with("the object is too large: its"), "{error}");
}

#[test]
fn texts_are_read_as_long_as_they_fit() {
    let with = |length: usize| pod("spec", json!({ "containers": [{ "name": "a", "args": ["a".repeat(length)] }] }));
    assert!(read_jobset(&with(LIMIT / 2)).is_ok());
    let error = read_jobset(&with(LIMIT)).unwrap_err();
    assert!(error.starts_with("the object is too large: its texts are too long"), "{error}");
}

#[test]
fn object_too_heavy_is_told_from_unreadable_one() {
    let heavy = pod("spec", json!({ "containers": [], "volumes": vec![json!({}); 5000] })).to_string();
    assert!(is_too_heavy(&read::<JobSet>(&heavy, LIMIT).unwrap_err()));
    assert!(!is_too_heavy(&read::<JobSet>("{\"spec\": 1}", LIMIT).unwrap_err()));
    assert!(!is_too_heavy(&read::<JobSet>("{\"spec\": {}} x", LIMIT).unwrap_err()));
}

#[test]
fn weight_from_text_equals_tree_and_grows_with_entries() {
    let spec = |count: usize| {
        let volumes: Vec<_> =
            (0..count).map(|number| json!({ "name": format!("v{number}"), "emptyDir": {} })).collect();
        pod("spec", json!({ "containers": [], "volumes": volumes }))["spec"].clone()
    };
    let weights: Vec<usize> = (0..20).map(|count| weight(&spec(count))).collect();
    assert!(weights.is_sorted_by(|one, next| one < next), "{weights:?}");
    let read = read::<JobSetSpec>(&spec(19).to_string(), LIMIT).unwrap();
    assert_eq!(read.weight, weights[19]);
}

/// Some of the largest manifests that people write.
#[test]
fn large_manifest_is_below_default_limit() {
    let env: Vec<_> = (0..60)
        .map(|number| json!({ "name": format!("SOME_LONG_VARIABLE_{number}"), "value": "x".repeat(60) }))
        .collect();
    let mounts: Vec<_> = (0..30)
        .map(|number| json!({ "name": format!("volume-{number}"), "mountPath": format!("/data/volume-{number}") }))
        .collect();
    let container = |number: usize| {
        json!({ "name": format!("container-{number}"), "image": "registry.example.com/team/image:1.2.3", "env": env,
            "volumeMounts": mounts, "command": ["bash", "-c", "x".repeat(2000)], "ports": [{ "containerPort": 80 }],
            "resources": { "limits": { "cpu": "4", "memory": "64Gi", "nvidia.com/gpu": "8" } } })
    };
    let containers: Vec<_> = (0..5).map(container).collect();
    let volumes: Vec<_> = (0..30)
        .map(|number| json!({ "name": format!("volume-{number}"), "configMap": { "name": "x".repeat(40) } }))
        .collect();
    let toleration = json!({ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" });
    let group = |number: usize| {
        json!({ "name": format!("group-{number}"), "replicas": 4, "template": { "spec": { "parallelism": 8, "completions": 8,
            "template": { "spec": { "containers": containers, "volumes": volumes, "tolerations": vec![toleration.clone(); 8] } } } } })
    };
    let spec = json!({ "replicatedJobs": (0..20).map(group).collect::<Vec<_>>() });
    let weight = weight(&spec);
    assert!((MAX_SPEC / 2..MAX_SPEC).contains(&weight), "{weight}");
    let part = heaviest_part(&serde_json::from_value(spec).unwrap());
    assert_eq!(part.field, "spec.replicatedJobs[0].template.spec.template.spec.volumes");
}

#[rstest]
#[case::volumes("volumes", "")]
#[case::tolerations("tolerations", "")]
#[case::aliases("hostAliases", "")]
#[case::spread("topologySpreadConstraints", "")]
#[case::init("initContainers", "")]
#[case::containers("containers", "")]
#[case::env("env", "containers[0].")]
#[case::env_from("envFrom", "containers[0].")]
#[case::ports("ports", "containers[0].")]
#[case::mounts("volumeMounts", "containers[0].")]
fn heaviest_part_is_the_long_list(#[case] field: &str, #[case] parent: &str) {
    let entry = json!({ "name": "a", "containerPort": 1, "mountPath": "/", "ip": "::1", "maxSkew": 1, "topologyKey": "a",
        "whenUnsatisfiable": "DoNotSchedule" });
    let mut spec = json!({ "containers": [{ "name": "a" }] });
    let place = if parent.is_empty() { &mut spec } else { &mut spec["containers"][0] };
    place[field] = json!(vec![entry; 400]);
    let jobset: JobSet = serde_json::from_value(pod("spec", spec)).unwrap();
    let part = heaviest_part(&jobset.spec);
    assert_eq!(part.field, format!("spec.replicatedJobs[0].template.spec.template.spec.{parent}{field}"));
    assert_eq!(part.entries, 400);
}

#[rstest]
#[case::replicated_jobs("replicatedJobs", json!({ "name": "a", "template": {} }), "spec.replicatedJobs")]
#[case::claims("volumeClaimPolicies", json!({ "templates": vec![json!({ "metadata": {} }); 9] }), "spec.volumeClaimPolicies[0].templates")]
fn heaviest_part_may_be_outside_of_pods(#[case] field: &str, #[case] entry: Value, #[case] expected: &str) {
    let spec: JobSetSpec = serde_json::from_value(json!({ (field): vec![entry; 9] })).unwrap();
    assert_eq!(heaviest_part(&spec).field, expected);
}

#[rstest]
#[case("")]
#[case("/spec")]
#[case("/spec/network")]
#[case("/spec/failurePolicy/rules/0")]
#[case("/spec/replicatedJobs/0/template/spec/template")]
fn a_list_is_no_object(#[case] place: &str) {
    let mut object = jobset();
    *object.pointer_mut(place).unwrap() = json!([]);
    let error = read_jobset(&object).unwrap_err();
    assert!(error.contains("invalid type: sequence, expected "), "{error}");
}
