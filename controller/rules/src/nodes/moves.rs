//! The Pods that leave a node which their JobSet avoids.
//!
//! The status that begins the restart names them. A later plan, which reads that, deletes them, and the barrier waits until they go. The
//! others restart in place, and the group lifts with the successors. A deletion after the epoch is over is nobody's failure, and delays
//! no successor ([`crate::successors`]).
//!
//! All Pods of the JobSet on the node leave it, each as it can ([`way_out`]): a bad node is bad for all of them, and each would cost
//! restarts of its own. The status names the first of them.

use std::collections::BTreeSet;

use jobset_api::nodes::KEPT;
use jobset_api::{AvoidedNode, event};
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::slots::slot_of;
use super::verdict;
use super::way_out::{self, JobLeaves, WayOut};
use crate::cause::Blame;
use crate::reconciliation::{Current, Reconciliation, first_few, node_name};
use crate::types::{Fact, PodDeletion};
use crate::{failure, success};

/// How long the barrier waits for Pods to be deleted. Something may forbid that, or no controller may be there for a while.
const MOVE_LIMIT: SignedDuration = SignedDuration::from_mins(5);

/// Names the Pods that leave the node with the restart that begins, and says so. Jobs that leave as a whole are recreated by it.
pub(super) fn begin(reconciliation: &mut Reconciliation<'_>, blame: &Blame, avoided: &mut AvoidedNode) -> String {
    let mut leaving = ways_out(reconciliation, avoided);
    leaving.retain(|(.., way_out)| !matches!(way_out, WayOut::None(_)));
    // The Pod that has failed comes first.
    leaving.sort_by_key(|(_, pod, _)| pod.name != blame.pod);
    let alone = leaving.iter().filter(|(.., way_out)| *way_out == WayOut::Alone);
    let alone: Vec<&str> = alone.map(|(_, pod, _)| pod.name.as_str()).collect();
    let (mut count, mut moved) = (alone.len(), String::new());
    if !alone.is_empty() {
        moved = format!("; Pods that leave it: {}", first_few(&alone));
    }
    let mut jobs = BTreeSet::new();
    for (current, _, way_out) in &leaving {
        let WayOut::WithJob(leaves) = way_out else { continue };
        if !jobs.insert(current.name) {
            continue;
        }
        failure::recreate_uncounted(reconciliation, current);
        count += current.pods.into_iter().flat_map(JobPods::all).filter(|pod| pod.is_here()).count();
        moved.push_str(&leaves.describe(current.name));
        if let JobLeaves::Domain(key, domain) = leaves
            && avoided.domain.is_empty()
        {
            (avoided.topology_key, avoided.domain) = (key.clone(), domain.clone());
        }
    }
    avoided.moving = leaving.iter().take(KEPT).map(|(_, pod, _)| pod.name.clone()).collect();
    if count > 0 {
        reconciliation.facts.push(Fact::PodsMove(count));
    }
    moved
}

/// How the Pods on the node can leave it, without those whose index is at fault, and those that go or need not come back.
fn ways_out<'a>(reconciliation: &Reconciliation<'a>, avoided: &AvoidedNode) -> Vec<(Current<'a>, &'a PodView, WayOut)> {
    let (strikes, now) = (&reconciliation.status.node_strikes, reconciliation.now.0);
    let pods = reconciliation.observed.pods().on_nodes(|node| node == avoided.node).into_iter();
    let ways_out = pods.filter(|(_, pod)| pod.is_here()).filter_map(|(job, pod)| {
        let current = *reconciliation.current.iter().find(|it| it.job.uid == job && !it.is_over())?;
        let is_at_fault = |index| verdict::index_is_at_fault(strikes, current.name, index, now);
        let stays = pod.index.is_some_and(is_at_fault);
        (!stays).then(|| (current, pod, way_out::of(reconciliation, &current, pod, avoided)))
    });
    ways_out.collect()
}

/// Deletes the Pods that the stored status names. They restart with the group, so nothing else is to be done for them.
pub(crate) fn carry_out(reconciliation: &mut Reconciliation<'_>) {
    if !reconciliation.observed.stored_epochs().is_closed() || success::is_decided(reconciliation) {
        return;
    }
    let pods = pending(reconciliation);
    if let Some(until) = waits_until(reconciliation).filter(|_| !pods.is_empty()) {
        reconciliation.requeue_at(until);
    }
    for pod in pods {
        let (name, node) = (&pod.name, node_name(pod.node.as_ref()));
        let message = format!("Pod {name} leaves node {node}, which is avoided; another Pod takes its place");
        reconciliation.delete_pod(name, &pod.uid, PodDeletion::Moved, message);
    }
}

/// Whether Pods have to go before the next epoch begins.
pub(crate) fn is_pending(reconciliation: &Reconciliation<'_>) -> bool {
    !pending(reconciliation).is_empty()
}

fn pending<'a>(reconciliation: &Reconciliation<'a>) -> Vec<&'a PodView> {
    if waits_until(reconciliation).is_some_and(|until| until <= reconciliation.now.0) {
        return Vec::new();
    }
    // A full list has only the first of them.
    let unnamed = |avoided: &AvoidedNode| {
        let ways_out = if avoided.moving.len() < KEPT { Vec::new() } else { ways_out(reconciliation, avoided) };
        let leaves = |(_, pod, way_out): &(Current<'_>, &PodView, WayOut)| {
            *way_out == WayOut::Alone && !avoided.moving.contains(&pod.name)
        };
        ways_out.into_iter().filter(leaves).map(|(_, pod, _)| pod).collect::<Vec<_>>()
    };
    let named = |avoided: &AvoidedNode| {
        let pods = avoided.moving.iter().filter_map(|name| reconciliation.observed.pods().named(name));
        let leaves = |(job, pod): &(&str, &PodView)| {
            let is_current = reconciliation.current.iter().any(|it| it.job.uid == *job);
            is_current && pod.is_here() && pod.node.as_deref() == Some(&*avoided.node)
        };
        pods.filter(leaves).map(|(_, pod)| pod).chain(unnamed(avoided)).collect::<Vec<_>>()
    };
    reconciliation.status.avoided_nodes.iter().flat_map(named).collect()
}

/// Until when the barrier waits for Pods to go, once the restart is stored.
fn waits_until(reconciliation: &Reconciliation<'_>) -> Option<Timestamp> {
    let began = reconciliation.status.epoch_transition_time.as_ref()?;
    let until = began.0.checked_add(MOVE_LIMIT).ok()?;
    reconciliation.observed.stored_epochs().is_closed().then_some(until)
}

/// The next epoch begins: says where the Pods that were moved have gone.
pub(crate) fn conclude(reconciliation: &mut Reconciliation<'_>) {
    let mut avoided = std::mem::take(&mut reconciliation.status.avoided_nodes);
    for avoided in &mut avoided {
        for name in std::mem::take(&mut avoided.moving) {
            if let Some(message) = whereabouts(reconciliation, avoided, &name) {
                reconciliation.note(event::POD_MOVED, message);
            }
        }
    }
    reconciliation.status.avoided_nodes = avoided;
}

fn whereabouts(reconciliation: &Reconciliation<'_>, avoided: &AvoidedNode, name: &str) -> Option<String> {
    let (current, index) = slot_of(reconciliation, name)?;
    let pod = current.pods?.of_index(index)?;
    let (node, left) = (pod.node.as_deref()?, &avoided.node);
    Some(if pod.name == name {
        format!("Pod {name} stays on node {left}, although it is avoided: it could not be deleted")
    } else if is_back(reconciliation, avoided, node) {
        let what = if avoided.domain.is_empty() { "it" } else { "its domain" };
        let why = "no other one was free, or the scheduler preferred it";
        format!("Pod {} in place of {name} is on node {node} again, although {what} is avoided: {why}", pod.name)
    } else {
        format!("Pod {} on node {node} is in the place of {name}, which has left node {left}", pod.name)
    })
}

/// Whether this node is the one that was left, or in the domain that was left.
fn is_back(reconciliation: &Reconciliation<'_>, avoided: &AvoidedNode, node: &str) -> bool {
    let domain = || reconciliation.observed.cluster.nodes.get(node)?.domain(&avoided.topology_key);
    node == avoided.node || !avoided.domain.is_empty() && domain() == Some(&*avoided.domain)
}

/// Whether the Pod is older than the decision to avoid its node.
pub(super) fn was_there_before(pod: &PodView, avoided: &AvoidedNode) -> bool {
    pod.created <= avoided.since.0
}
