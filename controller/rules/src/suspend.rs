//! Suspends the Jobs of a suspended JobSet.

use jobset_api::conditions;

use crate::reconciliation::Reconciliation;
use crate::types::Action;

pub(super) fn suspend_jobs(reconciliation: &mut Reconciliation<'_>) {
    if !reconciliation.is_suspended() {
        return;
    }
    let running =
        reconciliation.current.iter().filter(|current| current.job.finished.is_none() && !current.job.suspended);
    let stopped: Vec<_> = running
        .map(|current| Action::SuspendJob { name: current.name.to_owned(), uid: current.job.uid.clone() })
        .collect();
    // The condition is set once all Jobs are observed to be suspended, because the API server may refuse a request.
    let all_are_suspended = stopped.is_empty();
    reconciliation.actions.extend(stopped);
    if all_are_suspended
        && reconciliation.set_condition(conditions::SUSPENDED, conditions::SUSPENDED_JOBS, "jobset is suspended")
    {
        reconciliation.note(conditions::SUSPENDED_JOBS, "jobset is suspended".to_owned());
    }
    reconciliation.clear_condition(conditions::RESTARTING, conditions::JOB_SET_SUSPENDED, "jobset is suspended");
}
