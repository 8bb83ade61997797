//! The state of a JobSet that its agents act on.

use jobset_api::{JobSet, RestartStrategy, agent, conditions, labels};
use jobset_store::version;
use jobset_stream::message::GroupState;
use kube::ResourceExt;

/// A state of a JobSet as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSnapshot {
    /// What agents act on.
    pub state: GroupState,
    /// resourceVersion. A newer state has a larger one.
    pub version: u64,
}

impl GroupSnapshot {
    /// Reads a JobSet as an agent reads it.
    pub fn of(jobset: &JobSet) -> Self {
        let status = jobset.status.as_ref();
        let pods = jobset.spec.replicated_jobs.iter().map(|job| {
            let of_each = u32::try_from(job.template.spec.pods()).unwrap_or(0);
            u32::try_from(job.replicas()).unwrap_or(0).saturating_mul(of_each)
        });
        let state = GroupState {
            uid: jobset.uid().unwrap_or_default(),
            synced: status.map_or(0, |status| status.synced_epoch),
            deprecated: status.map_or(0, |status| status.deprecated_epoch),
            failed: status.is_some_and(|status| status.terminal_state == conditions::FAILED),
            bypass: !restarts_in_place(jobset),
            pods: pods.fold(0, u32::saturating_add),
            pause: status.and_then(|status| status.progress.as_ref()?.longest_pause_seconds),
        };
        Self { state, version: version(jobset) }
    }
}

/// Whether Pods of the JobSet restart in place and can speak with a relay.
pub(super) fn uses_relay(jobset: &JobSet) -> bool {
    let mut pods = jobset.spec.replicated_jobs.iter().filter_map(|job| job.template.spec.template.spec.as_ref());
    restarts_in_place(jobset) && pods.any(agent::uses_relay)
}

fn restarts_in_place(jobset: &JobSet) -> bool {
    let disabled = jobset.annotations().contains_key(labels::DISABLE_IN_PLACE_RESTART);
    jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart && !disabled
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// A JobSet of two Jobs of three Pods each.
    fn jobset(strategy: &str, annotations: &Value) -> JobSet {
        let volume =
            json!({"name": "jobset-relay", "projected": {"sources": [{"configMap": {"name": "jobset-relay-ca"}}]}});
        serde_json::from_value(json!({
            "metadata": {"name": "train", "uid": "u", "resourceVersion": "7", "annotations": annotations},
            "spec": {
                "failurePolicy": {"restartStrategy": strategy},
                "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {
                    "parallelism": 3, "completions": 3,
                    "template": {"spec": {"containers": [], "volumes": [volume]}},
                }}}],
            },
            "status": {"syncedEpoch": 4, "deprecatedEpoch": 3, "terminalState": "Failed"},
        }))
        .unwrap()
    }

    #[rstest]
    #[case::in_place("InPlaceRestart", json!({}), true)]
    #[case::switched_off("InPlaceRestart", json!({(labels::DISABLE_IN_PLACE_RESTART): ""}), false)]
    #[case::recreate("Recreate", json!({}), false)]
    fn snapshot_has_what_agents_act_on(#[case] strategy: &str, #[case] annotations: Value, #[case] in_place: bool) {
        let jobset = jobset(strategy, &annotations);
        let state = GroupState {
            uid: "u".to_owned(),
            synced: 4,
            deprecated: 3,
            failed: true,
            bypass: !in_place,
            pods: 6,
            pause: None,
        };
        assert_eq!(GroupSnapshot::of(&jobset), GroupSnapshot { state, version: 7 });
        assert_eq!(uses_relay(&jobset), in_place);
    }

    #[test]
    fn jobset_whose_pods_know_no_relay_uses_none() {
        let mut jobset = jobset("InPlaceRestart", &json!({}));
        for job in &mut jobset.spec.replicated_jobs {
            job.template.spec.template.spec = Some(serde_json::from_value(json!({"containers": []})).unwrap());
        }
        assert!(!uses_relay(&jobset));
    }
}
