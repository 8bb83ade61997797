//! A child Job.

use std::collections::BTreeMap;

use jobset_api::effective::MAX_BACKOFF_LIMIT;
use jobset_api::{JobSet, ReplicatedJob, RestartStrategy, labels, names, restart_rules};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use kube::ResourceExt;
use kube::api::ObjectMeta;

/// Which Job of a JobSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of its replicatedJob in the specification.
    pub group_index: usize,
    /// Its index in that replicatedJob.
    pub job_index: i32,
}

/// The Job at `place`, for the attempt `attempt` (`status.restarts`).
///
/// # Panics
/// If the JobSet has no replicatedJob of that index.
pub fn job(jobset: &JobSet, place: Place, attempt: i32) -> Job {
    let group = &jobset.spec.replicated_jobs[place.group_index];
    let name = names::job(&jobset.name_any(), &group.name, place.job_index);
    let keys = keys(jobset, place, &name, attempt);

    let mut spec = group.template.spec.to_job_spec();
    let pod_metadata = spec.template.metadata.get_or_insert_default();
    pod_metadata.labels.get_or_insert_default().extend(keys.clone());
    pod_metadata.annotations.get_or_insert_default().extend(keys.clone());
    if jobset.spec.dns_hostnames_enabled() {
        let pod = spec.template.spec.get_or_insert_default();
        pod.subdomain = Some(jobset.subdomain().to_owned());
    }
    // With any strategy: the agent may still be in the template when the JobSet goes back to Recreate.
    spec.template.spec.iter_mut().for_each(restart_rules::compile_pod);
    if jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart {
        count_failures_by_index(&mut spec);
    }

    let template = group.template.metadata.clone().unwrap_or_default();
    let mut labels = template.labels.unwrap_or_default();
    let mut annotations = template.annotations.unwrap_or_default();
    labels.extend(keys.clone());
    annotations.extend(keys);
    Job {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: jobset.namespace(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![super::owner_reference(jobset)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// Counts failures by index, unless the user did: the Job controller then replaces Pods of different indexes without the
/// delay that grows with every failed or deleted Pod of the Job.
fn count_failures_by_index(spec: &mut JobSpec) {
    let indexed = spec.completion_mode.as_deref() == Some("Indexed");
    let never = spec.template.spec.as_ref().is_some_and(|pod| pod.restart_policy.as_deref() == Some("Never"));
    if indexed && never && spec.backoff_limit_per_index.is_none() {
        spec.backoff_limit_per_index = Some(MAX_BACKOFF_LIMIT);
    }
}

/// The labels, and equal annotations, of a Job and its Pods.
fn keys(jobset: &JobSet, place: Place, name: &str, attempt: i32) -> BTreeMap<String, String> {
    let groups = &jobset.spec.replicated_jobs;
    let group = &groups[place.group_index];
    let same_group = |other: &&ReplicatedJob| other.group_name() == group.group_name();
    let before = &groups[..place.group_index];
    // Wide enough for any number of Jobs, sane or not.
    let replicas = |group: &ReplicatedJob| i64::from(group.replicas());
    let job_index = i64::from(place.job_index);
    let global_index = before.iter().map(replicas).sum::<i64>() + job_index;
    let group_index = before.iter().filter(same_group).map(replicas).sum::<i64>() + job_index;
    let group_replicas = groups.iter().filter(same_group).map(replicas).sum::<i64>();
    let namespace = jobset.namespace().unwrap_or_default();

    let mut keys: BTreeMap<String, String> = [
        (labels::JOBSET_NAME, jobset.name_any()),
        (labels::JOBSET_UID, jobset.uid().unwrap_or_default()),
        (labels::REPLICATED_JOB_NAME, group.name.clone()),
        (labels::REPLICATED_JOB_REPLICAS, group.replicas().to_string()),
        (labels::GLOBAL_REPLICAS, jobset.spec.global_replicas().to_string()),
        (labels::JOB_INDEX, place.job_index.to_string()),
        (labels::JOB_GLOBAL_INDEX, global_index.to_string()),
        (labels::JOB_KEY, names::job_key(&namespace, name)),
        (labels::RESTART_ATTEMPT, attempt.to_string()),
        (labels::GROUP_NAME, group.group_name().to_owned()),
        (labels::GROUP_REPLICAS, group_replicas.to_string()),
        (labels::JOB_GROUP_INDEX, group_index.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    if let Some(coordinator) = &jobset.spec.coordinator {
        let job = names::job(&jobset.name_any(), &coordinator.replicated_job, coordinator.job_index);
        let pod = names::pod_hostname(&job, coordinator.pod_index);
        keys.insert(labels::COORDINATOR.to_owned(), format!("{pod}.{}", jobset.subdomain()));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn jobset() -> JobSet {
        serde_json::from_value(json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "train", "namespace": "ml", "uid": "u-1"},
            "spec": {
                "failurePolicy": {"restartStrategy": "InPlaceRestart"},
                "coordinator": {"replicatedJob": "driver"},
                "replicatedJobs": [
                    {"name": "driver", "groupName": "a", "template": {"spec": {"template": {"spec": {"containers": []}}}}},
                    {"name": "cpu", "replicas": 3, "template": {"spec": {"template": {"spec": {"containers": []}}}}},
                    {"name": "gpu", "groupName": "a", "replicas": 2, "template": {
                        "metadata": {"labels": {"mine": "1"}},
                        "spec": {
                            "completionMode": "Indexed", "backoffLimit": 2_147_483_647,
                            "podFailurePolicy": {"rules": [{"action": "FailJob", "setConditionReason": "X"}]},
                            "template": {"spec": {"restartPolicy": "Never", "containers": [
                                {"name": "w", "restartPolicyRules": [
                                    {"action": "RestartPod", "exitCodes": {"operator": "NoIn", "values": [0]}}]},
                            ]}},
                        },
                    }},
                ],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_job_carries_the_labels_of_the_go_jobset() {
        let job = job(&jobset(), Place { group_index: 2, job_index: 1 }, 4);
        let wanted: BTreeMap<String, String> = [
            ("jobset.sigs.k8s.io/coordinator", "train-driver-0-0.train"),
            ("jobset.sigs.k8s.io/global-replicas", "6"),
            ("jobset.sigs.k8s.io/group-name", "a"),
            ("jobset.sigs.k8s.io/group-replicas", "3"),
            ("jobset.sigs.k8s.io/job-global-index", "5"),
            ("jobset.sigs.k8s.io/job-group-index", "2"),
            ("jobset.sigs.k8s.io/job-index", "1"),
            ("jobset.sigs.k8s.io/job-key", &names::job_key("ml", "train-gpu-1")),
            ("jobset.sigs.k8s.io/jobset-name", "train"),
            ("jobset.sigs.k8s.io/jobset-uid", "u-1"),
            ("jobset.sigs.k8s.io/replicatedjob-name", "gpu"),
            ("jobset.sigs.k8s.io/replicatedjob-replicas", "2"),
            ("jobset.sigs.k8s.io/restart-attempt", "4"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let pod = job.spec.as_ref().unwrap().template.metadata.clone().unwrap();
        assert_eq!(pod.labels.unwrap(), wanted);
        assert_eq!(pod.annotations.unwrap(), wanted);
        let mut labels = job.metadata.labels.unwrap();
        assert_eq!(labels.remove("mine").as_deref(), Some("1"));
        assert_eq!(labels, wanted);
        assert_eq!(job.metadata.annotations.unwrap(), wanted);
        assert_eq!(job.metadata.name.as_deref(), Some("train-gpu-1"));
    }

    #[test]
    fn a_jobset_that_went_back_to_recreate_still_has_kubernetes_words() {
        let mut jobset = jobset();
        jobset.spec.failure_policy = None;
        let spec = serde_json::to_value(job(&jobset, Place { group_index: 2, job_index: 0 }, 0).spec.unwrap()).unwrap();
        let rules = &spec["template"]["spec"]["containers"][0]["restartPolicyRules"];
        assert_eq!(rules[0]["action"], "RestartAllContainers");
        assert_eq!(spec.get("backoffLimitPerIndex"), None);
    }

    #[test]
    fn a_job_in_place_has_kubernetes_words_and_failures_counted_by_index() {
        let job = job(&jobset(), Place { group_index: 2, job_index: 0 }, 0);
        let spec = serde_json::to_value(job.spec.unwrap()).unwrap();
        assert_eq!(spec["backoffLimitPerIndex"], 2_147_483_647);
        assert_eq!(spec["backoffLimit"], 2_147_483_647);
        assert_eq!(spec["podFailurePolicy"], json!({"rules": [{"action": "FailJob"}]}));
        assert_eq!(spec["template"]["spec"]["subdomain"], "train");
        assert_eq!(
            spec["template"]["spec"]["containers"][0]["restartPolicyRules"],
            json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}])
        );
    }
}
