//! Effective values of optional fields.
//!
//! Admission sets most of them, but a JobSet may be stored without admission. Controller and webhook read the values
//! here, so that both use the same ones.

use std::borrow::Cow;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

use crate::nodes::{LEAST_NODE_LOST, LONGEST_NODE_LOST, MOST_FAILURES};
use crate::restart_request::{Problems, RestartRequest};
use crate::syntax;
use crate::{
    FailurePolicyRule, JobSet, JobSetSpec, JobTemplateSpec, LeaveCordoned, OnStall, ReplicatedJob, RestartBudget,
    RestartStrategy, Scope, StallAfter, SuccessPolicy, labels, progress,
};

/// `backoffLimit` of a Job that never fails because of failed Pods (KEP-467).
pub const MAX_BACKOFF_LIMIT: i32 = i32::MAX;
/// `podReplacementPolicy` under which a Pod is replaced only after it has fully failed (KEP-467).
pub const REPLACE_FAILED: &str = "Failed";

/// Name that a rule of the failure policy has by default. `index` is its place in the list of rules.
pub(crate) fn default_rule_name(index: usize) -> String {
    format!("failurePolicyRule{index}")
}

impl JobSetSpec {
    /// The restart strategy. Default Recreate.
    pub fn restart_strategy(&self) -> RestartStrategy {
        self.failure_policy.as_ref().and_then(|policy| policy.restart_strategy).unwrap_or_default()
    }

    /// Maximum number of counted restarts. Default 0.
    pub fn max_restarts(&self) -> i32 {
        self.failure_policy.as_ref().and_then(|policy| policy.max_restarts).unwrap_or(0)
    }

    /// Whether the JobSet is suspended. Default false.
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or(false)
    }

    /// Whether Pods get stable DNS names. Default true.
    pub fn dns_hostnames_enabled(&self) -> bool {
        self.network.as_ref().and_then(|network| network.enable_dns_hostnames).unwrap_or(true)
    }

    /// Whether Pods get DNS names before they are ready. Default true: workers that wait at the barrier are not ready,
    /// and must still find each other.
    pub fn publish_not_ready_addresses(&self) -> bool {
        self.network.as_ref().and_then(|network| network.publish_not_ready_addresses).unwrap_or(true)
    }

    pub(crate) fn given_subdomain(&self) -> Option<&str> {
        self.network.as_ref()?.subdomain.as_deref().filter(|subdomain| !subdomain.is_empty())
    }

    /// Sum of `replicas` over all replicatedJobs.
    pub fn global_replicas(&self) -> i64 {
        self.replicated_jobs.iter().map(|group| i64::from(group.replicas())).sum()
    }

    /// Number of worker Pods that run at the same time, over all replicatedJobs (KEP-467, `countExpectedChildPods`).
    pub fn expected_pods(&self) -> i64 {
        self.replicated_jobs.iter().map(ReplicatedJob::expected_pods).fold(0, i64::saturating_add)
    }

    pub fn failure_rules(&self) -> &[FailurePolicyRule] {
        self.failure_policy.as_ref().map(|policy| policy.rules.as_slice()).unwrap_or_default()
    }
}

impl JobSet {
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Maximum number of counted restarts: `maxRestarts` and the [`labels::ADDITIONAL_RESTARTS`].
    pub fn allowed_restarts(&self) -> i32 {
        self.spec.max_restarts().saturating_add(self.additional_restarts())
    }

    /// Number of restarts of the whole JobSet that may still be counted: one more fails it.
    pub fn counted_restarts_left(&self) -> i32 {
        let spent = self.status.as_ref().map_or(0, |status| RestartBudget::of(self).spent(status, Scope::JobSet));
        self.allowed_restarts().saturating_sub(spent).max(0)
    }

    /// Number of restarts beyond `maxRestarts` ([`labels::ADDITIONAL_RESTARTS`]). 0 if the annotation is absent or is not
    /// such a number.
    pub fn additional_restarts(&self) -> i32 {
        self.annotation(labels::ADDITIONAL_RESTARTS).and_then(|number| number.parse().ok()).unwrap_or(0).max(0)
    }

    /// How old the youngest address of its Pods must be when an epoch begins ([`labels::SETTLE_NAMES`]). `None` if the annotation is
    /// absent or is no such duration.
    pub fn settle_names(&self) -> Option<Duration> {
        self.annotated_duration(labels::SETTLE_NAMES)
    }

    /// After what time a Pod is replaced that owes its return ([`labels::REPLACE_STUCK_PODS_AFTER`]). `None` if the annotation is
    /// absent, is no duration, or less than a minute.
    pub fn replace_stuck_pods_after(&self) -> Option<Duration> {
        self.annotated_duration(labels::REPLACE_STUCK_PODS_AFTER).filter(|after| after.as_secs() >= 60)
    }

    /// After how many failures that are blamed on one node a restart moves the Pod away ([`labels::MOVE_AFTER_FAILURES`]). 0: never.
    /// `None` if the annotation is absent or is no such number.
    pub fn move_after_failures(&self) -> Option<u32> {
        self.annotation(labels::MOVE_AFTER_FAILURES)?.parse().ok().filter(|number| *number <= MOST_FAILURES)
    }

    /// When Pods leave a node that is cordoned ([`labels::LEAVE_CORDONED`]). `None` if the annotation is absent, or has no such value.
    pub fn leave_cordoned(&self) -> Option<LeaveCordoned> {
        self.annotation(labels::LEAVE_CORDONED).and_then(LeaveCordoned::parse)
    }

    /// How long a node must have been unreachable for its Pods to be given up ([`labels::NODE_LOST_AFTER`]). `None` if the annotation
    /// is absent, is no duration, or not from [`LEAST_NODE_LOST`] to [`LONGEST_NODE_LOST`].
    pub fn node_lost_after(&self) -> Option<Duration> {
        let range = LEAST_NODE_LOST..=LONGEST_NODE_LOST;
        self.annotated_duration(labels::NODE_LOST_AFTER).filter(|after| range.contains(after))
    }

    /// For how long a worker may make no progress ([`labels::STALL_AFTER`]). `None` if the annotation is absent, or has no such value.
    pub fn stall_after(&self) -> Option<StallAfter> {
        self.annotation(labels::STALL_AFTER).and_then(StallAfter::parse)
    }

    /// The same before the first step ([`labels::STALL_FIRST`]). `None` if the annotation is absent, or has no such value.
    pub fn stall_first(&self) -> Option<Duration> {
        self.annotation(labels::STALL_FIRST).and_then(progress::duration)
    }

    /// What follows when no worker makes progress ([`labels::ON_STALL`]). It restarts nothing without a duration in
    /// [`labels::STALL_AFTER`].
    pub fn on_stall(&self) -> OnStall {
        let asked = self.annotation(labels::ON_STALL).and_then(OnStall::parse).unwrap_or_default();
        if matches!(self.stall_after(), Some(StallAfter::After(_))) { asked } else { OnStall::Notify }
    }

    /// After how many restarts in a row without progress the JobSet fails ([`labels::MAX_RESTARTS_WITHOUT_PROGRESS`]). `None` if the
    /// annotation is absent, or has no such number.
    pub fn max_restarts_without_progress(&self) -> Option<i32> {
        self.annotation(labels::MAX_RESTARTS_WITHOUT_PROGRESS)?.parse().ok().filter(|number| *number >= 1)
    }

    /// The request of a restart that the annotation [`labels::RESTART_REQUEST`] holds.
    pub fn restart_request(&self) -> Option<Result<RestartRequest, Problems>> {
        self.annotation(labels::RESTART_REQUEST).map(RestartRequest::parse)
    }

    fn annotated_duration(&self, key: &str) -> Option<Duration> {
        self.annotation(key)?.parse::<SignedDuration>().ok()?.try_into().ok()
    }

    /// The limit of restarts in words: `maxRestarts 2`, or `maxRestarts 2 and 1 additional restarts`.
    pub fn restart_limit(&self) -> String {
        match (self.spec.max_restarts(), self.additional_restarts()) {
            (limit, 0) => format!("maxRestarts {limit}"),
            (limit, additional) => format!("maxRestarts {limit} and {additional} additional restarts"),
        }
    }

    /// Name of the headless Service, and `subdomain` of every Pod.
    pub fn subdomain(&self) -> &str {
        self.spec.given_subdomain().or(self.metadata.name.as_deref()).unwrap_or_default()
    }

    /// Whether this project's controller is responsible for the JobSet.
    pub fn is_managed_here(&self) -> bool {
        self.spec.managed_by.as_deref().is_none_or(|manager| manager == labels::CONTROLLER_NAME)
    }
}

impl ReplicatedJob {
    /// Number of Jobs. Default 1.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }

    /// Number of Pods that its Jobs run at the same time. A negative number counts as none.
    pub fn expected_pods(&self) -> i64 {
        i64::from(self.replicas().max(0)) * i64::from(self.template.spec.pods().max(0))
    }

    /// Name of the group of the replicatedJob. Default `default`.
    pub fn group_name(&self) -> &str {
        self.group_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default")
    }
}

impl JobTemplateSpec {
    /// Number of Pods that a Job runs at the same time: `parallelism`, but at most `completions`.
    pub fn pods(&self) -> i32 {
        let parallelism = self.parallelism.unwrap_or(1);
        self.completions.map_or(parallelism, |completions| parallelism.min(completions))
    }
}

impl FailurePolicyRule {
    /// Name of the rule with this index, for the reason of a condition. The default name replaces a name that the API
    /// server would refuse there.
    pub fn condition_name(&self, index: usize) -> Cow<'_, str> {
        match self.name.as_deref().filter(|name| syntax::is_rule_name(name)) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(default_rule_name(index)),
        }
    }

    /// Whether the rule applies to Jobs of this replicatedJob. A rule without targets applies to all Jobs.
    pub fn targets(&self, replicated_job: &str) -> bool {
        targets(&self.target_replicated_jobs, replicated_job)
    }
}

impl SuccessPolicy {
    /// Whether the policy counts Jobs of the replicatedJob with this name. It counts all Jobs if it names no target.
    pub fn targets(&self, replicated_job: &str) -> bool {
        targets(&self.target_replicated_jobs, replicated_job)
    }
}

fn targets(targets: &[String], replicated_job: &str) -> bool {
    targets.is_empty() || targets.iter().any(|target| target == replicated_job)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const MAX: i64 = i32::MAX as i64;

    #[rstest]
    #[case::absent(json!({}), Value::Null, 1)]
    #[case::no_jobs(json!({ "parallelism": 4 }), json!(0), 0)]
    #[case::no_pods(json!({ "parallelism": 0 }), json!(i32::MAX), 0)]
    #[case::queue_without_completions(json!({ "parallelism": 4, "completionMode": "NonIndexed" }), json!(2), 8)]
    #[case::fewer_completions(json!({ "parallelism": 4, "completions": 3 }), json!(2), 6)]
    #[case::more_completions(json!({ "parallelism": 4, "completions": 9 }), json!(2), 8)]
    #[case::completions_alone(json!({ "completions": 9 }), json!(2), 2)]
    #[case::no_completions(json!({ "parallelism": 4, "completions": 0 }), json!(2), 0)]
    #[case::largest_parallelism(json!({ "parallelism": i32::MAX, "completions": i32::MAX }), json!(1), MAX)]
    #[case::largest_replicas(json!({ "parallelism": 1 }), json!(i32::MAX), MAX)]
    #[case::both(json!({ "parallelism": i32::MAX }), json!(i32::MAX), MAX * MAX)]
    #[case::negative_replicas(json!({ "parallelism": i32::MAX }), json!(i32::MIN), 0)]
    #[case::negative_parallelism(json!({ "parallelism": i32::MIN }), json!(i32::MAX), 0)]
    #[case::negative_completions(json!({ "parallelism": 4, "completions": -1 }), json!(2), 0)]
    #[case::both_negative(json!({ "parallelism": i32::MIN }), json!(i32::MIN), 0)]
    fn expected_pods_of_any_numbers(#[case] job: Value, #[case] replicas: Value, #[case] expected: i64) {
        let mut group = json!({ "name": "w", "template": { "spec": job } });
        if !replicas.is_null() {
            group["replicas"] = replicas;
        }
        let group: ReplicatedJob = serde_json::from_value(group).unwrap();
        assert_eq!(group.expected_pods(), expected);
        let several = JobSetSpec { replicated_jobs: vec![group; 4], ..JobSetSpec::default() };
        assert_eq!(several.expected_pods(), expected.saturating_mul(4));
    }
}
