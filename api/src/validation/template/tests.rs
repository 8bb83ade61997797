//! What needs more than one field. `webhook/tests/tables/template` has a case for each row.

use rstest::rstest;
use serde_json::{Value, json};

use super::super::testing::{Changes, accepts, admission_errors, assert_one, changed, in_place, jobset, read, rejects};
use super::super::validate_update;
use crate::gates::Gates;

const JOB: &str = "/spec/replicatedJobs/1/template/spec";
const POD: &str = "/spec/replicatedJobs/1/template/spec/template/spec";
const MAIN: &str = "/spec/replicatedJobs/1/template/spec/template/spec/containers/0";

fn at(parent: &str, field: &str) -> String {
    format!("{parent}/{field}")
}

#[rstest]
#[case::of_the_job_controller(json!({ "matchLabels": { "job-name": "train-workers-0" } }))]
#[case::other_values(json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["a"] }] }))]
fn selector_that_kubernetes_completes_is_accepted(#[case] selector: Value) {
    accepts(&[(&at(JOB, "selector"), selector)]);
}

#[test]
fn selector_of_own_labels_is_rejected() {
    let selector = json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["a"] }] });
    rejects(&[(&at(JOB, "selector"), selector)], "template.spec.selector: Forbidden: must not be set");
}

#[rstest]
#[case::job_name("job-name", "train-workers-1", true)]
#[case::prefixed("batch.kubernetes.io/job-name", "train-workers-0", true)]
#[case::other_job("job-name", "train-driver-0", false)]
fn pod_label_of_kubernetes_must_name_one_of_the_jobs(
    #[case] key: &str,
    #[case] value: &str,
    #[case] is_accepted: bool,
) {
    let pointer = format!("{JOB}/template/metadata");
    let errors = admission_errors(&jobset(&[(&pointer, json!({ "labels": { key: value } }))]));
    assert_eq!(errors.is_empty(), is_accepted, "{errors:?}");
}

#[rstest]
#[case::equal(json!({ "limits": { "a.b/c": "1" }, "requests": { "a.b/c": "1000m" } }), None)]
#[case::rounded_up(json!({ "limits": { "a.b/c": "0.9999999" } }), None)]
#[case::part(json!({ "limits": { "a.b/c": "0.5" } }), Some("limits[a.b/c]: Invalid value: \"0.5\": must be a whole number"))]
#[case::native(json!({ "requests": { "x.kubernetes.io/c": "0.5" } }), None)]
#[case::no_quantity(json!({ "limits": { "cpu": "x" }, "requests": { "cpu": "2" } }), None)]
#[case::more(json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "1.001" } }), Some("requests[cpu]: Invalid value: \"1.001\": must be at most the limit"))]
fn resources_are_compared_as_kubernetes_does(#[case] resources: Value, #[case] expected: Option<&str>) {
    let errors = admission_errors(&jobset(&[(&at(MAIN, "resources"), resources)]));
    match expected {
        Some(expected) => assert_one(&errors, expected),
        None => assert_eq!(errors, Vec::<String>::new()),
    }
}

#[rstest]
#[case::failed_indexes("maxFailedIndexes", json!(1), true)]
#[case::fail_index("podFailurePolicy", json!({ "rules": [{ "action": "FailIndex", "onExitCodes": { "operator": "In", "values": [1] } }] }), true)]
#[case::condition("podFailurePolicy", json!({ "rules": [{ "action": "Ignore", "onPodConditions": [] }] }), false)]
fn limit_per_index_of_the_controller_counts_in_place(
    #[case] field: &str,
    #[case] value: Value,
    #[case] is_accepted: bool,
) {
    let change = (&*at(JOB, field), value);
    assert_eq!(admission_errors(&in_place(std::slice::from_ref(&change))).is_empty(), is_accepted);
    assert_ne!(admission_errors(&jobset(&[change])), Vec::<String>::new());
}

#[rstest]
#[case::empty_texts(&[("dnsPolicy", json!("")), ("hostname", json!("")), ("priorityClassName", json!(""))])]
#[case::volume_of_no_kind(&[("volumes", json!([{ "name": "a" }]))])]
#[case::host_port_of_nothing(&[("hostNetwork", json!(true)), ("containers", json!([{ "name": "a", "image": "a:1", "ports": [{ "containerPort": 80, "hostPort": 0 }] }]))])]
fn pod_that_kubernetes_completes_is_accepted(#[case] fields: Changes<'_>) {
    let pointers: Vec<_> = fields.iter().map(|(field, value)| (at(POD, field), value.clone())).collect();
    accepts(&pointers.iter().map(|(pointer, value)| (pointer.as_str(), value.clone())).collect::<Vec<_>>());
}

#[test]
fn same_name_of_container_and_init_container_is_rejected() {
    let init = json!([{ "name": "setup", "image": "a:1" }, { "name": "main", "image": "a:1" }]);
    rejects(&[(&at(POD, "initContainers"), init)], "initContainers[1].name: Duplicate value: \"main\"");
}

/// Every template that was stored stays changeable, also in its size, of which a message tells.
#[rstest]
#[case::job("activeDeadlineSeconds", json!(-1))]
#[case::success("successPolicy", json!({ "rules": [{ "succeededCount": 9 }] }))]
#[case::failed_indexes("maxFailedIndexes", json!(9))]
#[case::pods("template/spec/dnsPolicy", json!("None"))]
fn update_of_stored_template_that_kubernetes_refuses_is_accepted(#[case] field: &str, #[case] value: Value) {
    let old = jobset(&[(&at(JOB, field), value)]);
    assert_ne!(admission_errors(&old), Vec::<String>::new());
    let size = json!(3);
    let resize = [(&*at(JOB, "completions"), size.clone()), (&*at(JOB, "parallelism"), size)];
    for changes in [[("/spec/suspend", json!(true)), ("/spec/replicatedJobs/1/replicas", json!(5))], resize] {
        let new = changed(old.clone(), &changes);
        assert_eq!(validate_update(&read(&old), &read(&new), Gates::default()).to_string(), "");
    }
    let worse =
        changed(old.clone(), &[("/spec/suspend", json!(true)), (&at(POD, "tolerations"), json!([{ "value": "a" }]))]);
    let errors = validate_update(&read(&old), &read(&worse), Gates::default()).to_string();
    assert!(errors.contains("tolerations[0].operator: Invalid value: \"\": must be Exists"), "{errors}");
}
