//! How a Pod can leave its node: by itself, with its whole Job, or not at all.
//!
//! The answer is about the nodes that its successor could use. A pinned Pod has its own alone. A Pod that is placed exclusively has those
//! in the domain of its Job, unless all Pods of the Job leave that. A Pod whose template has no label for the Pod webhook has all of
//! them, and nobody keeps it away from any.

use jobset_api::AvoidedNode;
use jobset_store::NodeView;
use jobset_store::pods::PodView;

use super::{moves, pinned};
use crate::cause::Blame;
use crate::failure;
use crate::reconciliation::{Current, Reconciliation};

/// How a Pod can leave a node that is avoided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WayOut {
    /// It stays, because of this.
    None(&'static str),
    /// Its successor goes elsewhere.
    Alone,
    /// All Pods of its Job go, which is recreated.
    WithJob(JobLeaves),
}

/// Why a Job is recreated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobLeaves {
    /// It is placed exclusively, and leaves this topology domain: label and value.
    Domain(String, String),
    /// It is older than the wish to avoid nodes.
    Unlabelled,
}

impl JobLeaves {
    pub(super) fn describe(&self, job: &str) -> String {
        match self {
            Self::Domain(key, domain) => {
                format!("; Job {job} leaves the domain {domain} of {key}, and comes back where no other is free")
            }
            Self::Unlabelled => format!("; Job {job} is recreated, as its Pods do not keep away from nodes yet"),
        }
    }
}

/// How the Pod can leave the node that is avoided.
pub(super) fn of(
    reconciliation: &Reconciliation<'_>,
    current: &Current<'_>,
    pod: &PodView,
    avoided: &AvoidedNode,
) -> WayOut {
    if let Some(why) = pinned::why(&reconciliation.groups()[current.group].template.spec.template, Some(pod)) {
        return WayOut::None(why);
    }
    // Nobody has come back to a node that is avoided from now on, whatever the clock of the API server says.
    let is_back = avoided.since.0 < reconciliation.now.0 && !moves::was_there_before(pod, avoided);
    let domain = domain_of(reconciliation, pod);
    let left = domain.filter(|domain| is_back || is_lost(reconciliation, *domain, &avoided.node));
    if is_back && (left.is_none() || !avoided.domain.is_empty()) {
        return WayOut::None("it has come back to the node, as no other one was free");
    }
    let leaves = match left {
        Some((key, value)) => JobLeaves::Domain(key.to_owned(), value.to_owned()),
        None if current.job.avoids_nodes => return WayOut::Alone,
        None => JobLeaves::Unlabelled,
    };
    if failure::has_counter(current.job) {
        WayOut::WithJob(leaves)
    } else {
        WayOut::None("its Job would have to be recreated, and the status counts no restarts of Jobs with such an index")
    }
}

/// How the blamed Pod can leave the node. One that is gone has left it, unless each Pod of its template would come back.
pub(super) fn of_blamed(reconciliation: &Reconciliation<'_>, blame: &Blame, avoided: &AvoidedNode) -> WayOut {
    let Some(current) = reconciliation.current.iter().find(|current| current.name == blame.job) else {
        return WayOut::Alone;
    };
    let template = &reconciliation.groups()[current.group].template.spec.template;
    match reconciliation.observed.pods().named(&blame.pod) {
        Some((_, pod)) => of(reconciliation, current, pod, avoided),
        None => pinned::why(template, None).map_or(WayOut::Alone, WayOut::None),
    }
}

/// Whether the successor of the Pod finds another node as long as Pods of its Job stay where they are: it is not placed exclusively, or its
/// domain has one that is ready, not cordoned and not avoided.
pub(crate) fn has_choice(reconciliation: &Reconciliation<'_>, pod: &PodView) -> bool {
    let node = pod.node.as_deref().unwrap_or_default();
    domain_of(reconciliation, pod).is_none_or(|domain| has_free_node(reconciliation, domain, node))
}

/// The topology domain of a Pod that is placed exclusively: label and value. `None` if its node does not say so.
fn domain_of<'a>(reconciliation: &Reconciliation<'a>, pod: &'a PodView) -> Option<(&'a str, &'a str)> {
    let key = &*pod.domain.as_ref()?.key;
    Some((key, reconciliation.observed.node_of(pod)?.domain(key)?))
}

/// Whether the domain is to be left as a whole with this node of it: a second node of it is avoided, or it has no other node to go to.
fn is_lost(reconciliation: &Reconciliation<'_>, domain: (&str, &str), node: &str) -> bool {
    let nodes = &reconciliation.observed.cluster.nodes;
    let is_in_it = |node: &str| nodes.get(node).is_some_and(|view| view.domain(domain.0) == Some(domain.1));
    let mut others = reconciliation.status.avoided_nodes.iter().filter(|it| it.node != node);
    others.any(|it| is_in_it(&it.node)) || !has_free_node(reconciliation, domain, node)
}

fn has_free_node(reconciliation: &Reconciliation<'_>, (key, value): (&str, &str), beside: &str) -> bool {
    let is_avoided = |node: &str| reconciliation.status.avoided_nodes.iter().any(|it| it.node == node);
    let is_free = |node: &str, view: &NodeView| {
        let takes_pods = view.ready && view.cordoned_since.is_none();
        node != beside && takes_pods && view.domain(key) == Some(value) && !is_avoided(node)
    };
    reconciliation.observed.cluster.nodes.iter().any(|(node, view)| is_free(node, view))
}
