//! Repairs exclusive placement: Pods that were sent to another topology domain than their leader is in.
//!
//! A follower is told its domain when it is created. When the leader is replaced and lands elsewhere, or two creations
//! race, followers are in the wrong place. Only those are deleted. A leader that is going, has ended or whose node is
//! gone decides nothing: its successor will.

use super::pass::Pass;
use super::{Action, PodDeletion};
use crate::store::pods::{PodPhase, PodView};

pub(super) fn repair(pass: &mut Pass<'_>) {
    let running = pass.current.iter().filter(|current| current.job.finished.is_none());
    let jobs = running.filter_map(|current| pass.seen.pods_of(current.job));
    let misplaced: Vec<(PodView, String)> = jobs
        .filter_map(|pods| Some((pods, leaders_domain(pass, pods.leader()?)?)))
        .flat_map(|(pods, domain)| {
            let astray = pods.followers().filter(move |(asked, _)| *asked != domain);
            astray.flat_map(move |(_, pods)| pods.map(move |pod| (pod.clone(), domain.to_owned())))
        })
        .collect();
    for (pod, domain) in misplaced {
        let asked = pod.domain.as_ref().and_then(|domain| domain.value.as_deref()).unwrap_or_default();
        pass.warn(
            "ExclusivePlacementViolation",
            format!("Pod {} is deleted: it was sent to {asked:?}, and its leader is in {domain:?}", pod.name),
        );
        pass.actions.push(Action::DeletePod { name: pod.name, uid: pod.uid, reason: PodDeletion::Misplaced });
    }
}

fn leaders_domain<'a>(pass: &Pass<'a>, leader: &'a PodView) -> Option<&'a str> {
    if leader.phase != PodPhase::Open || leader.deleted_at.is_some() {
        return None;
    }
    pass.seen.node(leader.node.as_deref()?)?.domain(&leader.domain.as_ref()?.key)
}
