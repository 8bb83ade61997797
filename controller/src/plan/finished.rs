//! A finished JobSet: what still runs of it is deleted.

use std::ops::ControlFlow;

use super::pass::Pass;

pub(super) fn delete_what_still_runs(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if !pass.status.is_finished() {
        return ControlFlow::Continue(());
    }
    for (name, job) in pass.seen.jobs() {
        if job.finished.is_none() && !job.deleting {
            pass.delete_job(name, &job.uid);
        }
    }
    ControlFlow::Break(())
}
