//! The observed state of a JobSet. Only the controller writes it. The agents read `deprecatedEpoch` and `syncedEpoch`.

use std::collections::BTreeMap;

use jobset_protocol::epoch::GroupEpochs;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    AgentStreamStatus, AvoidedNode, GroupProgress, HandledRestartRequest, Ledger, NodeStrike, RestartStrategy,
    conditions,
};

/// Fields that this release does not know, by name. The API server keeps those alone that the CustomResourceDefinition has.
pub type LaterFields = BTreeMap<String, Value>;

/// The observed state of the JobSet. Only the controller writes it. The agents in the Pods read deprecatedEpoch and
/// syncedEpoch. It is also the write-ahead log of the controller: the controller first counts a
/// restart here, and executes it only in a later reconciliation that reads the count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobSetStatus {
    /// conditions of the JobSet. Types:
    ///
    /// - Completed, Failed: the JobSet has finished. Final.
    /// - Suspended: the JobSet is suspended.
    /// - RestartingJobSet: the JobSet restarts, and not all of its Jobs are ready yet.
    /// - RestartBackoff: the JobSet keeps failing, and waits before it restarts.
    /// - BarrierWaiting: in place, workers have waited for others for long. The message names the Pods that are
    ///   missing.
    /// - BarrierBlocked: in place, a Pod keeps failing before its worker can start.
    /// - ProgressStalled: no worker that tells of its progress makes any. The message says since when, and what was seen.
    /// - WorkersNotRunning: workers have not started although they may. The message names their Pods, and what they wait for.
    /// - StartWaiting: replicatedJobs wait for others, as dependsOn or startupPolicy says.
    /// - StartupPolicyInProgress, StartupPolicyCompleted: progress of startupPolicy InOrder.
    /// - InPlaceUnsupported: the JobSet cannot restart in place. The message says why.
    /// - Invalid: the specification is invalid, and the controller does nothing; or it is too large, and nothing is
    ///   created.
    /// - ChildRefused: a Job, Service or claim cannot be created. The controller tries again.
    /// - InternalError: the controller has an error of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::markers::conditions")]
    pub conditions: Vec<Condition>,

    /// restarts is the number of times that all Jobs were recreated. The label `jobset.sigs.k8s.io/restart-attempt` of
    /// the current Jobs has this value. Restarts in place are not in it: groupRestarts has all restarts.
    #[serde(default)]
    pub restarts: i32,

    /// restartsCountTowardsMax is the number of restarts of the JobSet, by recreation or in place, that count towards
    /// maxRestarts. If the agents of the Go JobSet restart Pods, it has the value that the Go JobSet needs: the counted
    /// in-place attempts are the newest attempt minus `restarts - restartsCountTowardsMax`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts_count_towards_max: i32,

    /// groupRestarts is the number of restarts of the JobSet, by recreation or in place, including those that do not
    /// count towards maxRestarts. `kubectl get jobsets` shows it as RESTARTS.
    #[serde(default)]
    pub group_restarts: i32,

    /// executionAttempts is the number of the present execution of the JobSet, or of its last one (KEP-1282): 0 for the
    /// first. It rises by one with each resume and with each restart that recreates all Jobs. A restart in place does not
    /// count: its containers restart in Pods that exist. The annotation `jobset.sigs.k8s.io/execution-attempt` of Jobs and
    /// Pods has this number. Absent before the first execution, and without the feature gate ExecutionAttemptsTracking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub execution_attempts: Option<i32>,

    /// executionEnded says that the JobSet was suspended in the execution that executionAttempts counts: the next resume
    /// begins another one. The controller reads it; it is of no use to users.
    #[serde(default, skip_serializing_if = "is_false")]
    pub execution_ended: bool,

    /// startTime is when the JobSet became active: when it was created or resumed, or when its last restart as a whole began,
    /// by recreation or in place. A restart of single Jobs does not change it. Absent while the JobSet is suspended.
    /// activeDeadlineSeconds counts from here (KEP-1186). The controller maintains it only with the feature gate
    /// JobSetActiveDeadlineSeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub start_time: Option<Time>,

    /// terminalState is Completed or Failed when the JobSet has finished, and empty before. It never changes
    /// afterwards.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub terminal_state: String,

    /// jobsReady is the number of Jobs that are ready or have succeeded, a slash, and the number of all Jobs, such as
    /// 3/4.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jobs_ready: String,

    /// replicatedJobsStatus counts the Jobs and the restarts of each replicatedJob. A finished Job is only in succeeded
    /// or failed. Any other Job may be in several of ready, active and suspended, or in none of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub replicated_jobs_status: Vec<ReplicatedJobStatus>,

    /// deprecatedEpoch is the newest epoch that has ended (KEP-467). A Pod whose annotation `jobset.sigs.k8s.io/epoch`
    /// is less than or equal to it restarts in place. It never falls. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0), transform = crate::schema::markers::growing)]
    pub deprecated_epoch: i32,

    /// syncedEpoch is the epoch whose workers may run (KEP-467). It rises when all Pods have reported the next epoch. A
    /// Pod at this epoch lifts its barrier, and its workers start. It never falls. Default 0: no epoch has begun.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0), transform = crate::schema::markers::growing)]
    pub synced_epoch: i32,

    /// freeEpoch is the epoch that a restart leads to which the controller itself has begun and does not count: a
    /// resume, a change of size, a Job that was deleted. It is 0 once this epoch has begun.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub free_epoch: i32,

    /// epochTransitionTime is when syncedEpoch or deprecatedEpoch last rose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub epoch_transition_time: Option<MicroTime>,

    /// barrierUntil is the end of the wait before a restart (`spec.failurePolicy.restartBackoff`). Until then no epoch
    /// begins, although all Pods may have reported it, and no Job is recreated. Absent if no restart waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub barrier_until: Option<MicroTime>,

    /// recentRestarts are the last five restarts of the JobSet, the newest last. They stay when the Events of the
    /// restarts have expired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "atomic"))]
    pub recent_restarts: Vec<RecentRestart>,

    /// restartRequests are the requests of the annotation `jobset.sigs.k8s.io/restart-request` that the controller has
    /// dealt with, at most 32, the newest last: none of them is carried out again. Absent before the controller has read
    /// the JobSet for the first time, and after a controller has written the status that does not know the field: a
    /// request that is there then is noted, and not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub restart_requests: Option<Vec<HandledRestartRequest>>,

    /// nodeStrikes are the failures of the last 24 hours that are blamed on a node, at most sixteen, the newest last. Deletions and
    /// evictions are no strikes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub node_strikes: Vec<NodeStrike>,

    /// avoidedNodes are the nodes that new Pods of the JobSet keep away from, at most sixteen, the oldest first. Only JobSets with the
    /// annotation `jobset.sigs.k8s.io/move-after-failures` have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub avoided_nodes: Vec<AvoidedNode>,

    /// progress is how far the workers have come, as they tell their agents. Only JobSets with one of the annotations
    /// `jobset.sigs.k8s.io/stall-after` and `jobset.sigs.k8s.io/max-restarts-without-progress`, and those whose manifest sets
    /// `JOBSET_PROGRESS_FILE`, have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<GroupProgress>,

    /// ledger is where the time of the JobSet went, up to the last write of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,

    /// agentStream says how many Pods have their agent connected to a relay of the agent stream. Absent if the JobSet does not
    /// restart in place, if its Pods have no agents that can use the stream, and once it is suspended or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_stream: Option<AgentStreamStatus>,

    /// previousInPlaceRestartAttempt is deprecatedEpoch as a restart attempt of the Go JobSet, which counts from 0.
    /// Only the agents of the Go JobSet read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_in_place_restart_attempt: Option<i32>,

    /// currentInPlaceRestartAttempt is syncedEpoch as a restart attempt of the Go JobSet, which counts from 0. Only the
    /// agents of the Go JobSet read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_in_place_restart_attempt: Option<i32>,
    /// Fields of a later release, which come back as they are: a controller that is rolled back and forth again loses nothing.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

/// One restart of the whole group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecentRestart {
    /// number is groupRestarts including this restart.
    pub number: i32,
    /// strategy is how the JobSet restarted. With restartStrategy InPlaceRestart, it is Recreate if a worker could not
    /// restart in place. One of:
    ///
    /// - Recreate: each Job was created again as soon as it and its Pods were gone.
    /// - BlockingRecreate: all Jobs were created again when all of them and their Pods were gone.
    /// - InPlaceRestart: containers restarted in their Pods.
    pub strategy: RestartStrategy,
    /// counted says whether the restart counts towards maxRestarts.
    #[serde(default)]
    pub counted: bool,
    /// consecutiveFailures is the number of restarts in a row, this one included, before which the workers had not run
    /// for `restartBackoff.stableSeconds`. 1: the workers had run well. The wait before the restart grows with it.
    #[serde(default)]
    pub consecutive_failures: i32,
    /// startTime is when the worker ended, or when the controller began the restart if that was not observed.
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub start_time: MicroTime,
    /// completionTime is when all Jobs were ready again. Absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub completion_time: Option<MicroTime>,
    /// message says why the JobSet restarted: the worker that failed first, and how it ended. At most 256 bytes,
    /// because every agent receives the status.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub message: String,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

/// Number of Jobs of one replicatedJob by state, as the Go JobSet counts them. A finished Job is only in succeeded or
/// failed. Any other Job may be in several of ready, active and suspended, or in none of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedJobStatus {
    /// name of the replicatedJob.
    pub name: String,
    /// ready is the number of Jobs that have at least as many ready or succeeded Pods as they run at the same time.
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
    /// suspended is the number of suspended Jobs. A suspended Job whose Pods still exist is also active.
    #[serde(default)]
    pub suspended: i32,
    /// jobRestarts has the number of times that each Job was recreated alone, in the order of their indexes, by the
    /// actions RestartJob and RestartJobAndIgnoreMaxRestarts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "atomic"))]
    pub job_restarts: Vec<i32>,
    /// jobRestartsCountTowardsMax has the number of these restarts that count towards maxRestarts, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "atomic"))]
    pub job_restarts_count_towards_max: Vec<i32>,
    /// restarts is the number of times that all Jobs of this replicatedJob were recreated together, by the action
    /// RestartReplicatedJob.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: i32,
    /// restartsCountTowardsMax is the number of these restarts that count towards maxRestarts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts_count_towards_max: i32,
    /// syncedPods are the Pods that syncedEpoch began with, as ranges such as `0-3,6`. The number of a Pod is the index of
    /// its Job, times syncedParallelism, plus its completion index. Any other Pod is new: its first report of the next
    /// epoch is no failure. Absent until the controller has recorded them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synced_pods: Option<String>,
    /// syncedParallelism is the number of Pods of each Job when syncedPods was recorded. The controller reads both
    /// fields; they are of no use to users.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub synced_parallelism: i32,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

impl JobSetStatus {
    /// The status of the replicatedJob with this name.
    pub fn replicated_job(&self, name: &str) -> Option<&ReplicatedJobStatus> {
        self.replicated_jobs_status.iter().find(|status| status.name == name)
    }

    /// The same, if the usual place of this replicatedJob is known: its place in the specification.
    pub fn replicated_job_at(&self, place: usize, name: &str) -> Option<&ReplicatedJobStatus> {
        let usual = self.replicated_jobs_status.get(place).filter(|status| status.name == name);
        usual.or_else(|| self.replicated_job(name))
    }

    /// Whether the JobSet has completed or failed.
    pub fn is_finished(&self) -> bool {
        !self.terminal_state.is_empty() || conditions::terminal(&self.conditions).is_some()
    }

    /// The epochs that the agents follow.
    pub fn epochs(&self) -> GroupEpochs {
        GroupEpochs { synced: self.synced_epoch, deprecated: self.deprecated_epoch }
    }

    /// Value of [`crate::labels::JOB_RESTART_ATTEMPT`] of the current Job with this index: the number of times that it
    /// was recreated alone plus the number of times that its replicatedJob was recreated. The sum never decreases.
    pub fn job_attempt(&self, replicated_job: &str, job_index: i32) -> i32 {
        self.replicated_job(replicated_job).map_or(0, |status| status.job_attempt(job_index))
    }
}

impl ReplicatedJobStatus {
    /// The attempt of the current Job with this index: [`JobSetStatus::job_attempt`].
    pub fn job_attempt(&self, job_index: i32) -> i32 {
        self.restarts.saturating_add(self.alone(job_index))
    }

    /// Number of times that the Job with this index was recreated alone.
    fn alone(&self, job_index: i32) -> i32 {
        let index = usize::try_from(job_index).unwrap_or(usize::MAX);
        self.job_restarts.get(index).copied().unwrap_or(0)
    }
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(crate) fn is_zero(value: &i32) -> bool {
    *value == 0
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(crate) fn is_false(value: &bool) -> bool {
    !*value
}
