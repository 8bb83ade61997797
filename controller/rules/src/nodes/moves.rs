//! The Pods that leave a node which their JobSet avoids.
//!
//! The status that begins the restart names them. A later plan, which reads that, deletes them, and the barrier waits until they go. The
//! others restart in place, and the group lifts with the successors. A deletion after the epoch is over is nobody's failure, and delays
//! no successor ([`crate::successors`]).
//!
//! All Pods of the JobSet on the node leave it: a bad node is bad for all of them, and each would cost restarts of its own. Pods
//! beyond the number that the status keeps stay.

use jobset_api::nodes::KEPT;
use jobset_api::{AvoidedNode, event};
use jobset_objects::HOSTNAME;
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{pinned, verdict};
use crate::cause::Blame;
use crate::reconciliation::{Current, Reconciliation, node_name};
use crate::types::{Fact, PodDeletion};
use crate::{failure, success};

/// How long the barrier waits for Pods to be deleted. Something may forbid that, or no controller may be there for a while.
const MOVE_LIMIT: SignedDuration = SignedDuration::from_mins(5);

/// Names the Pods that leave the node with the restart that begins, and says so.
pub(super) fn begin(reconciliation: &mut Reconciliation<'_>, blame: &Blame, avoided: &mut AvoidedNode) -> String {
    if let Some((key, domain)) = lost_domain(reconciliation, blame) {
        return move_job(reconciliation, blame, avoided, key, domain);
    }
    let pods = reconciliation.observed.pods().on_nodes(|node| node == avoided.node);
    let (strikes, now) = (&reconciliation.status.node_strikes, reconciliation.now.0);
    let leaves = |(job, pod): &(&str, &PodView)| {
        let current = reconciliation.current.iter().find(|it| it.job.uid == *job && !it.is_over());
        let is_at_fault = |current: &Current<'_>| {
            pod.index.is_some_and(|index| verdict::index_is_at_fault(strikes, current.name, index, now))
        };
        let is_pinned = |current: &Current<'_>| {
            pinned::why(&reconciliation.groups()[current.group].template.spec.template, Some(pod)).is_some()
        };
        let may_leave = pod.is_here() && was_there_before(pod, avoided);
        may_leave && current.is_some_and(|current| !is_at_fault(current) && !is_pinned(current))
    };
    let mut names: Vec<String> = pods.into_iter().filter(leaves).map(|(_, pod)| pod.name.clone()).collect();
    // The one that has failed leaves in any case.
    names.sort_by_key(|name| *name != blame.pod);
    names.truncate(KEPT);
    let moved = if names.is_empty() { String::new() } else { format!("; Pods that leave it: {}", names.join(", ")) };
    if !names.is_empty() {
        reconciliation.facts.push(Fact::PodsMove(names.len()));
    }
    avoided.moving = names;
    moved
}

/// The topology domain that the Job of the Pod has to leave as a whole, with its key: the Job is placed exclusively, and this is the second node
/// of the domain that is avoided, or the domain is the node.
fn lost_domain(reconciliation: &Reconciliation<'_>, blame: &Blame) -> Option<(String, String)> {
    let (_, pod) = reconciliation.observed.pods().named(&blame.pod)?;
    let key = &*pod.domain.as_ref()?.key;
    let domain_of = |node: &str| reconciliation.observed.cluster.nodes.get(node)?.domain(key);
    let domain = domain_of(&blame.node)?;
    let is_in_it = |it: &&AvoidedNode| it.node != *blame.node && domain_of(&it.node) == Some(domain);
    let others = reconciliation.status.avoided_nodes.iter().filter(is_in_it).count();
    (others > 0 || key == HOSTNAME).then(|| (key.to_owned(), domain.to_owned()))
}

/// Recreates the Job, whose Pods then keep away from the domain. This belongs to the restart that begins.
fn move_job(
    reconciliation: &mut Reconciliation<'_>,
    blame: &Blame,
    avoided: &mut AvoidedNode,
    key: String,
    domain: String,
) -> String {
    let current = reconciliation.current.iter().find(|current| current.name == blame.job).copied();
    let Some(current) = current.filter(|current| failure::recreate_uncounted(reconciliation, current)) else {
        return String::new();
    };
    let pods = current.pods.into_iter().flat_map(JobPods::all).filter(|pod| pod.is_here());
    reconciliation.facts.push(Fact::PodsMove(pods.count()));
    avoided.moving = vec![blame.pod.clone()];
    let moved =
        format!("; Job {} leaves the domain {domain} of {key}, and comes back where no other is free", current.name);
    (avoided.topology_key, avoided.domain) = (key, domain);
    moved
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

/// The Pods that have to go.
fn pending<'a>(reconciliation: &Reconciliation<'a>) -> Vec<&'a PodView> {
    if waits_until(reconciliation).is_some_and(|until| until <= reconciliation.now.0) {
        return Vec::new();
    }
    let named = |avoided: &AvoidedNode| {
        let pods = avoided.moving.iter().filter_map(|name| reconciliation.observed.pods().named(name));
        let leaves = |(job, pod): &(&str, &PodView)| {
            let is_current = reconciliation.current.iter().any(|it| it.job.uid == *job);
            is_current && pod.is_here() && pod.node.as_deref() == Some(&*avoided.node)
        };
        pods.filter(leaves).map(|(_, pod)| pod).collect::<Vec<_>>()
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

/// The Job and the completion index of a Pod by its name, whether it exists or not.
pub(super) fn slot_of<'a>(reconciliation: &Reconciliation<'a>, name: &str) -> Option<(Current<'a>, i32)> {
    reconciliation.current.iter().find_map(|current| {
        let (index, random) = name.strip_prefix(current.name)?.strip_prefix('-')?.split_once('-')?;
        let index = index.parse().ok().filter(|_| !random.contains('-'))?;
        Some((*current, index))
    })
}

/// Whether the Pod is older than the decision to avoid its node.
pub(super) fn was_there_before(pod: &PodView, avoided: &AvoidedNode) -> bool {
    pod.created <= avoided.since.0
}
