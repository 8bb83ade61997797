//! The success policy: when the JobSet has completed.

use std::ops::ControlFlow;

use jobset_api::{Operator, SuccessPolicy, conditions};

use super::{Pass, has_completed};

pub(super) fn complete(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let spec = &pass.seen.jobset.spec;
    let all = SuccessPolicy { operator: Operator::All, target_replicated_jobs: Vec::new() };
    let policy = spec.success_policy.as_ref().unwrap_or(&all);
    let targeted =
        |name: &String| policy.target_replicated_jobs.is_empty() || policy.target_replicated_jobs.contains(name);

    let completed = pass.current_jobs().filter(|(_, job)| targeted(&job.replicated_job) && has_completed(job)).count();
    let expected: usize = spec
        .replicated_jobs
        .iter()
        .filter(|group| targeted(&group.name))
        .map(|group| usize::try_from(group.replicas()).unwrap_or(0))
        .sum();
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
    pass.tell(conditions::ALL_JOBS_COMPLETED, message.to_owned());
    ControlFlow::Break(())
}
