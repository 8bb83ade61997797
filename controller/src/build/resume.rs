//! Resumes a suspended Job, with the changes of its template since its creation.

use jobset_api::labels;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::json;

use super::owned::Owned;

/// Labels that the Job API adds to the template of a Job, and by which the Job selects its Pods.
const OF_JOB_API: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

/// The JSON Patch (RFC 6902) that resumes `live` with the labels, annotations, node selector, tolerations, scheduling
/// gates and resources of containers that its template has in `desired`.
///
/// The patch removes entries that came from the template of the JobSet and are no longer in it, for example those that a
/// queue added for an earlier admission. It keeps entries that mutating admission or others added to the Job, and the labels
/// of the Job API. A Job without a record of its template, such as one of the Go JobSet, keeps all entries. Resources are
/// replaced as a whole. The patch fails on another Job of the same name, and can be applied to this one twice.
///
/// Kubernetes (1.36) accepts such a change only for a Job that is suspended, has no active Pod, and either has never started
/// or has the condition Suspended.
pub fn resume(live: &Job, desired: &Job) -> Patch {
    let mut operations = Operations(Vec::new());
    operations.test(["metadata", "uid"], &live.metadata.uid);
    let (before, after) = (Owned::remembered(live), Owned::remembered(desired));
    if before != after {
        let field = ["metadata", "annotations", labels::OWNED_BY_POD_TEMPLATE];
        if live.metadata.annotations.is_none() {
            operations.add(["metadata", "annotations"], &json!({}));
        }
        operations.add(field, &after.text());
    }
    if let (Some(live), Some(desired)) = (&live.spec, &desired.spec) {
        operations.set(["spec", "suspend"], live.suspend.as_ref(), &false);
        let (live, desired) = (&live.template, &desired.template);
        if let (Some(live), Some(desired)) = (&live.metadata, &desired.metadata) {
            metadata(&mut operations, &before, live, desired);
        }
        if let (Some(live), Some(desired)) = (&live.spec, &desired.spec) {
            pod(&mut operations, &before, live, desired);
        }
    }
    Patch(operations.0)
}

fn metadata(operations: &mut Operations, owned: &Owned, live: &ObjectMeta, desired: &ObjectMeta) {
    let mut labels = owned.labels(&live.labels, &desired.labels);
    let of_job_api = |key: &String| OF_JOB_API.contains(&key.as_str());
    labels.retain(|key, _| !of_job_api(key));
    let kept = live.labels.iter().flatten().filter(|(key, _)| of_job_api(key));
    labels.extend(kept.map(|(key, value)| (key.clone(), value.clone())));

    let field = |name| ["spec", "template", "metadata", name];
    operations.set(field("labels"), live.labels.as_ref(), &labels);
    let annotations = owned.annotations(&live.annotations, &desired.annotations);
    operations.set(field("annotations"), live.annotations.as_ref(), &annotations);
}

fn pod(operations: &mut Operations, owned: &Owned, live: &PodSpec, desired: &PodSpec) {
    let field = |name| ["spec", "template", "spec", name];
    let selector = owned.node_selector(&live.node_selector, &desired.node_selector);
    operations.set(field("nodeSelector"), live.node_selector.as_ref(), &selector);
    let [live_tolerations, desired_tolerations] =
        [live, desired].map(|pod| pod.tolerations.as_deref().unwrap_or_default());
    let tolerations = owned.tolerations(live_tolerations, desired_tolerations);
    operations.set(field("tolerations"), live.tolerations.as_ref(), &tolerations);
    let [live_gates, desired_gates] = [live, desired].map(|pod| pod.scheduling_gates.as_deref().unwrap_or_default());
    let gates = owned.scheduling_gates(live_gates, desired_gates);
    operations.set(field("schedulingGates"), live.scheduling_gates.as_ref(), &gates);
    resources(operations, "containers", &live.containers, &desired.containers);
    let (live, desired) = (live.init_containers.as_deref(), desired.init_containers.as_deref());
    resources(operations, "initContainers", live.unwrap_or_default(), desired.unwrap_or_default());
}

/// Compares quantities as text. If only their form differs, the patch has an operation that changes nothing.
fn resources(operations: &mut Operations, list: &str, live: &[Container], desired: &[Container]) {
    for (index, live) in live.iter().enumerate() {
        if let Some(desired) = desired.iter().find(|desired| desired.name == live.name) {
            let path = ["spec", "template", "spec", list, &index.to_string(), "resources"];
            operations.set(path, live.resources.as_ref(), &desired.resources.clone().unwrap_or_default());
        }
    }
}

struct Operations(Vec<PatchOperation>);

impl Operations {
    fn test<const N: usize>(&mut self, path: [&str; N], value: &impl Serialize) {
        self.0.push(PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path), value: json!(value) }));
    }

    /// Sets a field that differs from the desired value. Absent and empty are equal. The patch writes an empty value with
    /// `add`, which also replaces a field: `remove` would fail when the patch is applied again.
    fn set<T, const N: usize>(&mut self, path: [&str; N], live: Option<&T>, desired: &T)
    where
        T: Default + PartialEq + Serialize,
    {
        if live.unwrap_or(&T::default()) != desired {
            self.add(path, desired);
        }
    }

    fn add<const N: usize>(&mut self, path: [&str; N], value: &impl Serialize) {
        self.0.push(PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path), value: json!(value) }));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use k8s_openapi::api::core::v1::{PodSchedulingGate, ResourceRequirements, Toleration};
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
        let patch = json!(resume(&job(live()), &desired(&labels, &annotations, &pod)));
        let operations = patch.as_array().unwrap();
        assert_eq!(operations[0], json!({"op": "test", "path": "/metadata/uid", "value": "j-1"}));
        assert_eq!(operations[1], json!({"op": "add", "path": "/spec/suspend", "value": false}));
        let rest: Vec<Value> = operations[2..].iter().map(|add| json!([add["path"], add["value"]])).collect();
        assert_eq!(json!(rest), expected);
    }

    /// The live Job after the patch.
    fn resumed(live: &Value, desired: &Job) -> Value {
        let mut patched = live.clone();
        json_patch::patch(&mut patched, &resume(&job(live.clone()), desired)).unwrap();
        patched
    }

    #[test]
    fn resume_job_with_record_keeps_entries_of_others_and_removes_own() {
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
    fn resume_patch_on_other_uid_fails() {
        let patch = resume(&job(live()), &desired(&json!({}), &json!({}), &json!({"containers": []})));
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
            let patch = resume(&live, &desired);
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

            prop_assert_eq!(resume(&resumed, &desired).0.len(), 1, "only the test operation is left");
            let once = patched.clone();
            json_patch::patch(&mut patched, &patch).unwrap();
            prop_assert_eq!(patched, once);
        }
    }
}
