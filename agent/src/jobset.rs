//! The fields of a JobSet that the agent reads. Parsing skips all other fields, to save memory: every worker Pod has an agent.

use jobset_protocol::{FAILED, IN_PLACE_RESTART};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::decide::JobSetState;

/// The fields of a JobSet (`jobset.x-k8s.io/v1alpha2`) that the agent reads.
#[derive(Clone, Debug, Deserialize)]
pub struct JobSetView {
    pub metadata: JobSetMetadata,
    #[serde(default)]
    spec: JobSetSpec,
    #[serde(default)]
    status: JobSetStatus,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSetMetadata {
    pub uid: String,
    /// `resourceVersion`, from which a watch can continue.
    pub resource_version: String,
    #[serde(default)]
    annotations: JobSetAnnotations,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct JobSetAnnotations {
    #[serde(rename = "jobset.sigs.k8s.io/disable-in-place-restart")]
    disable_in_place_restart: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JobSetSpec {
    failure_policy: FailurePolicy,
    replicated_jobs: Vec<ReplicatedJob>,
}

#[derive(Clone, Debug, Deserialize)]
struct ReplicatedJob {
    #[serde(default = "one")]
    replicas: u32,
    #[serde(default)]
    template: JobTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct JobTemplate {
    #[serde(default)]
    spec: JobSpec,
}

#[derive(Clone, Debug, Deserialize)]
struct JobSpec {
    #[serde(default = "one")]
    parallelism: u32,
}

impl Default for JobSpec {
    fn default() -> Self {
        Self { parallelism: one() }
    }
}

/// The default of both numbers in Kubernetes.
fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FailurePolicy {
    restart_strategy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JobSetStatus {
    synced_epoch: i32,
    deprecated_epoch: i32,
    terminal_state: String,
    progress: JobSetProgress,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JobSetProgress {
    longest_pause_seconds: Option<u32>,
}

impl JobSetView {
    pub fn pods(&self) -> u32 {
        let jobs = self.spec.replicated_jobs.iter();
        let pods = jobs.map(|job| job.replicas.saturating_mul(job.template.spec.parallelism));
        pods.fold(0, u32::saturating_add)
    }

    /// `status.progress.longestPauseSeconds`.
    pub fn longest_pause(&self) -> Option<u32> {
        self.status.progress.longest_pause_seconds
    }
}

impl From<&JobSetView> for JobSetState {
    fn from(jobset: &JobSetView) -> Self {
        let in_place = jobset.spec.failure_policy.restart_strategy == IN_PLACE_RESTART;
        let disabled = jobset.metadata.annotations.disable_in_place_restart.is_some();
        Self {
            uid: jobset.metadata.uid.clone(),
            synced: jobset.status.synced_epoch,
            deprecated: jobset.status.deprecated_epoch,
            failed: jobset.status.terminal_state == FAILED,
            bypass: !in_place || disabled,
        }
    }
}

#[cfg(test)]
mod tests {
    use jobset_protocol::labels;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn state(jobset: Value) -> JobSetState {
        JobSetState::from(&serde_json::from_value::<JobSetView>(jobset).unwrap())
    }

    #[rstest]
    #[case::in_place("InPlaceRestart", json!({"a": "b"}), false)]
    #[case::switched_off("InPlaceRestart", json!({(labels::DISABLE_IN_PLACE_RESTART): ""}), true)]
    #[case::recreate("Recreate", json!({}), true)]
    #[case::blocking_recreate("BlockingRecreate", json!({}), true)]
    fn jobset_bypass_follows_from_strategy_and_annotation(
        #[case] strategy: &str,
        #[case] annotations: Value,
        #[case] bypass: bool,
    ) {
        let observed = state(json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "train", "uid": "u", "resourceVersion": "7", "annotations": annotations,
                "managedFields": [{"fieldsV1": {"f:spec": {}}}]},
            "spec": {"failurePolicy": {"restartStrategy": strategy, "maxRestarts": 3}, "replicatedJobs": [{}]},
            "status": {"syncedEpoch": 4, "deprecatedEpoch": 3, "terminalState": "Failed", "conditions": []},
        }));
        assert_eq!(observed, JobSetState { uid: "u".into(), synced: 4, deprecated: 3, failed: true, bypass });
    }

    #[test]
    fn pods_are_those_of_all_jobs() {
        let jobs = json!([{}, {"replicas": 2, "template": {"spec": {"parallelism": 3, "template": {}}}}]);
        let jobset = json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"replicatedJobs": jobs}});
        assert_eq!(serde_json::from_value::<JobSetView>(jobset).unwrap().pods(), 7);
    }

    #[test]
    fn jobset_without_policy_and_status_is_bypassed() {
        let observed = state(json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"replicatedJobs": []}}));
        assert_eq!(observed, JobSetState { uid: "u".into(), synced: 0, deprecated: 0, failed: false, bypass: true });
    }
}
