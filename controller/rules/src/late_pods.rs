//! Asks why a Job has fewer Pods than it should run.
//!
//! The API server may refuse Pods: a quota, a limit range, an admission webhook. It refuses them to the Job controller, which says so in
//! Events of the Job alone. The condition ChildRefused then names the refusal, as that of a request of this controller.

use k8s_openapi::jiff::SignedDuration;

use crate::reconciliation::{Current, Reconciliation};
use crate::types::Action;

/// After this time, a Pod that does not exist is late.
const LATE: SignedDuration = SignedDuration::from_secs(20);

/// Asks about one Job: what is refused to it is refused to the others, and to ask costs the API server a look at all Events of the
/// namespace.
pub(super) fn ask(reconciliation: &mut Reconciliation<'_>) {
    if reconciliation.is_suspended() {
        return;
    }
    let late = reconciliation.current.iter().find(|current| lacks_pods(current));
    let Some((Current { name, job, .. }, started)) = late.and_then(|it| Some((*it, it.job.started?))) else { return };
    // A Pod that is lost later has its successor after some seconds. The group is told to restart when it is lost.
    let turned = reconciliation.status.epoch_transition_time.as_ref().map_or(started, |time| time.0);
    if reconciliation.is_due(started.max(turned).saturating_add(LATE).unwrap_or(started)) {
        reconciliation.actions.push(Action::FindRefusal { job: name.to_owned(), uid: job.uid.clone() });
    }
}

/// Whether the Job should run more Pods than it does.
fn lacks_pods(current: &Current<'_>) -> bool {
    let job = current.job;
    let done = job.done_count().max(job.succeeded.into());
    !current.is_over() && !job.suspended && !job.failing && done.saturating_add(job.active.into()) < job.pods.into()
}
