//! What becomes of the parts of a template when its Job is resumed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSchedulingGate, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::Value;

use super::*;

/// A Job in the API server. The label and annotation `mine`, the flavor, the toleration and the gate came from the template
/// of the JobSet.
fn live() -> Value {
    json!({
        "metadata": {"name": "train-w-0", "uid": "j-1", "labels": {"of": "job"}, "annotations": owned(&json!({
            "labels": ["mine"], "annotations": ["mine"], "nodeSelector": ["flavor"],
            "tolerations": [{"key": "a", "operator": "Exists"}], "schedulingGates": [{"name": "example.com/wait"}],
        }))},
        "spec": {
            "suspend": true,
            "parallelism": 2,
            "template": {
                "metadata": {
                    "labels": {
                        "controller-uid": "j-1", "batch.kubernetes.io/controller-uid": "j-1",
                        "job-name": "train-w-0", "batch.kubernetes.io/job-name": "train-w-0", "mine": "1",
                    },
                    "annotations": {"mine": "1"},
                },
                "spec": {
                    "nodeSelector": {"flavor": "a"},
                    "tolerations": [{"key": "a", "operator": "Exists"}],
                    "schedulingGates": [{"name": "example.com/wait"}],
                    "initContainers": [{"name": "agent", "resources": {"requests": {"cpu": "1"}}}],
                    "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
                },
            },
        },
    })
}

fn owned(of: &Value) -> Value {
    json!({labels::OWNED_BY_POD_TEMPLATE: of.to_string()})
}

/// The desired Job, with these parts of its template.
fn desired(labels: &Value, annotations: &Value, pod: &Value) -> Job {
    job(json!({
        "metadata": {"name": "train-w-0", "annotations": live()["metadata"]["annotations"]},
        "spec": {"suspend": false, "template": {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": pod,
        }},
    }))
}

fn job(value: Value) -> Job {
    serde_json::from_value(value).unwrap()
}

fn the_same_pod() -> Value {
    live().pointer("/spec/template/spec").unwrap().clone()
}

fn pod_with(field: &str, value: Value) -> Value {
    let mut pod = the_same_pod();
    pod[field] = value;
    pod
}

#[rstest]
#[case::no_change(json!({"mine": "1"}), json!({"mine": "1"}), the_same_pod(), json!([]))]
#[case::label_replaced_and_job_api_labels_kept(
    json!({"other": "2", "job-name": "ours"}), json!({"mine": "1"}), the_same_pod(),
    json!([["/spec/template/metadata/labels", {
        "batch.kubernetes.io/controller-uid": "j-1", "batch.kubernetes.io/job-name": "train-w-0",
        "controller-uid": "j-1", "job-name": "train-w-0", "other": "2",
    }]]))]
#[case::last_annotation_removed(json!({"mine": "1"}), json!(null), the_same_pod(),
    json!([["/spec/template/metadata/annotations", {}]]))]
#[case::other_flavor(json!({"mine": "1"}), json!({"mine": "1"}), pod_with("nodeSelector", json!({"zone": "b"})),
    json!([["/spec/template/spec/nodeSelector", {"zone": "b"}]]))]
#[case::last_toleration_removed(json!({"mine": "1"}), json!({"mine": "1"}), pod_with("tolerations", json!(null)),
    json!([["/spec/template/spec/tolerations", []]]))]
#[case::gate_removed(json!({"mine": "1"}), json!({"mine": "1"}), pod_with("schedulingGates", json!([])),
    json!([["/spec/template/spec/schedulingGates", []]]))]
#[case::other_resources(json!({"mine": "1"}), json!({"mine": "1"}),
    pod_with("containers", json!([{"name": "other"}, {"name": "main", "resources": {"limits": {"cpu": "3"}}}])),
    json!([["/spec/template/spec/containers/0/resources", {"limits": {"cpu": "3"}}]]))]
#[case::no_resources_for_the_agent(json!({"mine": "1"}), json!({"mine": "1"}),
    pod_with("initContainers", json!([{"name": "agent"}])),
    json!([["/spec/template/spec/initContainers/0/resources", {}]]))]
#[case::immutable_field_ignored(json!({"mine": "1"}), json!({"mine": "1"}),
    pod_with("restartPolicy", json!("Never")), json!([]))]
fn resume_template_part_differs_replaces_it(
    #[case] labels: Value,
    #[case] annotations: Value,
    #[case] pod: Value,
    #[case] expected: Value,
) {
    let patch = json!(resume(&job(live()), &desired(&labels, &annotations, &pod), true));
    let operations = patch.as_array().unwrap();
    assert_eq!(operations[0], json!({"op": "test", "path": "/metadata/uid", "value": "j-1"}));
    assert_eq!(operations[1], json!({"op": "add", "path": "/spec/suspend", "value": false}));
    let rest: Vec<Value> = operations[2..].iter().map(|add| json!([add["path"], add["value"]])).collect();
    assert_eq!(json!(rest), expected);
}

/// The live Job after the patch.
fn resumed(live: &Value, desired: &Job) -> Value {
    let mut patched = live.clone();
    json_patch::patch(&mut patched, &resume(&job(live.clone()), desired, true)).unwrap();
    patched
}

#[test]
fn resume_with_record_keeps_others_entries_and_removes_own() {
    let mut live = live();
    let template = &mut live["spec"]["template"];
    template["metadata"]["labels"]["mesh"] = json!("on");
    template["metadata"]["labels"]["jobset.sigs.k8s.io/coordinator"] = json!("of-old");
    template["metadata"]["annotations"]["mesh"] = json!("on");
    template["spec"]["nodeSelector"]["arch"] = json!("amd64");
    template["spec"]["tolerations"].as_array_mut().unwrap().push(json!({"key": "mesh", "operator": "Exists"}));
    template["spec"]["schedulingGates"].as_array_mut().unwrap().push(json!({"name": "mesh"}));
    let mut next = desired(&json!({"yours": "2"}), &json!(null), &json!({"containers": []}));
    next.metadata.annotations = serde_json::from_value(owned(&json!({"labels": ["yours"]}))).unwrap();

    let after = resumed(&live, &next);
    let template = &after["spec"]["template"];
    let labels = template["metadata"]["labels"].as_object().unwrap().clone();
    let labels: Vec<_> = labels.keys().filter(|key| !OF_JOB_API.contains(&key.as_str())).collect();
    assert_eq!(labels, ["mesh", "yours"]);
    assert_eq!(
        json!([
            template["metadata"]["annotations"],
            template["spec"]["nodeSelector"],
            template["spec"]["tolerations"],
            template["spec"]["schedulingGates"],
            after["metadata"]["annotations"],
        ]),
        json!([
            {"mesh": "on"},
            {"arch": "amd64"},
            [{"key": "mesh", "operator": "Exists"}],
            [{"name": "mesh"}],
            {(labels::OWNED_BY_POD_TEMPLATE): r#"{"labels":["yours"]}"#},
        ])
    );
}

#[test]
fn resume_job_without_record_merges_all() {
    let mut live = live();
    live["metadata"].as_object_mut().unwrap().remove("annotations");
    let mut next = desired(&json!({"yours": "2"}), &json!(null), &pod_with("nodeSelector", json!({"zone": "b"})));
    next.metadata.annotations = serde_json::from_value(owned(&json!({"nodeSelector": ["zone"]}))).unwrap();
    let after = resumed(&live, &next);
    let template = &after["spec"]["template"];
    assert_eq!(template["spec"]["nodeSelector"], json!({"flavor": "a", "zone": "b"}));
    assert_eq!([&template["metadata"]["labels"]["mine"], &template["metadata"]["labels"]["yours"]], ["1", "2"]);
    assert_eq!(after["metadata"]["annotations"], owned(&json!({"nodeSelector": ["zone"]})));
}

#[test]
fn resume_without_resources_keeps_those_of_the_job() {
    let pod = pod_with("containers", json!([{"name": "main", "resources": {"limits": {"cpu": "3"}}}]));
    let desired = desired(&json!({"mine": "1"}), &json!({"mine": "1"}), &pod);
    let patch = json!(resume(&job(live()), &desired, false));
    assert_eq!(patch.as_array().unwrap().len(), 2, "{patch}");
}

#[test]
fn resume_keeps_claims_of_containers() {
    let mut live = live();
    let claims = json!([{"name": "gpu"}]);
    live["spec"]["template"]["spec"]["containers"][0]["resources"]["claims"] = claims.clone();
    let pod = pod_with("containers", json!([{"name": "main", "resources": {"requests": {"cpu": "3"}}}]));
    let after = resumed(&live, &desired(&json!({"mine": "1"}), &json!({"mine": "1"}), &pod));
    let resources = &after["spec"]["template"]["spec"]["containers"][0]["resources"];
    assert_eq!(*resources, json!({"claims": claims, "requests": {"cpu": "3"}}));
}

/// A Job with this execution attempt in its annotation and in that of its template.
fn of_attempt(mut job: Value, attempt: Option<&str>) -> Value {
    for annotations in ["/metadata/annotations", "/spec/template/metadata/annotations"] {
        let annotations = job.pointer_mut(annotations).unwrap().as_object_mut().unwrap();
        annotations.extend(attempt.map(|attempt| (labels::EXECUTION_ATTEMPT.to_owned(), json!(attempt))));
    }
    job
}

#[rstest]
#[case::next(Some("1"), Some("2"), Some("2"))]
#[case::first(None, Some("0"), Some("0"))]
#[case::same(Some("1"), Some("1"), Some("1"))]
#[case::gate_off(Some("1"), None, Some("1"))]
#[case::never(None, None, None)]
fn resume_sets_execution_attempt_of_job_and_pods_together(
    #[case] before: Option<&str>,
    #[case] next: Option<&str>,
    #[case] expected: Option<&str>,
) {
    let desired = of_attempt(json!(desired(&json!({"mine": "1"}), &json!({"mine": "1"}), &the_same_pod())), next);
    let after = resumed(&of_attempt(live(), before), &job(desired));
    let attempt = |pointer: &str| after.pointer(pointer).unwrap()[labels::EXECUTION_ATTEMPT].as_str();
    let attempts = [attempt("/metadata/annotations"), attempt("/spec/template/metadata/annotations")];
    assert_eq!((attempts, &after["spec"]["suspend"]), ([expected; 2], &json!(false)));
}

#[test]
fn resume_patch_on_other_uid_fails() {
    let patch = resume(&job(live()), &desired(&json!({}), &json!({}), &json!({"containers": []})), true);
    let mut other = live();
    other["metadata"]["uid"] = json!("j-2");
    let before = other.clone();
    assert!(json_patch::patch(&mut other, &patch).is_err());
    assert_eq!(other, before);
}

fn map() -> impl Strategy<Value = Option<BTreeMap<String, String>>> {
    let keys = prop_oneof!["[ab]", Just("job-name".to_owned()), Just("a/~b".to_owned())];
    prop::option::of(prop::collection::btree_map(keys, "[xy]", 0..3))
}

fn container(name: &'static str) -> impl Strategy<Value = Container> {
    let quantity = "[12]".prop_map(Quantity);
    let resources = prop::option::of(prop::collection::btree_map("cpu|gpu", quantity, 0..2))
        .prop_map(|requests| ResourceRequirements { requests, ..ResourceRequirements::default() });
    prop::option::of(resources).prop_map(|resources| Container {
        name: name.to_owned(),
        resources,
        ..Container::default()
    })
}

prop_compose! {
    fn any_job()(
        suspend in prop::option::of(any::<bool>()),
        (labels, annotations, node_selector) in (map(), map(), map()),
        tolerations in prop::option::of(prop::collection::vec("[ab]", 0..3)),
        gates in prop::option::of(prop::collection::vec("[ab]", 0..2)),
        (main, side, agent) in (container("main"), container("side"), container("agent")),
        (swap, agents) in any::<(bool, bool)>(),
    ) -> Job {
        let mut job = job(live());
        let spec = job.spec.as_mut().unwrap();
        spec.suspend = suspend;
        let metadata = spec.template.metadata.as_mut().unwrap();
        (metadata.labels, metadata.annotations) = (labels, annotations);
        spec.template.spec = Some(PodSpec {
            node_selector,
            tolerations: tolerations.map(|keys| keys.into_iter().map(|key| {
                Toleration { key: Some(key), ..Toleration::default() }
            }).collect()),
            scheduling_gates: gates.map(|names| names.into_iter().map(|name| PodSchedulingGate { name }).collect()),
            containers: if swap { vec![side, main] } else { vec![main, side] },
            init_containers: agents.then(|| vec![agent]),
            ..PodSpec::default()
        });
        job
    }
}

/// The part that a resumption replaces as a whole: resources by name of the container.
fn replaced(job: &Job) -> Value {
    let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    let resources = |of: &Container| (of.name.clone(), of.resources.clone().unwrap_or_default());
    json!(pod.containers.iter().map(resources).collect::<BTreeMap<_, _>>())
}

/// The parts that a resumption merges, one text for each entry.
fn merged(job: &Job) -> BTreeSet<String> {
    let template = &job.spec.as_ref().unwrap().template;
    let (metadata, pod) = (template.metadata.as_ref().unwrap(), template.spec.as_ref().unwrap());
    let own = |key: &str| OF_JOB_API.contains(&key);
    let labels = metadata.labels.iter().flatten().filter(|(key, _)| !own(key)).map(|it| format!("label {it:?}"));
    let annotations = metadata.annotations.iter().flatten().map(|it| format!("annotation {it:?}"));
    let selector = pod.node_selector.iter().flatten().map(|it| format!("selector {it:?}"));
    let tolerations = pod.tolerations.iter().flatten().map(|it| format!("toleration {it:?}"));
    let gates = pod.scheduling_gates.iter().flatten().map(|it| format!("gate {it:?}"));
    labels.chain(annotations).chain(selector).chain(tolerations).chain(gates).collect()
}

/// Adds the record that the whole template came from the JobSet.
fn remembering(mut job: Job) -> Job {
    let owned = Owned::of(&job.spec.as_ref().unwrap().template).text();
    let annotations = job.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::OWNED_BY_POD_TEMPLATE.to_owned(), owned);
    job
}

proptest! {
    #[test]
    fn resume_any_job_is_as_desired_and_idempotent(
        live in any_job(), desired in any_job(), remembers in any::<bool>(),
    ) {
        let live = if remembers { remembering(live) } else { live };
        let desired = remembering(desired);
        let patch = resume(&live, &desired, true);
        let mut patched = json!(live);
        json_patch::patch(&mut patched, &patch).unwrap();
        let resumed = job(patched.clone());

        prop_assert_eq!(replaced(&resumed), replaced(&desired));
        prop_assert!(merged(&resumed).is_superset(&merged(&desired)));
        if remembers {
            prop_assert_eq!(merged(&resumed), merged(&desired));
        }
        prop_assert_ne!(resumed.spec.as_ref().unwrap().suspend, Some(true));
        let job_name = |job: &Job| {
            let labels = job.spec.as_ref()?.template.metadata.as_ref()?.labels.as_ref();
            labels.and_then(|labels| labels.get("job-name").cloned())
        };
        prop_assert_eq!(job_name(&resumed), job_name(&live));

        prop_assert_eq!(resume(&resumed, &desired, true).0.len(), 1, "only the test operation is left");
        let once = patched.clone();
        json_patch::patch(&mut patched, &patch).unwrap();
        prop_assert_eq!(patched, once);
    }
}
