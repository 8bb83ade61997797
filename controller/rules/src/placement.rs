//! Repairs exclusive placement: deletes Pods that are in another topology domain than their leader.
//!
//! Admission sets the domain of a follower when the follower is created. The domain is wrong if the leader is replaced and
//! scheduled elsewhere, or if two creations race. The rule deletes only followers in a wrong domain. It ignores a leader
//! that has ended, that is being deleted or whose node is gone, because the next leader may be elsewhere.

use std::ops::ControlFlow;

use jobset_store::pods::{PodPhase, PodView};

use crate::epochs;
use crate::reconciliation::Reconciliation;
use crate::types::PodDeletion;

pub(super) fn repair(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let running = reconciliation.current.iter().filter(|current| current.job.finished.is_none());
    let jobs = running.filter_map(|current| current.pods);
    let misplaced: Vec<(&PodView, &str)> = jobs
        .filter_map(|pods| Some((pods, leaders_domain(reconciliation, pods.leader()?)?)))
        .flat_map(|(pods, domain)| {
            let misplaced = pods.followers().filter(move |(selected, _)| *selected != domain);
            misplaced.flat_map(move |(_, pods)| pods.map(move |pod| (pod, domain)))
        })
        .collect();
    if !misplaced.is_empty() {
        epochs::restart_uncounted(reconciliation)?;
    }
    for (pod, domain) in misplaced {
        let selected = pod.domain.as_ref().and_then(|domain| domain.value.as_deref()).unwrap_or_default();
        let name = &pod.name;
        let message = format!(
            "Pod {name} is deleted: it selects the topology domain {selected:?}, but its leader is in {domain:?}"
        );
        reconciliation.delete_pod(name, &pod.uid, PodDeletion::Misplaced, message);
    }
    ControlFlow::Continue(())
}

fn leaders_domain<'a>(reconciliation: &Reconciliation<'a>, leader: &'a PodView) -> Option<&'a str> {
    if leader.phase != PodPhase::Open || leader.deleted_at.is_some() {
        return None;
    }
    let key = &leader.domain.as_ref()?.key;
    reconciliation.observed.node_of(leader)?.domain(key)
}
