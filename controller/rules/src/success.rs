//! The success policy: completes the JobSet when the policy is met, and fails it when failed Jobs make that impossible.

use std::collections::HashSet;
use std::ops::ControlFlow;

use jobset_api::{DependsOn, DependsOnStatus, JobTemplateSpec, Operator, ReplicatedJob, SuccessPolicy, conditions};
use jobset_store::pods::JobPods;
use jobset_store::{JobView, Ranges};
use k8s_openapi::api::batch::v1::SuccessPolicyRule;
use k8s_openapi::jiff::Timestamp;

use crate::members;
use crate::reconciliation::{Current, Reconciliation, first_few, has_completed, has_failed};
use crate::types::Fact;

pub(super) fn complete(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    complete_if_met(reconciliation)?;
    fail_if_all_have_finished(reconciliation)
}

/// Completes the JobSet and breaks if the success policy is met.
pub(super) fn complete_if_met(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let succeeded =
        reconciliation.status.replicated_jobs_status.iter().map(|status| i64::from(status.succeeded)).collect();
    if !is_met(reconciliation, succeeded) {
        return ControlFlow::Continue(());
    }
    let message = "jobset completed successfully";
    conditions::COMPLETED.clone_into(&mut reconciliation.status.terminal_state);
    reconciliation.set_condition(conditions::COMPLETED, conditions::ALL_JOBS_COMPLETED, message);
    reconciliation.clear_condition(conditions::RESTARTING, conditions::JOB_SET_COMPLETED, "jobset completed");
    reconciliation.clear_waits("jobset completed");
    reconciliation.note(conditions::ALL_JOBS_COMPLETED, message.to_owned());
    reconciliation.facts.push(Fact::Completed);
    ControlFlow::Break(())
}

/// Whether the success policy is met when each replicatedJob has so many completed Jobs.
fn is_met(reconciliation: &Reconciliation<'_>, mut succeeded: Vec<i64>) -> bool {
    let spec = &reconciliation.observed.jobset.spec;
    let all = SuccessPolicy { operator: Operator::All, target_replicated_jobs: Vec::new() };
    let policy = spec.success_policy.as_ref().unwrap_or(&all);
    let targets: HashSet<&str> = policy.target_replicated_jobs.iter().map(String::as_str).collect();
    for current in reconciliation.current.iter().filter(|it| members::completed_by_eviction(reconciliation, it)) {
        if let Some(succeeded) = succeeded.get_mut(current.group) {
            *succeeded -= 1;
        }
    }
    let groups = spec.replicated_jobs.iter().enumerate();
    let targeted = groups.filter(|(_, group)| targets.is_empty() || targets.contains(group.name.as_str()));
    let of_group = |(place, group): (usize, &ReplicatedJob)| {
        (i64::from(group.replicas()), succeeded.get(place).copied().unwrap_or(0))
    };
    let (expected, completed) = targeted.map(of_group).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    match policy.operator {
        // A policy that targets no Jobs is a mistake, not a success.
        Operator::All => expected > 0 && completed >= expected,
        Operator::Any => completed > 0,
    }
}

/// Whether the Job is about to complete: the Job controller says so, or it has not yet judged the Pods that have succeeded and
/// will find the success policy of the Job met.
///
/// Our own evaluation decides nothing: it only withholds a restart until the Job has a condition. The Job controller judges
/// failures before successes, so one that is about to fail does not complete.
pub(super) fn is_succeeding(job: &JobView, pods: Option<&JobPods>, template: &JobTemplateSpec) -> bool {
    if job.finished.is_some() || job.failing || job.suspended {
        return false;
    }
    let Some(pods) = pods.filter(|_| !job.succeeding) else { return job.succeeding };
    if template.completion_mode.as_deref() != Some("Indexed") {
        let succeeded = usize::try_from(job.succeeded).unwrap_or(0).max(pods.done_without_index());
        // Without completions, the Job also waits for its other Pods to end.
        return template.completions.is_some_and(|all| usize::try_from(all).is_ok_and(|all| succeeded >= all));
    }
    if pods.done().is_empty() {
        return false;
    }
    let completions = i64::from(job.completions.unwrap_or(job.parallelism));
    let done = job.completed.union(&pods.done().iter().copied().collect()).slice(0, completions);
    let rules = template.success_policy.iter().flat_map(|policy| &policy.rules);
    let is_met = |rule: &SuccessPolicyRule| {
        let count = rule.succeeded_count.map(i64::from);
        let Some(indexes) = rule.succeeded_indexes.as_deref().map(Ranges::parse) else {
            return count.is_some_and(|count| done.count() >= count);
        };
        // No index of a rule that could be met is beyond the completions.
        let reachable = indexes.slice(0, completions);
        let of_rule = done.count() + reachable.count() - done.union(&reachable).count();
        of_rule >= count.unwrap_or(indexes.count())
    };
    done.count() >= completions || rules.into_iter().any(is_met)
}

/// Whether the JobSet will have succeeded once the Jobs that are about to complete have done so. Nothing restarts or fails it
/// until then.
pub(super) fn is_decided(reconciliation: &Reconciliation<'_>) -> bool {
    if !reconciliation.current.iter().any(|current| current.succeeding) {
        return false;
    }
    let mut succeeded = vec![0; reconciliation.groups().len()];
    for current in reconciliation.current.iter().filter(|current| current.has_succeeded()) {
        succeeded[current.group] += 1;
    }
    is_met(reconciliation, succeeded)
}

/// Whether the JobSet succeeded before a Job failed at this time, as far as the Pods tell. The conditions of the Jobs alone tell
/// nothing: then a failure comes first, as with the Go JobSet.
pub(super) fn came_before(reconciliation: &Reconciliation<'_>, failed: Timestamp) -> bool {
    let ended_before = |current: &&Current<'_>| {
        current.has_succeeded() && current.pods.and_then(JobPods::done_at).is_none_or(|at| at <= failed)
    };
    let mut succeeded = vec![0; reconciliation.groups().len()];
    let mut is_proved = false;
    for current in reconciliation.current.iter().filter(ended_before) {
        succeeded[current.group] += 1;
        is_proved |= current.pods.and_then(JobPods::done_at).is_some();
    }
    is_proved && is_met(reconciliation, succeeded)
}

/// Fails the JobSet after the action FailJob when all Jobs have finished, no other Job can start, and the success policy is
/// not met (KEP-262).
fn fail_if_all_have_finished(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let failed: Vec<&str> = reconciliation.current.iter().filter(|it| has_failed(it.job)).map(|it| it.name).collect();
    if failed.is_empty() || reconciliation.current.iter().any(|current| current.job.finished.is_none()) {
        return ControlFlow::Continue(());
    }
    let never = never_to_start(reconciliation);
    let is_never: HashSet<&str> = never.iter().copied().collect();
    let has_ended = |place: usize, group: &ReplicatedJob| {
        let status = reconciliation.status.replicated_job_at(place, &group.name);
        status.is_some_and(|status| status.succeeded.saturating_add(status.failed) >= group.replicas())
    };
    let mut groups = reconciliation.groups().iter().enumerate();
    if !groups.all(|(place, group)| has_ended(place, group) || is_never.contains(group.name.as_str())) {
        return ControlFlow::Continue(());
    }
    let completed = reconciliation.current.iter().filter(|current| has_completed(current.job)).count();
    let failed = first_few(&failed);
    let never = if never.is_empty() { String::new() } else { format!("; never started: {}", never.join(", ")) };
    reconciliation.fail(
        conditions::JOBS_LEFT_FAILED,
        format!(
            "all Jobs have finished, {completed} completed, and the success policy is not met; failed: {failed}{never}"
        ),
    )
}

/// The replicatedJobs that can never start: they depend on the completion of a replicatedJob with a failed Job, or on one that
/// can never start.
fn never_to_start<'a>(reconciliation: &Reconciliation<'a>) -> Vec<&'a str> {
    let (mut never, mut is_never): (Vec<&str>, HashSet<&str>) = (Vec::new(), HashSet::new());
    // A replicatedJob can depend on earlier ones only, so one walk in order is enough.
    for group in reconciliation.groups() {
        let cannot_be_met = |dependency: &DependsOn| {
            let failed = reconciliation.status_of(&dependency.name).is_some_and(|status| status.failed > 0);
            is_never.contains(dependency.name.as_str()) || failed && dependency.status == DependsOnStatus::Complete
        };
        if group.depends_on.iter().any(cannot_be_met) {
            never.push(&group.name);
            is_never.insert(&group.name);
        }
    }
    never
}
