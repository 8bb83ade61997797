//! The template of the Jobs of a replicatedJob: `batch/v1` JobTemplateSpec plus one field of KEP-262.
//!
//! `podFailurePolicy.rules[].setConditionReason` does not exist in Kubernetes. KEP-262 uses it, so
//! the type has it, and [`JobTemplateSpec::to_job_spec`] omits it.

use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Serialize};

/// Metadata and specification of the Jobs of a replicatedJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobTemplate {
    /// Labels and annotations of the Jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    #[serde(default)]
    pub spec: JobTemplateSpec,
}

/// `batch/v1` JobSpec, with the [`PodFailurePolicy`] of this crate. All other fields have the same meaning as there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct JobTemplateSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_limit_per_index: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual_selector: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failed_indexes: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_failure_policy: Option<PodFailurePolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_replacement_policy: Option<String>,
    /// Kubernetes 1.37 with the gate `WorkloadWithJob`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<batch::JobSchedulingConfiguration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_policy: Option<batch::SuccessPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    #[serde(default)]
    pub template: PodTemplateSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// How failed Pods affect the Job. The rules are evaluated in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodFailurePolicy {
    #[serde(default)]
    pub rules: Vec<PodFailurePolicyRule>,
}

/// One rule: that of `batch/v1`, plus the failure reason of KEP-262.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFailurePolicyRule {
    /// What to do: FailJob, FailIndex, Ignore or Count.
    #[serde(default)]
    pub action: String,
    /// Requirement on the container's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exit_codes: Option<batch::PodFailurePolicyOnExitCodesRequirement>,
    /// Requirement on the Pod's conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_pod_conditions: Option<Vec<batch::PodFailurePolicyOnPodConditionsPattern>>,
    /// Reason of the Job's failure if this rule caused it. Rules of the JobSet's failure policy match it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_condition_reason: Option<String>,
}

impl JobTemplateSpec {
    /// The specification for Kubernetes, without `setConditionReason`.
    ///
    /// The literal names every field of `batch/v1` JobSpec. If a newer Kubernetes adds a field, the code does not
    /// compile until the field is added here.
    pub fn to_job_spec(&self) -> batch::JobSpec {
        batch::JobSpec {
            active_deadline_seconds: self.active_deadline_seconds,
            backoff_limit: self.backoff_limit,
            backoff_limit_per_index: self.backoff_limit_per_index,
            completion_mode: self.completion_mode.clone(),
            completions: self.completions,
            managed_by: self.managed_by.clone(),
            manual_selector: self.manual_selector,
            max_failed_indexes: self.max_failed_indexes,
            parallelism: self.parallelism,
            pod_failure_policy: self.pod_failure_policy.as_ref().map(PodFailurePolicy::to_batch),
            pod_replacement_policy: self.pod_replacement_policy.clone(),
            scheduling: self.scheduling.clone(),
            selector: self.selector.clone(),
            success_policy: self.success_policy.clone(),
            suspend: self.suspend,
            template: self.template.clone(),
            ttl_seconds_after_finished: self.ttl_seconds_after_finished,
        }
    }
}

impl PodFailurePolicy {
    /// The failure reason that the rule with this index sets (KEP-262).
    pub fn reason(&self, rule: usize) -> Option<&str> {
        self.rules.get(rule)?.set_condition_reason.as_deref().filter(|reason| !reason.is_empty())
    }

    fn to_batch(&self) -> batch::PodFailurePolicy {
        batch::PodFailurePolicy { rules: self.rules.iter().map(PodFailurePolicyRule::to_batch).collect() }
    }
}

impl PodFailurePolicyRule {
    fn to_batch(&self) -> batch::PodFailurePolicyRule {
        batch::PodFailurePolicyRule {
            action: self.action.clone(),
            on_exit_codes: self.on_exit_codes.clone(),
            on_pod_conditions: self.on_pod_conditions.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_1_37_pass_from_template_to_job() {
        let spec = json!({
            "scheduling": {
                "schedulingPolicy": { "gang": { "minCount": 2 } },
                "schedulingConstraints": { "topology": [{ "key": "rack" }] },
            },
            "template": { "spec": {
                "containers": [],
                "evictionResponders": [{ "name": "example.com/checkpoint", "priority": 1000 }],
                "schedulingGroup": { "podGroupName": "group" },
            } },
        });
        let template: JobTemplate = serde_json::from_value(json!({ "spec": spec })).unwrap();
        assert_eq!(serde_json::to_value(template.spec.to_job_spec()).unwrap(), spec);
    }

    #[test]
    fn set_condition_reason_in_template_is_omitted_from_job() {
        let written = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "backoffLimit": 0,
                "podFailurePolicy": {"rules": [{
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "main", "operator": "In", "values": [3]},
                    "setConditionReason": "ExitCode3",
                }]},
                "template": {"spec": {"containers": [{"name": "main", "image": "python:3.10"}]}},
            },
        });
        let template: JobTemplate = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&template).unwrap(), written);

        let job = serde_json::to_value(template.spec.to_job_spec()).unwrap();
        assert_eq!(job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"], json!([3]));
        assert!(job["podFailurePolicy"]["rules"][0].get("setConditionReason").is_none());
    }
}
