//! Restarts without progress: a group that fails again and again at the same step fails for good, whatever budget is left.

use std::ops::ControlFlow;

use jobset_api::{GroupProgress, conditions};

use crate::progress::{self, EpochResult};
use crate::reconciliation::Reconciliation;

/// Judges the epoch that has ended, before the next one begins. Breaks if so many restarts in a row have brought no further step as the
/// JobSet allows: it has failed.
///
/// Progress is when the highest step of any replicatedJob rises. What takes a Pod away, or asks for a restart, says nothing of its
/// worker, and of an epoch whose last steps nobody tells nothing is known: such a restart counts for nothing here, unless there was
/// progress before it.
pub(super) fn judge(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let EpochResult { is_without_progress, lost } = progress::conclude(reconciliation);
    let limit = reconciliation.observed.jobset.max_restarts_without_progress();
    match (reconciliation.status.progress.as_ref(), limit) {
        (Some(progress), Some(limit)) if is_without_progress && progress.restarts_without_progress >= limit => {
            let last = reconciliation.status.recent_restarts.last();
            let why = last.map(|last| format!(": {}", last.message)).unwrap_or_default();
            let message = format!(
                "{} restarts in a row have brought no step beyond {}, as many as its annotation allows{why}",
                progress.restarts_without_progress,
                steps(progress)
            );
            reconciliation.fail(conditions::NO_PROGRESS, message)
        }
        _ => {
            reconciliation.lost = lost;
            ControlFlow::Continue(())
        }
    }
}

/// `1200`, or `1200 of workers, 900 of loader`.
fn steps(progress: &GroupProgress) -> String {
    let told = || progress.replicated_jobs.iter().filter_map(|kept| Some((kept.step?, &kept.name)));
    if told().count() == 1 {
        return told().map(|(step, _)| step.to_string()).collect();
    }
    told().map(|(step, name)| format!("{step} of {name}")).collect::<Vec<_>>().join(", ")
}
