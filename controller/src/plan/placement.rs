//! Repairs exclusive placement: Pods that were sent to another topology domain than their leader is in.
//!
//! A follower is told its domain when it is created. When the leader is replaced and lands elsewhere, or two creations
//! race, followers are in the wrong place. Only those are deleted. A leader that is going, has ended or whose node is
//! gone decides nothing: its successor will.

use std::ops::ControlFlow;

use super::pass::Pass;
use super::{Action, PodDeletion};
use crate::store::pods::{PodFailure, PodPhase, PodView};

/// Reason of the condition that a misplaced Pod gets before it is deleted, as the Go JobSet gives it.
const MISPLACED: &str = "ExclusivePlacementViolation";

/// Whether this is the end of a Pod that was deleted here. That is no failure.
pub(super) fn is_repair(failure: &PodFailure) -> bool {
    failure.disruption.as_ref().is_some_and(|(reason, _)| reason == MISPLACED)
}

pub(super) fn repair(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let running = pass.current.iter().filter(|current| current.job.finished.is_none());
    let jobs = running.filter_map(|current| current.pods);
    let misplaced: Vec<(PodView, String)> = jobs
        .filter_map(|pods| Some((pods, leaders_domain(pass, pods.leader()?)?)))
        .flat_map(|(pods, domain)| {
            let astray = pods.followers().filter(move |(asked, _)| *asked != domain);
            astray.flat_map(move |(_, pods)| pods.map(move |pod| (pod.clone(), domain.to_owned())))
        })
        .collect();
    // In place, those that come in their place make the group advance.
    if !misplaced.is_empty() {
        pass.announce_free_epoch()?;
    }
    for (pod, domain) in misplaced {
        let asked = pod.domain.as_ref().and_then(|domain| domain.value.as_deref()).unwrap_or_default();
        pass.warn(
            MISPLACED,
            format!("Pod {} is deleted: it was sent to {asked:?}, and its leader is in {domain:?}", pod.name),
        );
        pass.actions.push(Action::DeletePod { name: pod.name, uid: pod.uid, reason: PodDeletion::Misplaced });
    }
    ControlFlow::Continue(())
}

fn leaders_domain<'a>(pass: &Pass<'a>, leader: &'a PodView) -> Option<&'a str> {
    if leader.phase != PodPhase::Open || leader.deleted_at.is_some() {
        return None;
    }
    pass.seen.node(leader.node.as_deref()?)?.domain(&leader.domain.as_ref()?.key)
}
