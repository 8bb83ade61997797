//! The success policy: completes the JobSet when the policy is met, and fails it when failed Jobs make that impossible.

use std::ops::ControlFlow;

use jobset_api::{DependsOn, DependsOnStatus, Operator, ReplicatedJob, SuccessPolicy, conditions};

use super::reconciliation::{Reconciliation, first_few, has_completed, has_failed};
use super::{Fact, members};

pub(super) fn complete(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    complete_if_met(reconciliation)?;
    fail_if_all_have_finished(reconciliation)
}

/// Completes the JobSet and breaks if the success policy is met.
pub(super) fn complete_if_met(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let spec = &reconciliation.observed.jobset.spec;
    let all = SuccessPolicy { operator: Operator::All, target_replicated_jobs: Vec::new() };
    let policy = spec.success_policy.as_ref().unwrap_or(&all);
    let targeted = |name: &str| policy.targets(name);

    let expected = spec.replicated_jobs.iter().filter(|group| targeted(&group.name));
    let expected: i64 = expected.map(|group| i64::from(group.replicas())).sum();
    let statuses = reconciliation.status.replicated_jobs_status.iter().filter(|status| targeted(&status.name));
    let by_eviction = reconciliation.current.iter().filter(|it| {
        targeted(&reconciliation.groups()[it.group].name) && members::completed_by_eviction(reconciliation, it)
    });
    let by_eviction = i64::try_from(by_eviction.count()).unwrap_or(i64::MAX);
    let completed = statuses.map(|status| i64::from(status.succeeded)).sum::<i64>() - by_eviction;
    let met = match policy.operator {
        // A policy that targets no Jobs is a mistake, not a success.
        Operator::All => expected > 0 && completed >= expected,
        Operator::Any => completed > 0,
    };
    if !met {
        return ControlFlow::Continue(());
    }
    let message = "jobset completed successfully";
    conditions::COMPLETED.clone_into(&mut reconciliation.status.terminal_state);
    reconciliation.set_condition(conditions::COMPLETED, true, conditions::ALL_JOBS_COMPLETED, message);
    reconciliation.clear_condition(conditions::RESTARTING, conditions::JOB_SET_COMPLETED, "jobset completed");
    reconciliation.clear_waits("jobset completed");
    reconciliation.note(conditions::ALL_JOBS_COMPLETED, message.to_owned());
    reconciliation.facts.push(Fact::Completed);
    ControlFlow::Break(())
}

/// Fails the JobSet after the action FailJob when all Jobs have finished, no other Job can start, and the success policy is
/// not met (KEP-262).
fn fail_if_all_have_finished(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let failed: Vec<&str> = reconciliation.current.iter().filter(|it| has_failed(it.job)).map(|it| it.name).collect();
    if failed.is_empty() || reconciliation.current.iter().any(|current| current.job.finished.is_none()) {
        return ControlFlow::Continue(());
    }
    let never = never_to_start(reconciliation);
    let has_ended = |place: usize, group: &ReplicatedJob| {
        let status = reconciliation.status.replicated_job_at(place, &group.name);
        status.is_some_and(|status| status.succeeded.saturating_add(status.failed) >= group.replicas())
    };
    let mut groups = reconciliation.groups().iter().enumerate();
    if !groups.all(|(place, group)| has_ended(place, group) || never.contains(&group.name.as_str())) {
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
    let mut never: Vec<&str> = Vec::new();
    // A replicatedJob can depend on earlier ones only, so one walk in order is enough.
    for group in reconciliation.groups() {
        let cannot_be_met = |dependency: &DependsOn| {
            let failed = reconciliation.status.replicated_job(&dependency.name).is_some_and(|status| status.failed > 0);
            never.contains(&dependency.name.as_str()) || failed && dependency.status == DependsOnStatus::Complete
        };
        if group.depends_on.iter().any(cannot_be_met) {
            never.push(&group.name);
        }
    }
    never
}
