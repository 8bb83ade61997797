//! The observed state of a JobSet. The controller alone writes it, the agents read `deprecatedEpoch` and `syncedEpoch`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the controller has observed and decided. It is also its write-ahead log: a restart is first counted here, and
/// carried out only by a pass that reads the count back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobSetStatus {
    /// conditions of the JobSet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::markers::conditions")]
    pub conditions: Vec<Condition>,

    /// restarts is the number of times that all Jobs were recreated. The label `jobset.sigs.k8s.io/restart-attempt` of
    /// a Job of the current attempt has this value.
    #[serde(default)]
    pub restarts: i32,

    /// restartsCountTowardsMax is the number of restarts, by recreation or in place, that count towards maxRestarts. Where
    /// the agents of the Go JobSet restart Pods, it is what the Go JobSet needs: the attempts in place that count are the
    /// newest attempt less `restarts - restartsCountTowardsMax`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts_count_towards_max: i32,

    /// groupRestarts is the number of all restarts of the whole group, by recreation or in place, counted towards
    /// maxRestarts or not.
    #[serde(default)]
    pub group_restarts: i32,

    /// terminalState is Completed or Failed once the JobSet has finished, else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub terminal_state: String,

    /// jobsReady is the number of Jobs that are ready or have succeeded, and after a slash the number of all, as in 3/4.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jobs_ready: String,

    /// replicatedJobsStatus counts the Jobs of each replicatedJob.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub replicated_jobs_status: Vec<ReplicatedJobStatus>,

    /// deprecatedEpoch is the most recent deprecated epoch: a Pod whose epoch is not larger restarts in place
    /// (KEP-467).
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0), transform = crate::schema::markers::growing)]
    pub deprecated_epoch: i32,

    /// syncedEpoch is the most recent synced epoch: a Pod at this epoch lifts its barrier, and its workers run
    /// (KEP-467).
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0), transform = crate::schema::markers::growing)]
    pub synced_epoch: i32,

    /// freeEpoch is the epoch to which the controller itself makes the group advance (resume, recreation, resize). The
    /// advance to it is not counted as a restart.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub free_epoch: i32,

    /// previousInPlaceRestartAttempt is deprecatedEpoch in the words of the Go JobSet, which counts from 0. Its agents
    /// read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_in_place_restart_attempt: Option<i32>,

    /// currentInPlaceRestartAttempt is syncedEpoch in the words of the Go JobSet, which counts from 0. Its agents read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_in_place_restart_attempt: Option<i32>,
}

/// The Jobs of one replicatedJob, counted as the Go JobSet counts them. A Job that has finished is in succeeded or failed
/// alone. Any other may be in ready, active and suspended at once, or in none of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedJobStatus {
    /// name of the replicatedJob.
    pub name: String,
    /// ready is the number of Jobs whose ready and succeeded Pods are at least as many as the Job runs at once.
    #[serde(default)]
    pub ready: i32,
    /// succeeded is the number of completed Jobs.
    #[serde(default)]
    pub succeeded: i32,
    /// failed is the number of failed Jobs.
    #[serde(default)]
    pub failed: i32,
    /// active is the number of Jobs with at least one Pod that is pending or running.
    #[serde(default)]
    pub active: i32,
    /// suspended is the number of suspended Jobs. One whose Pods have not gone yet is active, too.
    #[serde(default)]
    pub suspended: i32,
    /// jobRestarts\[i\] is how often the Job with index i was recreated alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "atomic"))]
    pub job_restarts: Vec<i32>,
    /// jobRestartsCountTowardsMax\[i\] is how many of those count towards maxRestarts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "atomic"))]
    pub job_restarts_count_towards_max: Vec<i32>,
    /// restarts is how often the Jobs of this replicatedJob were recreated together (RestartReplicatedJob).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: i32,
    /// restartsCountTowardsMax is how many of those count towards maxRestarts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts_count_towards_max: i32,
}

impl JobSetStatus {
    /// Counters of the replicatedJob of this name.
    pub fn replicated_job(&self, name: &str) -> Option<&ReplicatedJobStatus> {
        self.replicated_jobs_status.iter().find(|status| status.name == name)
    }

    /// Value of [`crate::labels::JOB_RESTART_ATTEMPT`] of the current Job with this index: how often it was recreated
    /// alone, and how often with its replicatedJob. Both only grow, and so does their sum.
    pub fn job_attempt(&self, replicated_job: &str, job_index: i32) -> i32 {
        self.replicated_job(replicated_job).map_or(0, |status| status.restarts.saturating_add(status.alone(job_index)))
    }
}

impl ReplicatedJobStatus {
    /// How often the Job with this index was recreated alone.
    fn alone(&self, job_index: i32) -> i32 {
        let index = usize::try_from(job_index).unwrap_or(usize::MAX);
        self.job_restarts.get(index).copied().unwrap_or(0)
    }
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(value: &i32) -> bool {
    *value == 0
}
