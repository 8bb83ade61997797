//! Skips JobSets that are being deleted and JobSets that another controller manages.

use std::ops::ControlFlow;

use jobset_api::labels;

use crate::reconciliation::Reconciliation;

/// The garbage collector deletes the children of a JobSet that is being deleted.
pub(super) fn if_being_deleted(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if reconciliation.observed.jobset.metadata.deletion_timestamp.is_some() {
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(())
}

/// Another controller, for example of another cluster, runs the JobSet and writes its status (`spec.managedBy`).
pub(super) fn if_managed_by_another(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let jobset = reconciliation.observed.jobset;
    if jobset.is_managed_here() {
        return ControlFlow::Continue(());
    }
    if jobset.spec.managed_by.as_deref() == Some(labels::MULTIKUEUE) && !reconciliation.observed.entry.is_unread() {
        complete_copied_status(reconciliation);
    }
    ControlFlow::Break(())
}

/// Derives the columns of `kubectl get jobsets` from the counts that Kueue has copied.
///
/// MultiKueue copies the status of the cluster in which the JobSet runs, by a patch of the fields that the Go JobSet has. It
/// neither copies nor removes the other fields. Restarts in place that do not count towards maxRestarts are in none of the
/// copied fields.
fn complete_copied_status(reconciliation: &mut Reconciliation<'_>) {
    let all = reconciliation.observed.jobset.spec.global_replicas();
    let status = &mut reconciliation.status;
    if status.replicated_jobs_status.is_empty() {
        return;
    }
    let ready: i64 =
        status.replicated_jobs_status.iter().map(|counts| i64::from(counts.ready) + i64::from(counts.succeeded)).sum();
    status.jobs_ready = format!("{ready}/{all}");
    status.group_restarts = status.restarts.max(status.restarts_count_towards_max);
}
