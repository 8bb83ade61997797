//! Suspends what runs.

use jobset_api::conditions;

use super::Action;
use super::pass::Pass;

pub(super) fn stop(pass: &mut Pass<'_>) {
    if !pass.seen.jobset.spec.is_suspended() {
        return;
    }
    let running = pass.current.iter().filter(|current| current.job.finished.is_none() && !current.job.suspended);
    let stopped: Vec<_> = running
        .map(|current| Action::SuspendJob { name: current.name.to_owned(), uid: current.job.uid.clone() })
        .collect();
    // Not before all of them were seen to be suspended: the API server may refuse a request.
    let all_are_suspended = stopped.is_empty();
    pass.actions.extend(stopped);
    if all_are_suspended
        && pass.set_condition(conditions::SUSPENDED, true, conditions::SUSPENDED_JOBS, "jobset is suspended")
    {
        pass.tell(conditions::SUSPENDED_JOBS, "jobset is suspended".to_owned());
    }
    pass.clear_condition(conditions::RESTARTING, conditions::JOB_SET_SUSPENDED, "jobset is suspended");
}
