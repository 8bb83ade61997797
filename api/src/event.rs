//! Reasons of the controller's Events. An Event about a condition has the reason of the condition, see
//! [`crate::conditions`].

// Reasons of the Go JobSet. Other programs watch for them.

/// Warning. A Job could not be created: the API server refuses it, or another object has its name.
pub const JOB_CREATION_FAILED: &str = "JobCreationFailed";
/// Warning. The headless Service could not be created.
pub const HEADLESS_SERVICE_CREATION_FAILED: &str = "HeadlessServiceCreationFailed";
/// Warning. A PersistentVolumeClaim could not be created.
pub const PVC_CREATION_FAILED: &str = "PVCCreationFailed";
/// Warning. The API server refuses to resume a Job with the resources that the JobSet's template has now (KEP-1150).
pub const FAILED_RESOURCE_PROPAGATION: &str = "FailedResourcePropagation";
/// Warning. The failure policy recreates all Jobs.
pub const RESTART_JOB_SET: &str = "RestartJobSetFailurePolicyAction";
/// Warning. The failure policy recreates all Jobs, and does not count it.
pub const RESTART_JOB_SET_UNCOUNTED: &str = "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction";
/// Warning. The failure policy recreates one Job.
pub const RESTART_JOB: &str = "RestartJobFailurePolicyAction";
/// Warning. The failure policy recreates one Job, and does not count it.
pub const RESTART_JOB_UNCOUNTED: &str = "RestartJobAndIgnoreMaxRestartsFailurePolicyAction";
/// Warning. The failure policy recreates the Jobs of one replicatedJob.
pub const RESTART_REPLICATED_JOB: &str = "RestartReplicatedJobFailurePolicyAction";
/// Warning. A Pod is deleted: it selects another topology domain than the one of its leader. Also the reason of the Pod's
/// condition DisruptionTarget.
pub const EXCLUSIVE_PLACEMENT_VIOLATION: &str = "ExclusivePlacementViolation";

// Reasons of this project alone.
/// Warning. The whole group begins to restart. The message has the manner, the epochs, the cause, and whether it counts.
pub const RESTARTING: &str = "Restarting";
/// Normal. A restart was requested, and is not carried out. The message says why.
pub const RESTART_REQUEST_NOTED: &str = "RestartRequestNoted";
/// Warning. The annotation with the request of a restart cannot be read, and is ignored.
pub const RESTART_REQUEST_INVALID: &str = "RestartRequestInvalid";
/// Normal. The group restart is complete: all Jobs are ready again.
pub const RESTARTED: &str = "Restarted";
/// Normal. All Pods have reported the same epoch, and their workers may start. A worker that does not has the Event WorkersNotRunning.
pub const BARRIER_LIFTED: &str = "BarrierLifted";
/// Warning. The group has waited at the barrier for long. The message names the Pods that it waits for. Normal if it only waits until
/// names have settled.
pub const BARRIER_WAITING: &str = "BarrierWaiting";
/// Warning. A Pod keeps failing before its worker can start.
pub const BARRIER_BLOCKED: &str = "BarrierBlocked";
/// Warning. No worker that tells of its progress makes any. The message says since when, at which step, and what was seen.
pub const PROGRESS_STALLED: &str = "ProgressStalled";
/// Normal. Workers make progress again.
pub const PROGRESS_RESUMED: &str = "ProgressResumed";
/// Warning. A worker makes no progress while others do.
pub const STRAGGLER: &str = "Straggler";
/// Warning. The group keeps failing soon after it began to run, and waits before it restarts.
pub const RESTART_BACKOFF: &str = "RestartBackoff";
/// Normal. The number of Jobs or Pods follows a change of the specification (KEP-463).
pub const RESIZED: &str = "Resized";
/// Warning. The stored specification cannot be carried out. The controller does nothing for the JobSet, or creates nothing.
pub const INVALID_SPECIFICATION: &str = "InvalidSpecification";
/// Warning. A message pattern of the failure policy can never match, and is ignored.
pub const MESSAGE_PATTERN_INVALID: &str = "MessagePatternInvalid";
/// Warning. The API server or a node cannot restart Pods in place.
pub const IN_PLACE_UNSUPPORTED: &str = "InPlaceUnsupported";
/// Warning. The JobSet is restarted by recreation, although it asks for restarts in place.
pub const IN_PLACE_RESTART_DISABLED: &str = "InPlaceRestartDisabled";
/// Warning. The status has lost its epochs. The controller waits for the reports of all Pods.
pub const EPOCHS_LOST: &str = "EpochsLost";
/// Warning. The status had lost its epochs. The controller has taken them from the reports of the Pods.
pub const EPOCHS_RESTORED: &str = "EpochsRestored";
/// Warning. A Pod reports an epoch that cannot be. A Pod that reports one above the next is deleted.
pub const EPOCH_INVALID: &str = "EpochInvalid";
/// Warning. A Pod is deleted, because its agent restarted and its worker did not.
pub const AGENT_RESTARTED_ALONE: &str = "AgentRestartedAlone";
/// Warning. A Pod is deleted, because it cannot come back, keeps failing before its worker runs, or leaves an avoided node. Its Job
/// creates another.
pub const POD_REPLACED: &str = "PodReplaced";
/// Warning. Failures are blamed on a node, and new Pods of the JobSet keep away from it. The message names the Pods that leave it.
pub const NODE_AVOIDED: &str = "NodeAvoided";
/// Normal. A node is no longer avoided: its time is over, or an index that failed there fails elsewhere as well.
pub const NODE_CLEARED: &str = "NodeCleared";
/// Warning. Failures are blamed on a node, and its Pod cannot leave it: the Pod, or who places it, selects the node by name.
pub const NODE_NOT_LEFT: &str = "NodeNotLeft";
/// Normal. A Pod has taken the place of one that left an avoided node. The message has its node, which may be the same.
pub const POD_MOVED: &str = "PodMoved";
/// Warning. Workers do not run although their Pods were created, or in place their barrier was lifted, some time ago. The message says
/// what the first of them waits for.
pub const WORKERS_NOT_RUNNING: &str = "WorkersNotRunning";
/// Normal. replicatedJobs have waited for others for some time, as `dependsOn` or `startupPolicy` says.
pub const START_WAITING: &str = "StartWaiting";
/// Warning. Jobs or Pods of an earlier attempt do not go, and Jobs wait for them. The message names the finalizers that keep them.
pub const RECREATION_BLOCKED: &str = "RecreationBlocked";
/// Warning. A Pod is given up, because its node has been unreachable for as long as the JobSet says. Also the reason of the Pod's
/// condition DisruptionTarget.
pub const NODE_LOST: &str = "NodeLost";
/// Warning. A Pod is deleted, because its node is cordoned, and the JobSet says that it leaves. Also the reason of the Pod's condition
/// DisruptionTarget.
pub const LEAVES_CORDONED_NODE: &str = "LeavesCordonedNode";
/// Warning. A Pod stays on a cordoned node that its JobSet leaves: the Pod may run on that node alone.
pub const STAYS_ON_CORDONED_NODE: &str = "StaysOnCordonedNode";
/// Warning. A Job of the JobSet has wrong labels, and is left alone. Its user decides.
pub const JOB_MISLABELLED: &str = "JobMislabelled";
/// Warning. Jobs or Pods carry the label of the JobSet but do not belong to it. They are left alone.
pub const NOT_CONTROLLED: &str = "NotControlled";
/// Warning. A RoleBinding that the agents need exists and belongs to somebody else.
pub const ROLE_BINDING_TAKEN: &str = "RoleBindingTaken";
/// Warning. The admission policy that confines the agents is missing, so their Role is not bound.
pub const AGENT_POLICY_MISSING: &str = "AgentPolicyMissing";
/// Warning. The API server refuses Pods of a Job to the Job controller. The message says why.
pub const PODS_REFUSED: &str = "PodsRefused";
/// Warning. The API server refuses another request of the controller for this JobSet.
pub const REFUSED: &str = "Refused";
