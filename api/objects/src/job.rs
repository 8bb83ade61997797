//! Partial Jobs.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

use crate::condition::{self, PartialCondition};
use crate::metadata;
use crate::pod::PartialContainer;

/// The fields of a Job that the programs read.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = Job)]
pub struct PartialJob {
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PartialJobSpec,
    /// Status. The Job controller writes it.
    #[serde(default)]
    pub status: PartialJobStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialJobSpec {
    /// Number of Pods that run at the same time. Absent means 1.
    pub parallelism: Option<i32>,
    /// Number of Pods that have to succeed.
    pub completions: Option<i32>,
    pub suspend: Option<bool>,
    /// `Indexed` or `NonIndexed`.
    pub completion_mode: String,
    /// Failures that the Job bears.
    pub backoff_limit: Option<i32>,
    /// Failures that each index bears.
    pub backoff_limit_per_index: Option<i32>,
    pub max_failed_indexes: Option<i32>,
    pub active_deadline_seconds: Option<i64>,
    pub template: PartialPodTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PartialPodTemplate {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    pub spec: PartialTemplateSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialTemplateSpec {
    pub containers: Vec<PartialContainer>,
    /// Init containers, sidecars included.
    pub init_containers: Vec<PartialContainer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialJobStatus {
    pub start_time: Option<Time>,
    /// Number of Pods that are pending or running.
    pub active: Option<i32>,
    pub ready: Option<i32>,
    pub succeeded: Option<i32>,
    pub failed: Option<i32>,
    /// Completion indexes that have succeeded, as `1,3-5`.
    pub completed_indexes: String,
    /// Completion indexes that have failed for good.
    pub failed_indexes: String,
    pub conditions: Vec<PartialCondition>,
}

impl PartialJob {
    /// Number of Pods that run at the same time.
    pub fn pods(&self) -> i32 {
        let parallelism = self.spec.parallelism.unwrap_or(1);
        self.spec.completions.map_or(parallelism, |completions| parallelism.min(completions))
    }

    /// Number of Pods that run at the same time until the Job completes, by the Pods that have succeeded. A Job without
    /// completions starts no further Pod once one has succeeded.
    pub fn remaining_pods(&self) -> i32 {
        let (parallelism, succeeded) = (self.spec.parallelism.unwrap_or(1), self.status.succeeded.unwrap_or(0));
        match self.spec.completions {
            Some(completions) => parallelism.min(completions.saturating_sub(succeeded)).max(0),
            None if succeeded > 0 => 0,
            None => parallelism,
        }
    }

    /// Whether the Job has completed or failed.
    pub fn is_finished(&self) -> bool {
        self.condition("Complete").is_some() || self.condition("Failed").is_some()
    }

    pub fn condition(&self, type_: &str) -> Option<&PartialCondition> {
        condition::find(&self.status.conditions, type_).filter(|condition| condition.is_true())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::none_has_succeeded(json!({"parallelism": 2, "completions": 2}), 0, 2)]
    #[case::one_has_succeeded(json!({"parallelism": 2, "completions": 2}), 1, 1)]
    #[case::more_completions_than_pods(json!({"parallelism": 2, "completions": 4}), 1, 2)]
    #[case::last_completion(json!({"parallelism": 2, "completions": 4}), 3, 1)]
    #[case::all_have_succeeded(json!({"parallelism": 2, "completions": 2}), 3, 0)]
    #[case::work_queue(json!({"parallelism": 2}), 0, 2)]
    #[case::work_queue_is_empty(json!({"parallelism": 2}), 1, 0)]
    #[case::defaults(json!({}), 0, 1)]
    fn remaining_pods_shrink_with_completions(#[case] spec: Value, #[case] succeeded: i32, #[case] expected: i32) {
        let job = json!({"metadata": {"name": "a"}, "spec": spec, "status": {"succeeded": succeeded}});
        let job: PartialJob = serde_json::from_value(job).unwrap();
        assert_eq!(job.remaining_pods(), expected);
    }
}
