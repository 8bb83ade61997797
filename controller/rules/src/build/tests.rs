//! The children of a JobSet as YAML, feature by feature. `cases/build/<case>.yaml` holds a JobSet and the PriorityClasses of the
//! cluster; the snapshot of the same name holds the children. A snapshot writes the keys that are labels and annotations of
//! both the Job and its Pods once, as `labelsAndAnnotations`.

use jobset_api::{JobSet, RestartStrategy, labels};
use jobset_store::PriorityClasses;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use rstest::rstest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Attempt, DesiredJob, JobPlace, claim, claims, job, role_binding, service};

#[test]
fn children_match_snapshots() {
    let settings = {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../../../cases/build");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings
    };
    settings.bind(|| {
        insta::glob!("../../../cases/build", "*.yaml", |path| {
            let (jobset, classes) = read(&std::fs::read_to_string(path).unwrap());
            insta::assert_snapshot!("built", children(&jobset, &classes).join("---\n"));
        });
    });
}

fn read(case: &str) -> (JobSet, PriorityClasses) {
    let (mut jobset, mut classes) = (None, PriorityClasses::default());
    for document in serde_yaml_ng::Deserializer::from_str(case) {
        let object = Value::deserialize(document).unwrap();
        match object["kind"].as_str() {
            Some("JobSet") => jobset = Some(serde_json::from_value(object).unwrap()),
            Some("PriorityClass") => classes.apply(&serde_json::from_value::<PriorityClass>(object).unwrap()),
            kind => panic!("a case has no {kind:?}"),
        }
    }
    (jobset.expect("a JobSet"), classes)
}

fn children(jobset: &JobSet, classes: &PriorityClasses) -> Vec<String> {
    fn yaml(object: &impl Serialize) -> String {
        serde_yaml_ng::to_string(object).unwrap()
    }
    let mut children = Vec::new();
    if jobset.spec.dns_hostnames_enabled() {
        children.push(yaml(&service(jobset)));
    }
    children.extend(claims(jobset).map(|(place, _)| yaml(&claim(jobset, place))));
    if jobset.metadata.annotations.iter().flatten().any(|(key, _)| key == labels::INJECT_AGENT) {
        children.push(yaml(&role_binding(jobset, "jobset-agent")));
    }
    for (group_index, group) in jobset.spec.replicated_jobs.iter().enumerate() {
        for job_index in 0..group.replicas() {
            let status = jobset.status.clone().unwrap_or_default();
            let attempt = Attempt::current(&status, &group.name, job_index);
            let place = JobPlace { group_index, job_index };
            let desired = DesiredJob::of(jobset, place, attempt, jobset.spec.restart_strategy(), classes);
            let job = job(jobset, &desired);
            children.push(yaml(&with_common_part(serde_json::to_value(job).unwrap())));
        }
    }
    children
}

fn with_common_part(mut job: Value) -> Value {
    let maps = ["/metadata", "/spec/template/metadata"]
        .map(|metadata| [format!("{metadata}/labels"), format!("{metadata}/annotations")])
        .concat();
    let mut common = job.pointer(&maps[0]).and_then(Value::as_object).unwrap().clone();
    common.retain(|key, value| maps.iter().all(|map| job.pointer(map).unwrap().get(key) == Some(value)));
    for map in maps {
        job.pointer_mut(&map).and_then(Value::as_object_mut).unwrap().retain(|key, _| !common.contains_key(key));
    }
    job["labelsAndAnnotations"] = Value::Object(common);
    job
}

/// The only Job of a JobSet with this replicatedJob, with this strategy in effect.
fn only_job(strategy: RestartStrategy, replicated_job: &Value) -> Job {
    let jobset = json!({
        "metadata": {"name": "train", "namespace": "ml", "uid": "u-1"},
        "spec": {"failurePolicy": {"restartStrategy": "InPlaceRestart"}, "replicatedJobs": [replicated_job]},
    });
    let jobset: JobSet = serde_json::from_value(jobset).unwrap();
    let place = JobPlace { group_index: 0, job_index: 0 };
    job(&jobset, &DesiredJob::of(&jobset, place, Attempt::default(), strategy, &PriorityClasses::default()))
}

fn in_place_job(completions: i32, limit: Option<i32>, mode: &str, restart_policy: &str) -> Value {
    json!({"name": "w", "template": {"spec": {
        "completionMode": mode, "completions": completions, "parallelism": 4, "backoffLimitPerIndex": limit,
        "template": {"spec": {"restartPolicy": restart_policy, "containers": []}},
    }}})
}

#[rstest]
#[case::in_place(RestartStrategy::InPlaceRestart, in_place_job(4, None, "Indexed", "Never"), Some(i32::MAX))]
#[case::set_by_the_user(RestartStrategy::InPlaceRestart, in_place_job(4, Some(3), "Indexed", "Never"), Some(3))]
#[case::most_completions_of_the_job_api(
    RestartStrategy::InPlaceRestart,
    in_place_job(100_000, None, "Indexed", "Never"),
    Some(i32::MAX)
)]
#[case::too_many_completions(RestartStrategy::InPlaceRestart, in_place_job(100_001, None, "Indexed", "Never"), None)]
#[case::not_indexed(RestartStrategy::InPlaceRestart, in_place_job(4, None, "NonIndexed", "Never"), None)]
#[case::restarted_by_the_kubelet(RestartStrategy::InPlaceRestart, in_place_job(4, None, "Indexed", "OnFailure"), None)]
#[case::recreated(RestartStrategy::Recreate, in_place_job(4, None, "Indexed", "Never"), None)]
fn in_place_job_sets_backoff_limit_per_index_if_accepted(
    #[case] strategy: RestartStrategy,
    #[case] replicated_job: Value,
    #[case] expected: Option<i32>,
) {
    assert_eq!(only_job(strategy, &replicated_job).spec.unwrap().backoff_limit_per_index, expected);
}

#[test]
fn restart_rules_of_agent_are_compiled_with_recreate() {
    let replicated_job = json!({"name": "w", "template": {"spec": {"template": {"spec": {"containers": [
        {"name": "w", "restartPolicyRules": [{"action": "RestartPod", "exitCodes": {"operator": "NoIn", "values": [0]}}]},
    ]}}}}});
    let pod = only_job(RestartStrategy::Recreate, &replicated_job).spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.containers[0].restart_policy_rules.as_ref().unwrap()[0].action, "RestartAllContainers");
}
