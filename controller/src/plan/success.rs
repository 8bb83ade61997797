//! The success policy: when the JobSet has completed. And when it cannot any more, because Jobs were left failed.

use std::ops::ControlFlow;

use jobset_api::{DependsOn, DependsOnStatus, Operator, ReplicatedJob, SuccessPolicy, conditions};

use super::pass::{Pass, first_few, has_completed, has_failed};
use super::{Fact, members};

pub(super) fn complete(pass: &mut Pass<'_>) -> ControlFlow<()> {
    complete_if_met(pass)?;
    fail_if_all_have_finished(pass)
}

/// Breaks if the success policy is met: the JobSet has completed.
pub(super) fn complete_if_met(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let spec = &pass.seen.jobset.spec;
    let all = SuccessPolicy { operator: Operator::All, target_replicated_jobs: Vec::new() };
    let policy = spec.success_policy.as_ref().unwrap_or(&all);
    let targeted = |name: &str| policy.targets(name);

    let expected = spec.replicated_jobs.iter().filter(|group| targeted(&group.name));
    let expected: i64 = expected.map(|group| i64::from(group.replicas())).sum();
    let statuses = pass.status.replicated_jobs_status.iter().filter(|status| targeted(&status.name));
    let hollow =
        pass.current.iter().filter(|it| targeted(&pass.groups()[it.group].name) && members::is_hollow(pass, it));
    let hollow = i64::try_from(hollow.count()).unwrap_or(i64::MAX);
    let completed = statuses.map(|status| i64::from(status.succeeded)).sum::<i64>() - hollow;
    let met = match policy.operator {
        // Of no Jobs at all, all have completed: that is a slip in the policy, not a success.
        Operator::All => expected > 0 && completed >= expected,
        Operator::Any => completed > 0,
    };
    if !met {
        return ControlFlow::Continue(());
    }
    let message = "jobset completed successfully";
    conditions::COMPLETED.clone_into(&mut pass.status.terminal_state);
    pass.set_condition(conditions::COMPLETED, true, conditions::ALL_JOBS_COMPLETED, message);
    pass.clear_condition(conditions::RESTARTING, conditions::JOB_SET_COMPLETED, "jobset completed");
    pass.tell(conditions::ALL_JOBS_COMPLETED, message.to_owned());
    pass.facts.push(Fact::Completed);
    ControlFlow::Break(())
}

/// After the action FailJob: nothing runs any more, nothing will, and the success policy is not met (KEP-262).
fn fail_if_all_have_finished(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let failed: Vec<&str> = pass.current.iter().filter(|it| has_failed(it.job)).map(|it| it.name).collect();
    if failed.is_empty() || pass.current.iter().any(|current| current.job.finished.is_none()) {
        return ControlFlow::Continue(());
    }
    let never = never_to_start(pass);
    let has_ended = |group: &ReplicatedJob| {
        let status = pass.status.replicated_job(&group.name);
        status.is_some_and(|status| status.succeeded.saturating_add(status.failed) >= group.replicas())
    };
    if !pass.groups().iter().all(|group| has_ended(group) || never.contains(&group.name.as_str())) {
        return ControlFlow::Continue(());
    }
    let completed = pass.current.iter().filter(|current| has_completed(current.job)).count();
    let failed = first_few(&failed);
    let never = if never.is_empty() { String::new() } else { format!("; never started: {}", never.join(", ")) };
    pass.fail(
        conditions::JOBS_LEFT_FAILED,
        format!(
            "all Jobs have finished, {completed} completed, and the success policy is not met; failed: {failed}{never}"
        ),
    )
}

/// The replicatedJobs that wait for one to complete in which a Job was left failed, and those that wait for them.
fn never_to_start<'a>(pass: &Pass<'a>) -> Vec<&'a str> {
    let mut never: Vec<&str> = Vec::new();
    // Only earlier ones can be waited for.
    for group in pass.groups() {
        let is_in_vain = |dependency: &DependsOn| {
            let failed = pass.status.replicated_job(&dependency.name).is_some_and(|status| status.failed > 0);
            never.contains(&dependency.name.as_str()) || failed && dependency.status == DependsOnStatus::Complete
        };
        if group.depends_on.iter().any(is_in_vain) {
            never.push(&group.name);
        }
    }
    never
}
