//! Conditions of a JobSet: types, reasons, and how to set one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The success policy is met. Final.
pub const COMPLETED: &str = "Completed";
/// The JobSet has failed. Final.
pub const FAILED: &str = "Failed";
/// The JobSet is suspended.
pub const SUSPENDED: &str = "Suspended";
/// The startup policy InOrder is being carried out.
pub const STARTUP_POLICY_IN_PROGRESS: &str = "StartupPolicyInProgress";
/// The startup policy InOrder has been carried out.
pub const STARTUP_POLICY_COMPLETED: &str = "StartupPolicyCompleted";
/// The whole group restarts, in place or by recreation. False when all of its Jobs are ready again.
pub const RESTARTING: &str = "RestartingJobSet";
/// A Pod keeps failing before it reaches the barrier, so the group cannot start.
pub const BARRIER_BLOCKED: &str = "BarrierBlocked";
/// The group waits before it restarts, because it keeps failing soon after it began to run.
pub const RESTART_BACKOFF: &str = "RestartBackoff";
/// The group has waited at the barrier for long. The message names the Pods that it waits for.
pub const BARRIER_WAITING: &str = "BarrierWaiting";
/// Workers do not run although their Pods were created, or in place their barrier was lifted, some time ago. The message names their
/// Pods, and what they wait for.
pub const WORKERS_NOT_RUNNING: &str = "WorkersNotRunning";
/// replicatedJobs have waited for others for some time, as `dependsOn` or `startupPolicy` says. The message names them. That may be as
/// intended.
pub const START_WAITING: &str = "StartWaiting";
/// Pods have left cordoned nodes, by a restart that does not count. False when the next one may begin.
pub const LEFT_CORDONED_NODES: &str = "LeftCordonedNodes";
/// Jobs or Pods of an earlier attempt do not go, and Jobs of the new one wait for them. The message names them, and the finalizers
/// that keep them.
pub const RECREATION_BLOCKED: &str = "RecreationBlocked";
/// The JobSet has restartStrategy InPlaceRestart and cannot restart in place. The cause is its specification, the API
/// server or a node.
pub const IN_PLACE_UNSUPPORTED: &str = "InPlaceUnsupported";
/// The specification is invalid, and the controller does nothing for the JobSet; or it is too large, and nothing is created.
pub const INVALID: &str = "Invalid";
/// No worker that tells of its progress makes any. The message says since when, at which step, and what was seen.
pub const PROGRESS_STALLED: &str = "ProgressStalled";
/// The API server refuses a child object, or another object has its name. The controller retries without limit.
pub const CHILD_REFUSED: &str = "ChildRefused";
/// The controller cannot reconcile the JobSet because of an error of its own.
pub const INTERNAL_ERROR: &str = "InternalError";

/// Reason of [`IN_PLACE_UNSUPPORTED`]: with its specification, the workers would wait for each other forever.
pub const CANNOT_RESTART_IN_PLACE: &str = "CannotRestartInPlace";
/// Reason of [`COMPLETED`].
pub const ALL_JOBS_COMPLETED: &str = "AllJobsCompleted";
/// Reason of [`FAILED`]: a Job failed and there is no failure policy.
pub const FAILED_JOBS: &str = "FailedJobs";
/// Reason of [`FAILED`]: the counted restarts exceed maxRestarts.
pub const REACHED_MAX_RESTARTS: &str = "ReachedMaxRestarts";
/// Reason of [`FAILED`]: in place, one Pod failed more often than maxRestarts before its worker could start. Set by
/// this project alone; the Go JobSet has no such reason.
pub const WORKER_NOT_STARTED: &str = "WorkerNotStarted";
/// Reason of [`FAILED`]: a rule with action FailJobSet matched.
pub const FAIL_JOB_SET_ACTION: &str = "FailJobSetFailurePolicyAction";
/// Reason of [`FAILED`]: the JobSet was active for longer than activeDeadlineSeconds (KEP-1186).
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// Reason of [`FAILED`]: every Job has finished, at least one of them failed, and the success policy is not met.
pub const JOBS_LEFT_FAILED: &str = "JobsLeftFailed";
/// Reason of [`FAILED`]: so many restarts in a row in which the highest step did not rise as
/// [`MAX_RESTARTS_WITHOUT_PROGRESS`](crate::labels::MAX_RESTARTS_WITHOUT_PROGRESS) allows.
pub const NO_PROGRESS: &str = "NoProgress";
/// Reason of [`PROGRESS_STALLED`] being false: a worker makes progress, or the epoch has ended.
pub const PROGRESS_RESUMED: &str = "ProgressResumed";
/// Reason of [`PROGRESS_STALLED`] being false: a worker makes no progress while others do.
pub const STRAGGLER: &str = "Straggler";
/// Reason of [`RESTARTING`] being true: a Job failed, and no rule of the failure policy matched.
pub const DEFAULT_FAILURE_POLICY: &str = "DefaultFailurePolicy";
/// Prefix of the reason of [`RESTARTING`] being true. The name of the rule follows.
pub const FAILURE_POLICY_RULE: &str = "FailurePolicy_";
/// Reason of [`RESTARTING`] being true: workers restart in place.
pub const IN_PLACE_RESTART: &str = "InPlaceRestart";
/// Reason of [`RESTARTING`] being true: somebody has requested the restart.
pub const RESTART_REQUESTED: &str = "RestartRequested";
/// Reason of [`RESTARTING`] and of [`LEFT_CORDONED_NODES`] being true: Pods leave cordoned nodes.
pub const NODES_CORDONED: &str = "NodesCordoned";
/// Reason of [`LEFT_CORDONED_NODES`] being false: Pods may leave cordoned nodes again.
pub const COOLED_DOWN: &str = "CooledDown";
/// Reason of [`RESTARTING`] being true: the group cannot restart in place, because a worker has succeeded.
pub const SUCCEEDED_WORKERS: &str = "SucceededWorkers";
/// Reason of [`RESTART_BACKOFF`] being true.
pub const KEEPS_FAILING: &str = "KeepsFailing";
/// Reason of [`RESTART_BACKOFF`] being false: the wait is over.
pub const BACKOFF_OVER: &str = "BackoffOver";
/// Reason of [`BARRIER_WAITING`] and of [`WORKERS_NOT_RUNNING`] being true: Pods are missing, or have not started.
pub const PODS_MISSING: &str = "PodsMissing";
/// Reason of [`BARRIER_WAITING`] being true: Pods outside of the size of the JobSet could still start their workers.
pub const PODS_LEAVING: &str = "PodsLeaving";
/// Reason of [`BARRIER_WAITING`] being true: agents run and do not report.
pub const AGENTS_SILENT: &str = "AgentsSilent";
/// Reason of [`BARRIER_WAITING`] being true: a Pod has a new address, and DNS may still answer with its old one.
pub const NAMES_SETTLE: &str = "NamesSettle";
/// Reason of [`BARRIER_WAITING`] being false: all Pods have reported.
pub const BARRIER_REACHED: &str = "BarrierReached";
/// Reason of [`WORKERS_NOT_RUNNING`] being true: containers have not started, and may start yet.
pub const CONTAINERS_NOT_STARTED: &str = "ContainersNotStarted";
/// Reason of [`WORKERS_NOT_RUNNING`] being true: Pods cannot come back, and are replaced.
pub const CANNOT_RETURN: &str = "CannotReturn";
/// Reason of [`WORKERS_NOT_RUNNING`] being false: all workers run.
pub const WORKERS_RUN: &str = "WorkersRun";
/// Reason of [`START_WAITING`] being true.
pub const DEPENDENCIES_NOT_MET: &str = "DependenciesNotMet";
/// Reason of [`START_WAITING`] being false: no replicatedJob waits for another one.
pub const DEPENDENCIES_MET: &str = "DependenciesMet";
/// Reason of [`RECREATION_BLOCKED`] being true: they have been deleted for some time, and still exist.
pub const EARLIER_ATTEMPT_LEFT: &str = "EarlierAttemptLeft";
/// Reason of [`RECREATION_BLOCKED`] being false: they are gone.
pub const EARLIER_ATTEMPT_GONE: &str = "EarlierAttemptGone";
/// Reason of [`RESTARTING`] being true: an index of a Job has failed for good, and the Job goes on without it.
pub const INDEX_FAILED: &str = "IndexFailed";
/// Reason of [`RESTARTING`] being false: all Jobs are ready or have succeeded.
pub const JOBS_READY: &str = "JobsReady";
/// Reason of [`RESTARTING`] being false: the JobSet has failed.
pub const JOB_SET_FAILED: &str = "JobSetFailed";
/// Reason of [`RESTARTING`] being false: the JobSet has completed.
pub const JOB_SET_COMPLETED: &str = "JobSetCompleted";
/// Reason of [`RESTARTING`] being false: the JobSet was suspended.
pub const JOB_SET_SUSPENDED: &str = "JobSetSuspended";
/// Reason of [`STARTUP_POLICY_IN_PROGRESS`].
pub const IN_ORDER_IN_PROGRESS: &str = "InOrderStartupPolicyInProgress";
/// Reason of [`STARTUP_POLICY_COMPLETED`].
pub const IN_ORDER_COMPLETED: &str = "InOrderStartupPolicyCompleted";
/// Reason of [`SUSPENDED`] being true.
pub const SUSPENDED_JOBS: &str = "SuspendedJobs";
/// Reason of [`SUSPENDED`] being false.
pub const RESUMED_JOBS: &str = "ResumeJobs";

/// The condition of this type, if its status is True.
pub fn find_true<'a>(conditions: &'a [Condition], condition_type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == condition_type && condition.status == "True")
}

/// Whether the condition exists and its status is True.
pub fn is_true(conditions: &[Condition], condition_type: &str) -> bool {
    find_true(conditions, condition_type).is_some()
}

/// The final condition of a finished JobSet: Completed or Failed.
pub fn terminal(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|c| (c.type_ == COMPLETED || c.type_ == FAILED) && c.status == "True")
}

/// Whether this reason of [`FAILED`] says that `maxRestarts` ended the JobSet.
pub fn is_by_max_restarts(reason: &str) -> bool {
    matches!(reason, REACHED_MAX_RESTARTS | WORKER_NOT_STARTED)
}

/// Sets a condition. The transition time changes only with the status. Returns whether anything changed.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: bool,
    reason: &str,
    message: &str,
    now: &Time,
) -> bool {
    let status = if status { "True" } else { "False" };
    let mut wanted = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: now.clone(),
        observed_generation: None,
    };
    let Some(current) = conditions.iter_mut().find(|condition| condition.type_ == type_) else {
        conditions.push(wanted);
        return true;
    };
    if current.status == wanted.status {
        wanted.last_transition_time = current.last_transition_time.clone();
    }
    wanted.observed_generation = current.observed_generation;
    let changed = *current != wanted;
    *current = wanted;
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap())
    }

    #[test]
    fn set_with_same_status_keeps_transition_time() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, SUSPENDED, true, SUSPENDED_JOBS, "a", &at(1)));
        assert!(!set(&mut conditions, SUSPENDED, true, SUSPENDED_JOBS, "a", &at(2)));
        assert!(set(&mut conditions, SUSPENDED, true, SUSPENDED_JOBS, "b", &at(3)));
        assert_eq!(conditions[0].last_transition_time, at(1));
        assert!(set(&mut conditions, SUSPENDED, false, RESUMED_JOBS, "c", &at(4)));
        assert_eq!((conditions.len(), &conditions[0].last_transition_time), (1, &at(4)));
    }
}
