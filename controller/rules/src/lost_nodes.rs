//! Gives up Pods on nodes that have been unreachable for as long as their JobSet says: the annotation
//! [`NODE_LOST_AFTER`](jobset_api::labels::NODE_LOST_AFTER).
//!
//! The controller cannot know whether an unreachable node is really down. The user who sets the annotation takes this
//! responsibility. The rule ignores a node that is only not ready. Pods of a Node object that is deleted are given up by the garbage
//! collector of Pods.
//!
//! No kubelet writes the phase of the Pod any more. So it is marked as failed, and deleted by force: its Job counts it, or replaces
//! it, and a Job that is being deleted goes. In place, [`super::successors`] releases it, and the restart begins before that, so that
//! its loss is stored whoever leads then: a leader that follows finds the group restarting, and goes on with the Pods that are left.

use std::collections::HashMap;
use std::ops::ControlFlow;

use jobset_api::{event, labels};
use jobset_store::PodOnNode;
use jobset_store::members::Members;
use jobset_store::pods::{FailedWorker, JobPods, PodPhase, PodView};
use k8s_openapi::jiff::SignedDuration;

use crate::epochs::{self, Epochs};
use crate::reconciliation::{Current, Reconciliation, node_name};
use crate::types::PodDeletion;
use crate::{incident, success};

pub(super) fn give_up_pods(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let Some(after) = reconciliation.observed.jobset.node_lost_after() else { return ControlFlow::Continue(()) };
    let limit = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    let mut lost = Vec::new();
    for it in reconciliation.observed.unreachable() {
        // A Pod that has come later gets as long: it has come in spite of the taint, and so would its successor.
        let Ok(due) = it.since.max(it.pod.created).checked_add(limit) else { continue };
        if stays(it.pod) && reconciliation.is_due(due) {
            lost.push(it);
        }
    }
    begin_restart(reconciliation, &lost)?;
    let mut pods: Vec<&PodView> = lost.iter().map(|it| it.pod).collect();
    // A node may come back, or its Node object may go, when its Pod is marked and not deleted yet.
    let is_left = |pod: &&PodView| is_given_up(pod) && stays(pod) && pods.iter().all(|it| it.uid != pod.uid);
    let left: Vec<&PodView> = reconciliation.running_pods().flat_map(JobPods::held).flatten().filter(is_left).collect();
    pods.extend(left);
    for pod in pods {
        let message = format!(
            "Pod {} is given up: its node {} has been unreachable for {} s ({})",
            pod.name,
            node_name(pod.node.as_ref()),
            after.as_secs(),
            labels::NODE_LOST_AFTER
        );
        reconciliation.delete_pod(&pod.name, &pod.uid, PodDeletion::NodeLost, message);
    }
    ControlFlow::Continue(())
}

/// Whether nobody else removes the Pod: its kubelet has not said how it ended, or cannot confirm its deletion.
fn stays(pod: &PodView) -> bool {
    match pod.phase {
        PodPhase::Open => true,
        PodPhase::Failed => !pod.deleted_by_force && (pod.deleted_at.is_some() || is_given_up(pod)),
        PodPhase::Succeeded => false,
    }
}

/// Whether the Pod is marked as lost with its node.
fn is_given_up(pod: &PodView) -> bool {
    let disruption = pod.failure.as_ref().and_then(|failure| failure.disruption.as_ref());
    disruption.is_some_and(|(reason, _)| reason == event::NODE_LOST)
}

/// Begins the restart in place that the loss of workers takes, if their epoch runs. Breaks then: the status has to be stored first.
fn begin_restart(reconciliation: &mut Reconciliation<'_>, lost: &[PodOnNode<'_>]) -> ControlFlow<()> {
    let epochs = Epochs::of(&reconciliation.status);
    let restarts = reconciliation.in_place() && !reconciliation.is_suspended() && !success::is_decided(reconciliation);
    if lost.is_empty() || !restarts || epochs.is_over() {
        return ControlFlow::Continue(());
    }
    let running = reconciliation.current.iter().filter(|current| !current.is_over());
    let jobs: HashMap<&str, &Current<'_>> = running.map(|current| (current.job.uid.as_str(), current)).collect();
    let members: Vec<Members> = (0..reconciliation.groups().len()).map(|group| reconciliation.members(group)).collect();
    let ran = |it: &&PodOnNode<'_>| it.pod.phase == PodPhase::Open && it.pod.epoch.number() == Some(epochs.synced);
    // A Pod that has left the group may have reported the epoch that begins without it.
    let of_group = |it: &PodOnNode<'_>| {
        let current = jobs.get(it.job)?;
        let members = members[current.group].of_job(current.job.index.unwrap_or(-1));
        let is_member = it.pod.index.is_none_or(|index| members.contains(index));
        is_member.then(|| (worker(it, epochs.synced), current.group))
    };
    let workers: Vec<(FailedWorker, usize)> = lost.iter().filter(ran).filter_map(of_group).collect();
    if workers.is_empty() {
        return ControlFlow::Continue(());
    }
    let incident = incident::with_lost(reconciliation, &workers);
    epochs::restart_for(reconciliation, incident)
}

/// The worker as it will have failed: the mark is on its Pod only after the restart has begun.
fn worker(lost: &PodOnNode<'_>, epoch: i32) -> FailedWorker {
    let mut worker = FailedWorker::of(lost.pod, epoch);
    let message = format!("its node has been unreachable since {:.0}", lost.since);
    worker.failure.disruption = Some((event::NODE_LOST.to_owned(), message));
    worker.failure.disrupted_at = Some(lost.since);
    worker
}
