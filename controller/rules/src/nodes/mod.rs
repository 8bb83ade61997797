//! Bad nodes: failures are blamed on them, and who asks for it leaves them.
//!
//! The status write that begins a restart has the strike, too, so each incident strikes once. With the annotation
//! [`MOVE_AFTER_FAILURES`](labels::MOVE_AFTER_FAILURES), the same write names the Pods that leave the node ([`moves`]).

pub(crate) mod blame;
pub(crate) mod moves;
pub(crate) mod pinned;
pub(crate) mod reconsider;
pub(crate) mod relax;
mod slots;
pub(crate) mod verdict;
pub(crate) mod way_out;

use std::collections::BTreeMap;

use jobset_api::{AvoidedNode, LaterFields, NodeStrike, event, labels};
use jobset_store::pods::{Blocked, JobPods, PodView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::backoff;
use crate::cause::Blame;
use crate::reconciliation::Reconciliation;
use crate::types::{Fact, Trigger};
use slots::slot_of;
use verdict::{COOL_DOWN, StrikeVerdict};
use way_out::WayOut;

/// A node that has reached the limit.
#[derive(Clone, Copy)]
struct AvoidableNode {
    failures: usize,
    limit: usize,
    /// Whether its Pods leave it now.
    moves: bool,
}

/// After how many failures on one node the group leaves it. `None`: its Pods stay.
fn limit(reconciliation: &Reconciliation<'_>) -> Option<usize> {
    let annotated = reconciliation.observed.jobset.move_after_failures();
    let limit = annotated.or(reconciliation.settings.move_after_failures).filter(|_| reconciliation.in_place())?;
    usize::try_from(limit).ok().filter(|limit| *limit > 0)
}

/// Whether Pods may be moved, so that new ones keep away from nodes.
pub(super) fn may_move(reconciliation: &Reconciliation<'_>) -> bool {
    limit(reconciliation).is_some()
}

/// Ends what is over: strikes of the day before, and nodes that were avoided for long enough or need not be any longer.
pub(super) fn expire(reconciliation: &mut Reconciliation<'_>) {
    let now = reconciliation.now.0;
    verdict::drop_old(&mut reconciliation.status.node_strikes, now);
    let nodes = &reconciliation.observed.cluster.nodes;
    // A machine that was repaired, or another one, may join the cluster by the same name.
    let is_another = |node: &str, at: Timestamp| nodes.get(node).and_then(|it| it.created).is_some_and(|it| it > at);
    reconciliation.status.node_strikes.retain(|it| !is_another(&it.node, it.time.0));
    let is_off = limit(reconciliation).is_none();
    // The clock of the leader that wrote an entry may have been ahead.
    let latest = now.checked_add(COOL_DOWN).unwrap_or(Timestamp::MAX);
    for avoided in &mut reconciliation.status.avoided_nodes {
        avoided.until = avoided.until.clone().min(Time(latest));
    }
    let is_expired = |it: &AvoidedNode| it.until.0 <= now;
    let is_another = |it: &AvoidedNode| is_another(&it.node, it.since.0);
    let is_over = |it: &AvoidedNode| is_expired(it) || is_another(it) || is_off && it.reason == AvoidedNode::FAILURES;
    clear(reconciliation, is_over, |it| {
        let why = match () {
            () if is_expired(it) => "its time is over",
            () if is_another(it) => "it has joined the cluster again",
            () => "the JobSet does not ask for it any longer",
        };
        why.to_owned()
    });
    if let Some(next) = reconciliation.status.avoided_nodes.iter().map(|it| it.until.0).min() {
        reconciliation.requeue_at(next);
    }
}

/// An incident strikes the node that it is blamed on. Called for each incident once, by the write that begins its restart, or by that
/// which fails the JobSet.
pub(super) fn strike(reconciliation: &mut Reconciliation<'_>, blame: Option<&Blame>) {
    if let Some(blame) = blame {
        add(reconciliation, blame);
    }
}

/// What follows from the newest strike, once it is certain that the restart begins: Pods may leave the node.
pub(super) fn judge(reconciliation: &mut Reconciliation<'_>, blame: Option<&Blame>) {
    if let Some(blame) = blame {
        draw_consequences(reconciliation, blame, true);
    }
}

/// What follows from the newest strike. Only a restart `moves` Pods.
fn draw_consequences(reconciliation: &mut Reconciliation<'_>, blame: &Blame, moves: bool) {
    let Some(limit) = limit(reconciliation) else { return };
    match verdict::judge(&reconciliation.status.node_strikes, limit) {
        StrikeVerdict::Open => {}
        StrikeVerdict::NodeAtFault(failures) => {
            avoid(reconciliation, blame, AvoidableNode { failures, limit, moves });
        }
        StrikeVerdict::IndexAtFault(nodes) => clear_for_index(reconciliation, blame, &nodes),
    }
}

/// Nodes that refuse Pods whose worker never ran: no restart begins, and nobody moves. Pods that a node has refused together strike once:
/// it strikes again if it refuses one that was created later.
pub(super) fn strike_refusals(reconciliation: &mut Reconciliation<'_>) {
    let blocked = reconciliation.running_pods().flat_map(JobPods::blocked).filter(|it| it.refusals > 0);
    let mut newest = BTreeMap::new();
    for Blocked { pod, node, .. } in blocked.filter(|it| it.failure.refused && !it.failure.was_asked()) {
        let Some((_, pod)) = reconciliation.observed.pods().named(pod) else { continue };
        if let Some(node) = node {
            let last: &mut &PodView = newest.entry(node).or_insert(pod);
            if (last.created, &last.name) < (pod.created, &pod.name) {
                *last = pod;
            }
        }
    }
    for (node, pod) in newest {
        let is_known = |it: &NodeStrike| it.node == **node && verdict::is_refusal(it) && it.time.0 >= pod.created;
        if reconciliation.status.node_strikes.iter().any(is_known) {
            continue;
        }
        let Some((current, index)) = slot_of(reconciliation, &pod.name) else { continue };
        let (pod, job, at) = (pod.name.clone(), current.name.to_owned(), pod.created);
        let blame = Blame { pod, job, index, node: node.clone(), at, trigger: Trigger::Refused };
        if add(reconciliation, &blame) {
            draw_consequences(reconciliation, &blame, false);
        }
    }
}

/// Adds a strike. Returns whether it is one of those that the status keeps.
fn add(reconciliation: &mut Reconciliation<'_>, blame: &Blame) -> bool {
    let strike = NodeStrike {
        node: blame.node.to_string(),
        time: backoff::micro_time(blame.at),
        job: blame.job.clone(),
        index: blame.index,
        reason: blame.trigger.word().to_owned(),
        later: LaterFields::new(),
    };
    let is_kept = verdict::add(&mut reconciliation.status.node_strikes, strike);
    if is_kept {
        reconciliation.facts.push(Fact::NodeStruck);
    }
    is_kept
}

fn avoid(reconciliation: &mut Reconciliation<'_>, blame: &Blame, bad: AvoidableNode) {
    let AvoidableNode { failures, limit, moves } = bad;
    let node = blame.node.to_string();
    if let Some(place) = reconciliation.status.avoided_nodes.iter().position(|it| it.node == node) {
        if moves {
            leave_again(reconciliation, blame, place);
        }
        return;
    }
    let now = reconciliation.now.0;
    let until = Time(now.checked_add(COOL_DOWN).unwrap_or(Timestamp::MAX));
    let mut avoided = AvoidedNode {
        node,
        since: Time(now),
        until: until.clone(),
        failures: i32::try_from(failures).unwrap_or(i32::MAX),
        reason: AvoidedNode::FAILURES.to_owned(),
        domain: String::new(),
        topology_key: String::new(),
        relaxed: false,
        moving: Vec::new(),
        later: LaterFields::new(),
    };
    if let WayOut::None(why) = way_out::of_blamed(reconciliation, blame, &avoided) {
        // Said once: the next strike is one more than the limit.
        if failures == limit {
            let (pod, node) = (&blame.pod, &avoided.node);
            let message = format!("{} on node {node}, and Pod {pod} stays on it: {why}", blamed(failures));
            reconciliation.warn(event::NODE_NOT_LEFT, message);
        }
        return;
    }
    let moved = if moves { moves::begin(reconciliation, blame, &mut avoided) } else { String::new() };
    let message = format!(
        "node {} is avoided until {:.0}: {} on it, the last of Pod {} ({}){moved}",
        avoided.node,
        until.0,
        blamed(failures),
        blame.pod,
        blame.trigger.word(),
    );
    reconciliation.warn(event::NODE_AVOIDED, message);
    reconciliation.status.avoided_nodes.push(avoided);
    make_room(reconciliation);
}

/// A strike on a node that is avoided. Who was there before that leaves it now: a refusal had moved nobody. Who has come back has found no
/// other node, and stays, unless its Job can leave the domain that it is bound to.
fn leave_again(reconciliation: &mut Reconciliation<'_>, blame: &Blame, place: usize) {
    let mut avoided = reconciliation.status.avoided_nodes.remove(place);
    let is_there = reconciliation.observed.pods().named(&blame.pod).is_some();
    if is_there && !matches!(way_out::of_blamed(reconciliation, blame, &avoided), WayOut::None(_)) {
        let moved = moves::begin(reconciliation, blame, &mut avoided);
        let message = format!("node {} is avoided, and has failed Pod {} again{moved}", avoided.node, blame.pod);
        reconciliation.warn(event::NODE_AVOIDED, message);
    }
    reconciliation.status.avoided_nodes.insert(place, avoided);
}

/// `2 failures of the last 24 h are blamed`.
fn blamed(failures: usize) -> String {
    match failures {
        1 => "1 failure of the last 24 h is blamed".to_owned(),
        failures => format!("{failures} failures of the last 24 h are blamed"),
    }
}

/// The oldest entries go, so that a group keeps most of its nodes.
fn make_room(reconciliation: &mut Reconciliation<'_>) {
    let most = verdict::most_avoided(reconciliation.observed.pods().count_nodes());
    let surplus = reconciliation.status.avoided_nodes.len().saturating_sub(most);
    let mut entries = std::mem::take(&mut reconciliation.status.avoided_nodes);
    entries.sort_by_key(|it| it.since.0);
    reconciliation.status.avoided_nodes = entries.split_off(surplus);
    for avoided in entries {
        let why = format!("of the nodes of this JobSet, at most {most} are avoided at a time");
        cleared(reconciliation, &avoided.node, &why);
    }
}

fn clear_for_index(reconciliation: &mut Reconciliation<'_>, blame: &Blame, nodes: &[String]) {
    let Blame { job, index, node, .. } = blame;
    let is_cleared = |it: &AvoidedNode| it.reason == AvoidedNode::FAILURES && nodes.contains(&it.node);
    clear(reconciliation, is_cleared, |_| {
        format!("index {index} of Job {job} has failed on node {node} as well: the fault is not that of the node")
    });
}

/// Avoids some nodes no longer, and says why.
fn clear(
    reconciliation: &mut Reconciliation<'_>,
    is_over: impl Fn(&AvoidedNode) -> bool,
    why: impl Fn(&AvoidedNode) -> String,
) {
    let all = std::mem::take(&mut reconciliation.status.avoided_nodes);
    let (over, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(is_over);
    reconciliation.status.avoided_nodes = kept;
    for avoided in over {
        cleared(reconciliation, &avoided.node, &why(&avoided));
    }
}

fn cleared(reconciliation: &mut Reconciliation<'_>, node: &str, why: &str) {
    let annotation = labels::MOVE_AFTER_FAILURES;
    reconciliation.note(event::NODE_CLEARED, format!("node {node} is no longer avoided: {why} ({annotation})"));
}
