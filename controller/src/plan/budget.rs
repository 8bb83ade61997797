//! Which budget the restarts of a JobSet spend ([`RestartBudget`]), and whether anything is left of it.

use std::ops::ControlFlow;

use jobset_api::{RestartBudget, Scope, conditions, names};

use super::Action;
use super::pass::Pass;
use super::restart::Cause;

/// Annotates a JobSet that was created without admission, by the Go JobSet or by an earlier release. No status is written
/// before that: the status that such a JobSet has says how it was counted.
pub(super) fn annotate(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let is_finished = conditions::terminal(&pass.status.conditions).is_some();
    if is_finished || RestartBudget::annotated(pass.seen.jobset).is_some() {
        return ControlFlow::Continue(());
    }
    pass.actions.push(Action::AnnotateRestartBudget(pass.budget));
    ControlFlow::Break(())
}

/// Breaks where nothing is left for another counted restart of `scope`: the JobSet has failed.
pub(super) fn require(pass: &mut Pass<'_>, scope: Scope<'_>, cause: &Cause) -> ControlFlow<()> {
    let max_restarts = pass.seen.jobset.spec.max_restarts();
    let spent = pass.budget.spent(&pass.status, scope);
    if spent < max_restarts {
        return ControlFlow::Continue(());
    }
    let whose = match (pass.budget, scope) {
        (RestartBudget::Shared, _) => " of the JobSet, its replicatedJobs and its Jobs together".to_owned(),
        (RestartBudget::Separate, Scope::JobSet) => " of the whole JobSet".to_owned(),
        (RestartBudget::Separate, Scope::ReplicatedJob(name)) => format!(" of replicatedJob {name}"),
        (RestartBudget::Separate, Scope::Job { replicated_job, index }) => {
            let jobset = pass.seen.jobset.metadata.name.as_deref().unwrap_or_default();
            format!(" of Job {}", names::job(jobset, replicated_job, index))
        }
    };
    let message = format!(
        "reached the maximum number of restarts{whose}: {spent} of maxRestarts {max_restarts} are spent: {}",
        cause.message
    );
    pass.fail(conditions::REACHED_MAX_RESTARTS, message)
}
