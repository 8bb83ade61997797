//! Defaults of a new JobSet. A field that is set does not change.
//!
//! A default is added only to a part of the object that exists, because a patch cannot add a field to an absent parent.
//! For example, a replicatedJob without a Job specification gets no default there.

use crate::effective::{MAX_BACKOFF_LIMIT, REPLACE_FAILED, default_rule_name};
use crate::{
    JobSetSpec, JobTemplateSpec, Operator, RestartStrategy, RetentionPolicy, StartupPolicy, StartupPolicyOrder,
    SuccessPolicy, VolumeRetentionPolicy,
};

/// The specification with defaults. The function is idempotent.
pub fn apply(spec: &JobSetSpec) -> JobSetSpec {
    let mut spec = spec.clone();
    let strategy = spec.restart_strategy();
    for replicated_job in &mut spec.replicated_jobs {
        job(&mut replicated_job.template.spec, strategy);
    }
    policies(&mut spec);
    network(&mut spec);
    claims(&mut spec);
    spec
}

/// Removes containers and volumes, the largest part of a JobSet. No default changes them or depends on them, so
/// [`apply`] sets the same fields of the result.
pub fn outline(spec: &mut JobSetSpec) {
    for pod in spec.replicated_jobs.iter_mut().filter_map(|job| job.template.spec.template.spec.as_mut()) {
        pod.containers.clear();
        pod.init_containers = None;
        pod.volumes = None;
    }
}

fn job(job: &mut JobTemplateSpec, strategy: RestartStrategy) {
    if *job == JobTemplateSpec::default() {
        return;
    }
    job.completion_mode.get_or_insert_with(|| "Indexed".to_owned());
    let in_place = strategy == RestartStrategy::InPlaceRestart;
    if in_place {
        // KEP-467, "Implementation - Webhook validation".
        job.backoff_limit.get_or_insert(MAX_BACKOFF_LIMIT);
        job.pod_replacement_policy.get_or_insert_with(|| REPLACE_FAILED.to_owned());
        // Either both are set or none. If only completions were set, Kubernetes would set parallelism to 1.
        let workers = job.parallelism.or(job.completions);
        (job.parallelism, job.completions) = (workers, job.completions.or(workers));
    }
    // Kubernetes refuses a podFailurePolicy with OnFailure. With InPlaceRestart, the restart rules of each container
    // decide.
    let never = in_place || job.pod_failure_policy.is_some();
    if let Some(pod) = &mut job.template.spec
        && pod.restart_policy.as_deref().unwrap_or_default().is_empty()
    {
        pod.restart_policy = Some(if never { "Never" } else { "OnFailure" }.to_owned());
    }
}

fn policies(spec: &mut JobSetSpec) {
    spec.success_policy
        .get_or_insert_with(|| SuccessPolicy { operator: Operator::All, target_replicated_jobs: Vec::new() });
    spec.startup_policy.get_or_insert(StartupPolicy { startup_policy_order: StartupPolicyOrder::AnyOrder });
    let rules = spec.failure_policy.iter_mut().flat_map(|policy| &mut policy.rules);
    for (index, rule) in rules.enumerate() {
        if rule.name.as_deref().unwrap_or_default().is_empty() {
            rule.name = Some(default_rule_name(index));
        }
    }
}

fn network(spec: &mut JobSetSpec) {
    let network = spec.network.get_or_insert_default();
    network.enable_dns_hostnames.get_or_insert(true);
    network.publish_not_ready_addresses.get_or_insert(true);
}

fn claims(spec: &mut JobSetSpec) {
    for policy in &mut spec.volume_claim_policies {
        policy.retention_policy.get_or_insert(VolumeRetentionPolicy { when_deleted: Some(RetentionPolicy::Delete) });
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: Value) -> JobSetSpec {
        serde_json::from_value(value).unwrap()
    }

    /// A specification with one replicatedJob that has this Job specification.
    fn with_job(job: &Value, failure_policy: &Value) -> JobSetSpec {
        spec(json!({
            "failurePolicy": failure_policy,
            "replicatedJobs": [{ "name": "workers", "template": { "spec": job } }],
        }))
    }

    fn job(spec: &JobSetSpec) -> &JobTemplateSpec {
        &spec.replicated_jobs[0].template.spec
    }

    fn restart_policy(spec: &JobSetSpec) -> Option<&str> {
        job(spec).template.spec.as_ref()?.restart_policy.as_deref()
    }

    #[test]
    fn defaults_of_plain_jobset_match_go_jobset() {
        let spec = apply(&with_job(&json!({ "template": { "spec": { "containers": [] } } }), &Value::Null));
        assert_eq!(
            serde_json::to_value(&spec).unwrap(),
            json!({
                "successPolicy": { "operator": "All" },
                "startupPolicy": { "startupPolicyOrder": "AnyOrder" },
                "network": { "enableDNSHostnames": true, "publishNotReadyAddresses": true },
                "replicatedJobs": [{ "name": "workers", "template": { "spec": {
                    "completionMode": "Indexed",
                    "template": { "spec": { "containers": [], "restartPolicy": "OnFailure" } },
                } } }],
            })
        );
    }

    #[test]
    fn defaults_with_in_place_restart_set_required_values() {
        let pod = json!({ "template": { "spec": { "containers": [] } } });
        let spec = apply(&with_job(&pod, &json!({ "restartStrategy": "InPlaceRestart" })));
        assert_eq!(job(&spec).backoff_limit, Some(i32::MAX));
        assert_eq!(job(&spec).pod_replacement_policy.as_deref(), Some("Failed"));
        assert_eq!(restart_policy(&spec), Some("Never"));
    }

    #[rstest]
    #[case::neither(json!({}), (None, None))]
    #[case::parallelism(json!({ "parallelism": 4 }), (Some(4), Some(4)))]
    #[case::completions(json!({ "completions": 4 }), (Some(4), Some(4)))]
    #[case::both(json!({ "parallelism": 2, "completions": 4 }), (Some(2), Some(4)))]
    fn defaults_with_in_place_restart_set_parallelism_and_completions_together(
        #[case] numbers: Value,
        #[case] expected: (Option<i32>, Option<i32>),
    ) {
        let mut sent = json!({ "template": { "spec": { "containers": [] } } });
        sent.as_object_mut().unwrap().extend(numbers.as_object().unwrap().clone());
        let spec = apply(&with_job(&sent, &json!({ "restartStrategy": "InPlaceRestart" })));
        assert_eq!((job(&spec).parallelism, job(&spec).completions), expected);
        let other = apply(&with_job(&sent, &Value::Null));
        let found = serde_json::to_value(job(&other)).unwrap();
        assert_eq!((&found["parallelism"], &found["completions"]), (&sent["parallelism"], &sent["completions"]));
    }

    #[rstest]
    #[case::recreate(json!({ "restartStrategy": "Recreate" }))]
    #[case::blocking_recreate(json!({ "restartStrategy": "BlockingRecreate" }))]
    #[case::not_said(json!({}))]
    fn defaults_with_other_strategies_leave_job_to_kubernetes(#[case] policy: Value) {
        let spec = apply(&with_job(&json!({ "template": { "spec": { "containers": [] } } }), &policy));
        assert_eq!((job(&spec).backoff_limit, job(&spec).pod_replacement_policy.as_deref()), (None, None));
        assert_eq!(restart_policy(&spec), Some("OnFailure"));
    }

    #[rstest]
    #[case::restart_policy("Always", "Always")]
    #[case::empty("", "Never")]
    fn restart_policy_when_set_is_kept(#[case] sent: &str, #[case] stored: &str) {
        let pod = json!({ "template": { "spec": { "containers": [], "restartPolicy": sent } } });
        let spec = apply(&with_job(&pod, &json!({ "restartStrategy": "InPlaceRestart" })));
        assert_eq!(restart_policy(&spec), Some(stored));
    }

    #[test]
    fn restart_policy_with_pod_failure_policy_defaults_to_never() {
        let pod = json!({ "podFailurePolicy": { "rules": [] }, "template": { "spec": { "containers": [] } } });
        assert_eq!(restart_policy(&apply(&with_job(&pod, &Value::Null))), Some("Never"));
    }

    #[test]
    fn invalid_values_are_kept_for_validation() {
        let pod =
            json!({ "backoffLimit": 3, "podReplacementPolicy": "TerminatingOrFailed", "completionMode": "NonIndexed" });
        let spec = apply(&with_job(&pod, &json!({ "restartStrategy": "InPlaceRestart" })));
        assert_eq!(job(&spec).backoff_limit, Some(3));
        assert_eq!(job(&spec).pod_replacement_policy.as_deref(), Some("TerminatingOrFailed"));
        assert_eq!(job(&spec).completion_mode.as_deref(), Some("NonIndexed"));
    }

    #[test]
    fn failure_policy_rule_without_name_is_named_by_index() {
        let rules = json!({ "rules": [{ "action": "FailJobSet" }, { "action": "FailJobSet", "name": "mine" }, { "action": "FailJobSet", "name": "" }] });
        let spec = apply(&with_job(&json!({}), &rules));
        let names: Vec<_> = spec.failure_policy.iter().flat_map(|it| &it.rules).map(|it| it.name.as_deref()).collect();
        assert_eq!(names, [Some("failurePolicyRule0"), Some("mine"), Some("failurePolicyRule2")]);
    }

    #[test]
    fn policies_and_network_when_set_are_kept() {
        let sent = json!({
            "successPolicy": { "operator": "Any", "targetReplicatedJobs": ["a"] },
            "startupPolicy": { "startupPolicyOrder": "InOrder" },
            "network": { "enableDNSHostnames": false, "subdomain": "s", "publishNotReadyAddresses": false },
            "volumeClaimPolicies": [{ "retentionPolicy": { "whenDeleted": "Retain" } }],
        });
        assert_eq!(serde_json::to_value(apply(&spec(sent.clone()))).unwrap(), sent);
    }

    #[test]
    fn claim_policy_without_retention_defaults_to_delete() {
        let spec = apply(&spec(json!({ "volumeClaimPolicies": [{}] })));
        let retention = spec.volume_claim_policies[0].retention_policy.as_ref().unwrap();
        assert_eq!(retention.when_deleted, Some(RetentionPolicy::Delete));
    }

    #[rstest]
    #[case::no_job_specification(json!({}))]
    #[case::no_pod_template(json!({ "parallelism": 2 }))]
    #[case::no_pod_specification(json!({ "parallelism": 2, "template": {} }))]
    fn defaults_of_absent_part_are_not_added(#[case] sent: Value) {
        let spec = apply(&with_job(&sent, &json!({ "restartStrategy": "InPlaceRestart" })));
        assert_eq!(job(&spec).template.spec, None);
        assert_eq!(job(&spec).completion_mode.is_some(), sent != json!({}));
    }

    #[test]
    fn defaults_applied_twice_change_nothing() {
        let policy = json!({ "restartStrategy": "InPlaceRestart", "rules": [{ "action": "FailJobSet" }] });
        let once = apply(&with_job(&json!({ "template": { "spec": { "containers": [] } } }), &policy));
        assert_eq!(apply(&once), once);
    }
}
