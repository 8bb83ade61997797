//! Failure, success and startup policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RestartBackoff;
use crate::field::{Bounds, Number};

/// How the JobSet reacts to failures (KEP-262, KEP-467).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicy {
    /// maxRestarts is the number of counted restarts after which the next one fails the JobSet. Default 0: the first
    /// failure fails it. Restarts of the JobSet, of its replicatedJobs and of its Jobs share this number. If the JobSet
    /// is created with the annotation `jobset.sigs.k8s.io/restart-budget: Separate`, the JobSet, each replicatedJob and
    /// each Job have this number each.
    /// The annotation `jobset.sigs.k8s.io/additional-restarts` adds to this number. Users can set it while the JobSet
    /// runs. `status.restartsCountTowardsMax` has the counted restarts of the JobSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Bounds::NOT_NEGATIVE.min))]
    pub max_restarts: Option<i32>,

    /// restartStrategy specifies how the JobSet restarts. Default Recreate. One of:
    ///
    /// - Recreate: delete all Jobs. Each Job is created again as soon as it and its Pods are gone.
    /// - BlockingRecreate: delete all Jobs. No Job is created again before all of them and their Pods are gone.
    /// - InPlaceRestart: keep the Pods, and restart the containers in them. Only Pods that have failed are created
    ///   again. Every Pod needs an agent, which the annotation `jobset.sigs.k8s.io/inject-agent` adds. If a Job has
    ///   failed or a worker has succeeded, the JobSet restarts as with Recreate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Recreate"))]
    pub restart_strategy: Option<RestartStrategy>,

    /// restartBackoff specifies how long the JobSet waits before a restart if it keeps failing soon after it began to
    /// run. Default: in place, the first restart begins at once, and the next ones wait 1, 2, 4 and up to 300 seconds.
    /// If Jobs are recreated, the first three restarts begin at once. Set initialSeconds to 0 to restart without waits.
    /// The condition RestartBackoff is True while the JobSet waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_backoff: Option<RestartBackoff>,

    /// rules specify the action when a Job has failed. They are evaluated in order, and the first matching rule
    /// decides. Default, and if no rule matches: RestartJobSet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FailurePolicyRule>,
}

impl FailurePolicy {
    /// The fields that are numbers, with their bounds. Validation reports each that is out of bounds.
    pub(crate) fn numbers(&self) -> [Number; 1] {
        [("maxRestarts", self.max_restarts, Bounds::NOT_NEGATIVE)]
    }
}

/// How a JobSet restarts (KEP-467): the values of [`FailurePolicy::restart_strategy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RestartStrategy {
    #[default]
    Recreate,
    BlockingRecreate,
    InPlaceRestart,
}

/// One rule of the failure policy. All requirements must match. An empty list is no requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicyRule {
    /// name of the rule, used in conditions and events. At most 128 characters: letters, digits, `_`, `,` and `:`.
    /// Default `failurePolicyRule<index>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// action is taken if the rule matches. One of:
    ///
    /// - FailJobSet: fail the JobSet.
    /// - RestartJobSet: restart the JobSet, counted. If maxRestarts is reached, the JobSet fails.
    /// - RestartJobSetAndIgnoreMaxRestarts: restart the JobSet, not counted.
    /// - RestartJob: recreate only the failed Job, counted.
    /// - RestartJobAndIgnoreMaxRestarts: recreate only the failed Job, not counted.
    /// - RecreateJob: another name of RestartJob.
    /// - RestartReplicatedJob: recreate all Jobs of the failed Job's replicatedJob, counted.
    /// - FailJob: do not restart the failed Job. The other Jobs continue to run.
    pub action: FailurePolicyAction,

    /// onJobFailureReasons requires that the Job failed for one of these reasons, such as BackoffLimitExceeded or
    /// PodFailurePolicy. The reason is that of the Job's Failed condition, or that of `setConditionReason` in the Job's
    /// podFailurePolicy. Default, and if empty: any reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_job_failure_reasons: Vec<String>,

    /// onJobFailureMessagePatterns requires that the message of the Job's Failed condition matches one of these regular
    /// expressions (RE2 syntax). Default, and if empty: any message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_job_failure_message_patterns: Vec<String>,

    /// targetReplicatedJobs requires that the failed Job belongs to one of these replicatedJobs. Default, and if empty:
    /// any replicatedJob.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub target_replicated_jobs: Vec<String>,
}

/// The values of [`FailurePolicyRule::action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FailurePolicyAction {
    FailJobSet,
    RestartJobSet,
    RestartJobSetAndIgnoreMaxRestarts,
    RestartJob,
    RestartJobAndIgnoreMaxRestarts,
    RecreateJob,
    RestartReplicatedJob,
    FailJob,
}

/// When a JobSet succeeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuccessPolicy {
    /// operator specifies how many of the Jobs must complete. One of:
    ///
    /// - All: every Job. The default of successPolicy.
    /// - Any: at least one Job. The other Jobs are deleted then.
    pub operator: Operator,

    /// targetReplicatedJobs are the replicatedJobs whose Jobs count. Default, and if empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub target_replicated_jobs: Vec<String>,
}

/// The values of [`SuccessPolicy::operator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    All,
    Any,
}

/// The order in which replicatedJobs start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartupPolicy {
    /// startupPolicyOrder is the order in which replicatedJobs start. One of:
    ///
    /// - AnyOrder: all at the same time. The default of startupPolicy.
    /// - InOrder: in the order of the list. Each replicatedJob starts when the Jobs of the previous one are ready.
    ///   Not together with restartStrategy InPlaceRestart.
    pub startup_policy_order: StartupPolicyOrder,
}

/// The values of [`StartupPolicy::startup_policy_order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StartupPolicyOrder {
    AnyOrder,
    InOrder,
}
