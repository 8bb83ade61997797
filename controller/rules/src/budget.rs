//! The budget that the restarts of a JobSet spend ([`RestartBudget`]): its annotation, and the check of what is left.

use std::ops::ControlFlow;

use jobset_api::{RestartBudget, Scope, conditions};

use crate::cause::Cause;
use crate::reconciliation::Reconciliation;
use crate::types::Action;

/// Annotates a JobSet that was created without admission, by the Go JobSet or by an earlier release.
///
/// The rule breaks before any rule changes the status, because the stored status shows how the restarts were counted.
pub(super) fn annotate(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if reconciliation.status.is_finished() || RestartBudget::annotated(reconciliation.observed.jobset).is_some() {
        return ControlFlow::Continue(());
    }
    reconciliation.actions.push(Action::AnnotateRestartBudget(reconciliation.budget));
    ControlFlow::Break(())
}

/// Whether the budget allows no other counted restart of `scope`.
pub(super) fn is_spent(reconciliation: &Reconciliation<'_>, scope: Scope<'_>) -> bool {
    reconciliation.budget.spent(&reconciliation.status, scope) >= reconciliation.observed.jobset.allowed_restarts()
}

/// Breaks if the budget allows no other counted restart of `scope`: the JobSet has failed.
pub(super) fn require(reconciliation: &mut Reconciliation<'_>, scope: Scope<'_>, cause: &Cause) -> ControlFlow<()> {
    if !is_spent(reconciliation, scope) {
        return ControlFlow::Continue(());
    }
    let jobset = reconciliation.observed.jobset;
    let spent = reconciliation.budget.spent(&reconciliation.status, scope);
    let owner = match reconciliation.budget {
        RestartBudget::Shared => "the JobSet, its replicatedJobs and its Jobs together".to_owned(),
        RestartBudget::Separate => scope.describe(reconciliation.observed.name()),
    };
    let message = format!(
        "reached the maximum number of restarts of {owner}: {spent} of {} are spent: {}",
        jobset.restart_limit(),
        cause.message
    );
    reconciliation.fail(conditions::REACHED_MAX_RESTARTS, message)
}
