//! Recreates a group that has lost an index for good while its Job goes on.
//!
//! An action FailIndex or a limit of its own fails one index, and the Job controller creates no other Pod for it. The group waits for
//! that worker for ever, so its loss is a failure of the group. In place, nobody can take its place.

use std::ops::ControlFlow;

use jobset_api::conditions;

use super::cause::{Cause, Counting};
use super::epochs::Epochs;
use super::reconciliation::{Current, Reconciliation, has_failed};
use super::{Trigger, incident, restart};
use crate::engine::pods::{JobPods, PodView};

pub(super) fn recreate(reconciliation: &mut Reconciliation<'_>, epochs: Epochs) -> ControlFlow<()> {
    let groups = reconciliation.groups();
    let lost = |current: &Current<'_>| {
        let size = groups[current.group].template.spec.pods();
        let (index, _) = current.job.failed.iter().next()?;
        i32::try_from(index).ok().filter(|index| *index < size)
    };
    let goes_on = |current: &&Current<'_>| !current.is_over() && !current.job.failing && !has_failed(current.job);
    let mut jobs = reconciliation.current.iter().filter(goes_on);
    let Some((current, index)) = jobs.find_map(|current| Some((*current, lost(current)?))) else {
        return ControlFlow::Continue(());
    };
    let pod = current.pods.into_iter().flat_map(JobPods::failed_last).find(|pod| pod.index == Some(index));
    let cause = cause(current.name, index, pod);
    let counting = if epochs.is_over() { Counting::Already } else { Counting::Counted };
    restart::recreate(reconciliation, counting, &cause)
}

fn cause(job: &str, index: i32, pod: Option<&PodView>) -> Cause {
    let failure = pod.and_then(|pod| pod.failure.as_deref());
    let exit = failure.and_then(|failure| failure.exit.as_ref());
    // The exit code comes early: the status keeps begin and end of a long message.
    let message = match pod {
        Some(pod) => {
            let node = pod.node.as_deref().unwrap_or("unknown");
            let exit = exit.map_or_else(|| "exit code unknown".to_owned(), ToString::to_string);
            format!("index {index} failed for good: Pod {} on node {node}, {exit}", pod.name)
        }
        None => format!("index {index} of Job {job} failed for good"),
    };
    Cause {
        reason: conditions::INDEX_FAILED.to_owned(),
        message,
        trigger: failure.map_or(Trigger::JobFailed, |failure| Trigger::PodFailed(incident::exit_class(failure))),
        failed_at: exit.and_then(|exit| exit.finished_at),
        is_loss: false,
    }
}
