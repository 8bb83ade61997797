//! Which budget the restarts of a JobSet spend ([`RestartBudget`]), and whether anything is left of it.

use std::ops::ControlFlow;

use jobset_api::{RestartBudget, Scope, conditions};

use super::Action;
use super::pass::Pass;
use super::restart::Cause;

/// Annotates a JobSet that was created without admission, by the Go JobSet or by an earlier release. No status is written
/// before that: the status that such a JobSet has says how it was counted.
pub(super) fn annotate(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if pass.status.is_finished() || RestartBudget::annotated(pass.seen.jobset).is_some() {
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
    let owner = match pass.budget {
        RestartBudget::Shared => "the JobSet, its replicatedJobs and its Jobs together".to_owned(),
        RestartBudget::Separate => scope.describe(pass.seen.jobset.metadata.name.as_deref().unwrap_or_default()),
    };
    let message = format!(
        "reached the maximum number of restarts of {owner}: {spent} of maxRestarts {max_restarts} are spent: {}",
        cause.message
    );
    pass.fail(conditions::REACHED_MAX_RESTARTS, message)
}
