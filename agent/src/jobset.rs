//! The part of a JobSet that the agent reads. The rest is skipped while it is parsed: the agent's memory is paid
//! thousands of times.

use jobset_protocol::IN_PLACE_RESTART;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::decide::JobSetState;

/// A JobSet (`jobset.x-k8s.io/v1alpha2`) as an agent sees it.
#[derive(Clone, Debug, Deserialize)]
pub struct JobSetView {
    /// `metadata`.
    pub metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// `metadata`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// `uid`.
    pub uid: String,
    /// `resourceVersion`, from which a watch can go on.
    pub resource_version: String,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Annotations {
    #[serde(rename = "jobset.sigs.k8s.io/disable-in-place-restart")]
    disable_in_place_restart: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    failure_policy: FailurePolicy,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FailurePolicy {
    #[serde(default)]
    restart_strategy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    synced_epoch: i32,
    #[serde(default)]
    deprecated_epoch: i32,
}

impl From<&JobSetView> for JobSetState {
    fn from(jobset: &JobSetView) -> Self {
        let in_place = jobset.spec.failure_policy.restart_strategy == IN_PLACE_RESTART;
        let disabled = jobset.metadata.annotations.disable_in_place_restart.is_some();
        Self {
            uid: jobset.metadata.uid.clone(),
            synced: jobset.status.synced_epoch,
            deprecated: jobset.status.deprecated_epoch,
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
    fn bypass_follows_from_strategy_and_annotation(
        #[case] strategy: &str,
        #[case] annotations: Value,
        #[case] bypass: bool,
    ) {
        let seen = state(json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "train", "uid": "u", "resourceVersion": "7", "annotations": annotations,
                "managedFields": [{"fieldsV1": {"f:spec": {}}}]},
            "spec": {"failurePolicy": {"restartStrategy": strategy, "maxRestarts": 3}, "replicatedJobs": [{}]},
            "status": {"syncedEpoch": 4, "deprecatedEpoch": 3, "conditions": []},
        }));
        assert_eq!(seen, JobSetState { uid: "u".into(), synced: 4, deprecated: 3, bypass });
    }

    #[test]
    fn new_jobset_without_failure_policy_and_status_is_at_epoch_zero_and_bypassed() {
        let seen = state(json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"replicatedJobs": []}}));
        assert_eq!(seen, JobSetState { uid: "u".into(), synced: 0, deprecated: 0, bypass: true });
    }
}
