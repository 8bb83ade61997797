//! Failure, success and startup policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a failure leads to (KEP-262, KEP-467).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicy {
    /// maxRestarts limits the restarts that are counted. One more fails the JobSet. The restarts of the JobSet, of its
    /// replicatedJobs and of its Jobs count together. With the annotation `jobset.sigs.k8s.io/restart-budget: Separate`
    /// on the JobSet, given when it is created, the JobSet, each replicatedJob and each Job may restart as often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_restarts: Option<i32>,

    /// restartStrategy says how the JobSet is restarted. Default Recreate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Recreate"))]
    pub restart_strategy: Option<RestartStrategy>,

    /// rules are evaluated in order when a Job has failed; the first that matches is carried out. Where none matches,
    /// the action is RestartJobSet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FailurePolicyRule>,
}

/// How a JobSet is restarted (KEP-467).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RestartStrategy {
    /// Recreate all Jobs, each as soon as its previous iteration and its Pods are gone.
    #[default]
    Recreate,
    /// Recreate all Jobs once all Jobs and Pods of the previous iteration are gone.
    BlockingRecreate,
    /// Restart healthy Pods in place and let the Job controller recreate failed ones. When a Job has failed, Recreate.
    InPlaceRestart,
}

/// One rule of the failure policy. All its requirements must hold; an empty list is no requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicyRule {
    /// name of the rule, used in conditions and events. Default `failurePolicyRule<index>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// action to carry out when the rule matches.
    pub action: FailurePolicyAction,

    /// onJobFailureReasons: the Job failed for one of these reasons, as in the reason of its Failed condition, or as
    /// given by `setConditionReason` in the Job's podFailurePolicy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_job_failure_reasons: Vec<String>,

    /// onJobFailureMessagePatterns: the message of the Job's Failed condition matches one of these regular
    /// expressions (RE2 syntax).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_job_failure_message_patterns: Vec<String>,

    /// targetReplicatedJobs: the Job belongs to one of these replicatedJobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub target_replicated_jobs: Vec<String>,
}

/// What a rule of the failure policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FailurePolicyAction {
    /// Fail the JobSet at once.
    FailJobSet,
    /// Restart the JobSet; counted, and failed instead when maxRestarts is spent.
    RestartJobSet,
    /// Restart the JobSet without counting it.
    RestartJobSetAndIgnoreMaxRestarts,
    /// Recreate the failed Job alone; counted.
    RestartJob,
    /// Recreate the failed Job alone without counting it.
    RestartJobAndIgnoreMaxRestarts,
    /// The name of RestartJob in KEP-262.
    RecreateJob,
    /// Recreate the Jobs of the failed Job's replicatedJob; counted.
    RestartReplicatedJob,
    /// Leave the Job failed and let the others run on.
    FailJob,
}

/// When a JobSet has succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuccessPolicy {
    /// operator: whether all or any of the Jobs must have completed.
    pub operator: Operator,

    /// targetReplicatedJobs that the operator looks at. Empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub target_replicated_jobs: Vec<String>,
}

/// Quantifier over Jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// Every Job.
    All,
    /// At least one Job.
    Any,
}

/// In which order replicatedJobs start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartupPolicy {
    /// startupPolicyOrder is that order.
    pub startup_policy_order: StartupPolicyOrder,
}

/// Order of replicatedJobs at startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StartupPolicyOrder {
    /// All at once.
    AnyOrder,
    /// As listed; each when the Jobs of the one before are ready.
    InOrder,
}
