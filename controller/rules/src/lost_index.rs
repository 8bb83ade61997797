//! Recreates a group that has lost indexes for good while their Job goes on.
//!
//! An action FailIndex or a limit of its own fails one index, and the Job controller creates no other Pod for it. The group waits for
//! that worker for ever, so its loss is a failure of the group. In place, nobody can take its place.

use std::ops::ControlFlow;

use jobset_api::conditions;
use jobset_store::pods::{FailedWorker, JobPods};

use crate::cause::{Cause, Counting};
use crate::epochs::Epochs;
use crate::nodes::blame::{self, WorkerEnd};
use crate::reconciliation::{Current, Reconciliation, has_failed, node_name};
use crate::types::Trigger;
use crate::{incident, restart};

/// An index that has failed for good.
struct LostIndex<'a> {
    job: &'a str,
    index: i32,
    /// Index of its replicatedJob.
    group: usize,
    /// The worker of its last Pod, if that is there.
    worker: Option<FailedWorker>,
}

pub(super) fn recreate(reconciliation: &mut Reconciliation<'_>, epochs: Epochs) -> ControlFlow<()> {
    let lost = lost(reconciliation, epochs);
    let Some(first) = lost.iter().min_by_key(|lost| lost.worker.as_ref().is_some_and(FailedWorker::is_loss)) else {
        return ControlFlow::Continue(());
    };
    let workers: Option<Vec<_>> = lost.iter().map(|lost| Some((lost.worker.as_ref()?, lost.group))).collect();
    let rule = workers.as_ref().and_then(|workers| incident::uncounted_by(reconciliation, workers));
    let is_loss = workers.is_some_and(|workers| workers.iter().all(|(worker, _)| worker.is_loss()));
    let counting = match rule {
        _ if epochs.is_over() => Counting::Already,
        Some(_) => Counting::Ignored,
        None => Counting::Counted,
    };
    let workers = lost.iter().filter_map(|lost| lost.worker.as_ref());
    let blame = blame::of(reconciliation, workers.map(WorkerEnd::of_worker).collect());
    let cause = Cause { blame, ..cause(first, is_loss) };
    restart::recreate(reconciliation, counting, &cause)
}

/// The indexes that have failed for good, of Jobs that go on. Of those whose Pods are gone, the first of each Job.
fn lost<'a>(reconciliation: &Reconciliation<'a>, epochs: Epochs) -> Vec<LostIndex<'a>> {
    let groups = reconciliation.groups();
    let goes_on = |current: &&Current<'_>| !current.is_over() && !current.job.failing && !has_failed(current.job);
    let mut lost = Vec::new();
    for current in reconciliation.current.iter().filter(goes_on) {
        let Current { name: job, group, .. } = *current;
        let failed = current.job.failed.slice(0, groups[group].template.spec.pods().into());
        let Some((first, _)) = failed.iter().next() else { continue };
        let pods = current.pods.into_iter().flat_map(JobPods::failed_last);
        let pods = pods.filter_map(|pod| Some((pod, pod.index.filter(|index| failed.contains(*index))?)));
        let before = lost.len();
        lost.extend(pods.map(|(pod, index)| {
            let worker = FailedWorker::of(pod, pod.epoch.number().unwrap_or(epochs.synced));
            LostIndex { job, index, group, worker: Some(worker) }
        }));
        if i64::try_from(lost.len() - before).is_ok_and(|seen| seen < failed.count()) {
            let index = i32::try_from(first).unwrap_or(i32::MAX);
            lost.push(LostIndex { job, index, group, worker: None });
        }
    }
    lost.sort_by(|a, b| (a.job, a.index).cmp(&(b.job, b.index)));
    lost
}

fn cause(lost: &LostIndex<'_>, is_loss: bool) -> Cause {
    let LostIndex { job, index, .. } = lost;
    // The exit code comes early: the status keeps begin and end of a long message.
    let message = match &lost.worker {
        Some(FailedWorker { pod, node, failure, .. }) => {
            let node = node_name(node.as_ref());
            format!("index {index} failed for good: Pod {pod} on node {node}, {failure}")
        }
        None => format!("index {index} of Job {job} failed for good"),
    };
    let cause = match &lost.worker {
        Some(worker) => incident::cause(message, worker),
        None => {
            Cause { reason: String::new(), message, trigger: Trigger::JobFailed, failed_at: None, is_loss, blame: None }
        }
    };
    Cause { reason: conditions::INDEX_FAILED.to_owned(), is_loss, ..cause }
}
