//! How much memory a partial object takes while it is read, compared with its JSON, whatever a tenant has filled it with.

use std::fmt::Write as _;

use jobset_allocations::{Allocations, counted};
use jobset_objects::{PartialJob, PartialMetadata, PartialPod};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::core::PartialObjectMeta;
use rstest::rstest;
use serde::de::DeserializeOwned;

/// Bytes of memory for each byte of JSON, at most, at any time.
const MULTIPLE: f64 = 5.0;
/// Entries of the list or map that an object is filled with.
const ENTRIES: usize = 5_000;

/// Most bytes held while the object is read, for each byte of its JSON.
fn weight<T: DeserializeOwned>(json: &str) -> f64 {
    let (read, Allocations { most, .. }) = counted(|| serde_json::from_str::<T>(json));
    drop(read.unwrap_or_else(|error| unreachable!("{error}: {}", &json[..500])));
    let (most, json) = (u32::try_from(most).unwrap_or(u32::MAX), u32::try_from(json.len()).unwrap_or(u32::MAX));
    f64::from(most) / f64::from(json)
}

/// An object with these lists and maps, as the API server sends it. `%` is the number of each entry, of four digits.
fn object(parts: &[(&str, &str)]) -> String {
    let mut json = r#"{"metadata":{"name":"train-w-0","namespace":"ml","uid":"u","resourceVersion":"7""#.to_owned();
    let mut is_metadata = true;
    for (path, entry) in parts {
        let of_metadata = path.strip_prefix("metadata.");
        if of_metadata.is_none() {
            json += if is_metadata { "}" } else { "" };
            is_metadata = false;
        }
        let path = of_metadata.unwrap_or(path);
        let (parents, list) = path.rsplit_once('.').unwrap_or(("", path));
        let parents: Vec<&str> = parents.split('.').filter(|parent| !parent.is_empty()).collect();
        json.push(',');
        json.extend(parents.iter().map(|parent| format!(r#""{parent}":{{"#)));
        let (open, close) = if entry.starts_with('"') && entry.contains("\":") { ('{', '}') } else { ('[', ']') };
        let entries: Vec<String> =
            (0..ENTRIES).map(|number| entry.replace('%', &(1_000 + number).to_string())).collect();
        let _ = write!(json, r#""{list}":{open}{}{close}{}"#, entries.join(","), "}".repeat(parents.len()));
    }
    json + if is_metadata { "}}" } else { "}" }
}

const CONTAINER: &str = r#"{"name":"c%","image":"i","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}"#;
const RULES: &str = r#"{"name":"c%","image":"i","restartPolicyRules":[{"action":"Restart","exitCodes":{"operator":"In","values":[1]}},{"action":"Restart","exitCodes":{"operator":"In","values":[2]}}],"resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}"#;
const STATUS: &str =
    r#"{"name":"c%","state":{},"lastState":{},"ready":false,"restartCount":0,"image":"","imageID":""}"#;
const CONDITION: &str = r#"{"type":"A%","status":"True","lastProbeTime":null,"lastTransitionTime":null}"#;
const OWNER: &str = r#"{"apiVersion":"v1","kind":"A","name":"a%","uid":"u"}"#;
const MANAGER: &str = r#"{"manager":"m%","operation":"Update","fieldsV1":{"f:a":{"f:b":{"f:c":{"f:d":{".":{}}}}}}}"#;

#[rstest]
#[case::labels("metadata.labels", r#""%":"""#)]
#[case::own_labels("metadata.labels", r#""batch.kubernetes.io/%":"""#)]
#[case::annotations("metadata.annotations", r#""%":"""#)]
#[case::own_annotations("metadata.annotations", r#""batch.kubernetes.io/%":"""#)]
#[case::finalizers("metadata.finalizers", r#""a/%""#)]
#[case::owners("metadata.ownerReferences", OWNER)]
#[case::managers("metadata.managedFields", MANAGER)]
fn metadata_of_any_kind_weighs_little(#[case] path: &str, #[case] entry: &str) {
    let json = object(&[(path, entry)]);
    let weights = [
        weight::<PartialMetadata<Service>>(&json),
        weight::<PartialMetadata<PersistentVolumeClaim>>(&json),
        weight::<PartialMetadata<RoleBinding>>(&json),
        weight::<PartialJob>(&json),
        weight::<PartialPod>(&json),
    ];
    println!("{path}: {weights:.2?}, with all fields {:.2}", weight::<PartialObjectMeta<Service>>(&json));
    assert!(weights.iter().all(|weight| *weight <= MULTIPLE), "{weights:?}");
}

#[rstest]
#[case::volumes("spec.template.spec.volumes", r#"{"name":"v%","emptyDir":{}}"#)]
#[case::tolerations("spec.template.spec.tolerations", r#"{"key":"%"}"#)]
#[case::containers("spec.template.spec.containers", CONTAINER)]
#[case::init_containers("spec.template.spec.initContainers", CONTAINER)]
#[case::rules("spec.template.spec.containers", RULES)]
#[case::node_selector("spec.template.spec.nodeSelector", r#""%":"""#)]
#[case::conditions("status.conditions", CONDITION)]
fn job_weighs_little(#[case] path: &str, #[case] entry: &str) {
    let json = object(&[(path, entry)]);
    let weight_of_job = weight::<PartialJob>(&json);
    println!("{path}: {weight_of_job:.2}");
    assert!(weight_of_job <= MULTIPLE, "{weight_of_job}");
}

#[rstest]
#[case::volumes("spec.volumes", r#"{"name":"v%","emptyDir":{}}"#)]
#[case::containers("spec.containers", CONTAINER)]
#[case::init_containers("spec.initContainers", CONTAINER)]
#[case::rules("spec.initContainers", RULES)]
#[case::node_selector("spec.nodeSelector", r#""%":"""#)]
#[case::conditions("status.conditions", CONDITION)]
fn pod_weighs_little(#[case] path: &str, #[case] entry: &str) {
    let json = object(&[(path, entry)]);
    let weight_of_pod = weight::<PartialPod>(&json);
    println!("{path}: {weight_of_pod:.2}, whole {:.2}", weight::<Pod>(&json));
    assert!(weight_of_pod <= MULTIPLE, "{weight_of_pod}");
}

/// Each container has one status.
#[test]
fn pod_of_many_containers_weighs_little_when_they_run() {
    let running = STATUS.replace("{}", r#"{"running":{"startedAt":"2026-01-01T00:00:00Z"}}"#);
    for status in [STATUS, &running] {
        let json = object(&[("spec.containers", CONTAINER), ("status.containerStatuses", status)]);
        let weight = weight::<PartialPod>(&json);
        println!("{weight:.2}");
        assert!(weight <= MULTIPLE, "{weight}");
    }
}

#[test]
fn whole_job_of_volumes_weighs_much() {
    let weight = weight::<Job>(&object(&[("spec.template.spec.volumes", r#"{"name":"v%","emptyDir":{}}"#)]));
    println!("{weight:.2}");
    assert!(weight > MULTIPLE * 10.0, "{weight}");
}
