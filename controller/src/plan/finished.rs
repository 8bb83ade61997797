//! A finished JobSet: what still runs of it is deleted.

use std::ops::ControlFlow;

use jobset_api::conditions;

use super::pass::Pass;

pub(super) fn delete_what_still_runs(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if conditions::terminal(&pass.status.conditions).is_none() {
        return ControlFlow::Continue(());
    }
    for (name, job) in pass.seen.jobs() {
        if job.finished.is_none() && !job.deleting {
            pass.delete_job(name, &job.uid);
        }
    }
    ControlFlow::Break(())
}
