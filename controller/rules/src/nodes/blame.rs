//! On whom an incident is blamed: a function of the ends of its workers, as far as they are known.
//!
//! Peers of a worker that fails often fail as well, and their statuses come in any order. So nobody is blamed because it was heard of
//! first: [`blamed`] asks for the worker that ended first for certain, by clocks that differ. The same function is asked again until the
//! next epoch begins ([`super::reconsider`]).

use std::collections::HashSet;
use std::sync::Arc;

use jobset_api::NodeStrike;
use jobset_store::pods::{FailedWorker, JobPods, PodFailure, PodPhase, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::reconsider::strike_of_this_restart;
use super::slots::slot_of;
use crate::cause::Blame;
use crate::reconciliation::{Reconciliation, by_name};
use crate::types::{ExitClass, Trigger};
use crate::{backoff, incident};

/// Unit of the times that kubelets and the API server write.
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// By how much the clocks of two machines of a cluster may differ. `docs/src/nodes.md`, "How sure the blame is".
const CLOCK_SKEW: SignedDuration = SignedDuration::from_millis(500);
/// How late the status of a worker comes at most that has failed before the one that is blamed.
const LATEST: SignedDuration = SignedDuration::from_mins(1);

/// Exit codes of workers that were asked to end: by SIGKILL, and by SIGTERM.
const OF_ASKED: [i32; 2] = [137, 143];

/// Why a worker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndKind {
    /// It has failed.
    Failed,
    /// Its node has refused its Pod, or has restarted: whoever ended first, this node is at fault.
    ByNode,
    /// Somebody has ended it: its Pod was deleted, disrupted, or is past its deadline.
    Asked,
    /// Nobody has seen when or how: its containers have restarted, or its agent reports the next epoch.
    Unseen,
    /// Its node is lost, and nobody knows whether or when it has ended.
    Lost,
}

/// The end of a Pod's worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerEnd<'a> {
    pod: &'a str,
    node: Option<&'a str>,
    kind: EndKind,
    trigger: Trigger,
    at: Option<Timestamp>,
    /// Within this time after `at` it ended.
    resolution: SignedDuration,
}

impl<'a> WorkerEnd<'a> {
    pub(crate) fn of_worker(worker: &'a FailedWorker) -> Self {
        let FailedWorker { pod, node, deleted, failure, .. } = worker;
        Self::new(pod, node.as_ref(), Some(failure), *deleted, incident::trigger(worker))
    }

    pub(crate) fn of_pod(pod: &'a PodView, trigger: Trigger) -> Self {
        Self::new(&pod.name, pod.node.as_ref(), pod.failure.as_deref(), was_asked(pod), trigger)
    }

    /// The end of a worker in an epoch that is over, if its Pod shows that it failed by itself, or that its node is lost. Agents do not
    /// report the end of workers that they have ended. Of the worker beside a sidecar, the exit code tells.
    fn seen_late(pod: &'a PodView, epoch: i32) -> Option<Self> {
        let reported = pod.worker_exit.as_deref().filter(|reported| reported.epoch == epoch);
        let is_of_epoch = reported.is_some() || pod.epoch.number() == Some(epoch);
        let status = pod.failure.as_deref();
        let is_sign = |failure: &PodFailure| {
            let exit = failure.exit.as_ref().filter(|exit| exit.finished_at.is_some());
            failure.node_restarted || exit.is_some_and(|exit| !OF_ASKED.contains(&exit.code) || exit.is_out_of_memory())
        };
        let trigger = match status {
            Some(failure) if failure.node_restarted => Trigger::NodeLost,
            _ if pod.phase == PodPhase::Failed => Trigger::PodFailed(ExitClass::Unknown),
            _ => Trigger::ContainerExit(ExitClass::Unknown),
        };
        let mut end = Self::of_pod(pod, trigger);
        if let Some(reported) = reported {
            (end.at, end.resolution) = (reported.exit.finished_at, SignedDuration::ZERO);
            if end.kind == EndKind::Unseen && end.at.is_some() {
                end.kind = EndKind::Failed;
            }
        }
        let counts = match end.kind {
            EndKind::Failed | EndKind::ByNode => reported.is_some() || status.is_some_and(is_sign),
            EndKind::Lost => true,
            EndKind::Asked | EndKind::Unseen => false,
        };
        (is_of_epoch && counts).then_some(end)
    }

    /// The end that a strike tells of.
    fn of_strike(strike: &'a NodeStrike) -> Self {
        let (node, at) = (Some(strike.node.as_str()), strike.time.0);
        let resolution = if at.subsec_nanosecond() == 0 { SECOND } else { SignedDuration::ZERO };
        let kind = if strike.reason == Trigger::NodeLost.word() { EndKind::ByNode } else { EndKind::Failed };
        Self { pod: "", node, kind, trigger: Trigger::ContainerExit(ExitClass::Unknown), at: Some(at), resolution }
    }

    fn of_unknown(pod: &'a PodView, kind: EndKind) -> Self {
        let trigger = Trigger::ContainerExit(ExitClass::Unknown);
        Self { kind, at: None, ..Self::of_pod(pod, trigger) }
    }

    fn new(
        pod: &'a str,
        node: Option<&'a Arc<str>>,
        failure: Option<&PodFailure>,
        was_asked: bool,
        trigger: Trigger,
    ) -> Self {
        let exit = failure.and_then(|failure| failure.exit.as_ref());
        let at = failure.and_then(PodFailure::ended_at);
        // Agents do not name the container.
        let is_reported = exit.is_some_and(|exit| exit.container.is_empty());
        let resolution = if is_reported { SignedDuration::ZERO } else { SECOND };
        let kind = match failure {
            Some(failure) if incident::is_of_lost_node(failure) => EndKind::Lost,
            Some(failure) if was_asked || failure.was_asked() => EndKind::Asked,
            Some(failure) if failure.refused || failure.node_restarted => EndKind::ByNode,
            None if was_asked => EndKind::Asked,
            _ if at.is_some() => EndKind::Failed,
            _ => EndKind::Unseen,
        };
        Self { pod, node: node.map(|node| &**node), kind, trigger, at, resolution }
    }

    /// Takes its time for unknown if the clock that tells it is wrong: the epoch had not begun at that time, or it has not come.
    fn distrust_clock(&mut self, earliest: Option<Timestamp>, now: Timestamp) {
        let is_early = |at: Timestamp| earliest.is_some_and(|it| is_past(at, self.resolution + CLOCK_SKEW, it));
        let is_wrong = |at: &Timestamp| is_early(*at) || is_past(now, CLOCK_SKEW, *at);
        self.at.take_if(|at| is_wrong(at));
    }

    /// Whether it came before the other one for certain. One node has one clock.
    fn is_before(&self, other: &Self) -> bool {
        let skew = if self.is_on_node_of(other) { SignedDuration::ZERO } else { CLOCK_SKEW };
        self.at.zip(other.at).is_some_and(|(at, other)| is_past(at, self.resolution + skew, other))
    }

    fn is_on_node_of(&self, other: &Self) -> bool {
        self.node.is_some() && self.node == other.node
    }
}

/// Whether something that happened at this time, or so much later, has passed at the other one.
fn is_past(at: Timestamp, later: SignedDuration, other: Timestamp) -> bool {
    at.checked_add(later).is_ok_and(|latest| latest <= other)
}

/// Whether the Pod was asked to go before it ended.
pub(crate) fn was_asked(pod: &PodView) -> bool {
    let ended_at = pod.failure.as_ref().and_then(|failure| failure.finished_at());
    pod.deleted_at.is_some_and(|at| ended_at.is_none_or(|ended| ended >= at))
}

/// On which of these ends the incident is blamed, in a group that `is_spread` over several nodes. Where that is not sure, the end that
/// makes it unsure, if there are any.
///
/// 1. While a node of the group is lost, nobody is blamed: its worker may have ended first.
/// 2. A node that proves to be bad is blamed, unless there are two.
/// 3. Otherwise the worker that has failed before all others for certain, those on its own node apart. Where nobody has seen it fail, its
///    group must be on one node: elsewhere, the first to be heard of is not the first to fail.
fn blamed<'e, 'a>(ends: &'e [WorkerEnd<'a>], is_spread: bool) -> Result<&'e WorkerEnd<'a>, Option<&'e WorkerEnd<'a>>> {
    if let Some(lost) = ends.iter().find(|end| end.kind == EndKind::Lost) {
        return Err(Some(lost));
    }
    let mut bad = ends.iter().filter(|end| end.kind == EndKind::ByNode);
    if let Some(first) = bad.next() {
        return bad.find(|other| !other.is_on_node_of(first)).map_or(Ok(first), |other| Err(Some(other)));
    }
    let may_be_first = |end: &&WorkerEnd<'_>| end.kind == EndKind::Failed || end.kind == EndKind::Unseen && !is_spread;
    let is_harmless = |end: &WorkerEnd<'_>, other: &WorkerEnd<'_>| {
        end.is_before(other) || end.is_on_node_of(other) && other.kind != EndKind::Asked
    };
    let doubt = |end: &WorkerEnd<'_>| ends.iter().find(|other| other.pod != end.pod && !is_harmless(end, other));
    let mut doubts = ends.iter().filter(may_be_first).map(|end| (end, doubt(end))).peekable();
    let first = doubts.peek().and_then(|(_, doubt)| *doubt);
    doubts.find(|(_, doubt)| doubt.is_none()).map(|(end, _)| end).ok_or(first)
}

/// On whom an incident is blamed with these ends, those of one node in the order in which they are blamed.
///
/// Whatever the incident begins with, all that has failed in place since the epoch began is looked at. If the epoch is over, that has been
/// blamed already, and an end that comes after it may have been caused by it.
pub(crate) fn of<'a>(reconciliation: &'a Reconciliation<'_>, mut ends: Vec<WorkerEnd<'a>>) -> Option<Blame> {
    let given: Vec<&str> = ends.iter().map(|end| end.pod).collect();
    let is_over = reconciliation.in_place() && reconciliation.status.epochs().is_closed();
    let earliest = began(reconciliation);
    add_those_in_place(reconciliation, &mut ends, earliest);
    let strike = strike_of_this_restart(reconciliation).map(|place| &reconciliation.status.node_strikes[place]);
    ends.extend(strike.map(WorkerEnd::of_strike));
    ends.extend(lost(reconciliation));
    for end in &mut ends {
        end.distrust_clock(earliest, reconciliation.now.0);
    }
    let end = blamed(&ends, is_spread(reconciliation)).ok().filter(|end| !is_over || given.contains(&end.pod))?;
    let blame = blame(reconciliation, end, earliest)?;
    let has_struck = |it: &NodeStrike| (&*it.node, &it.job, it.index) == (&*blame.node, &blame.job, blame.index);
    (!strike.is_some_and(has_struck)).then_some(blame)
}

/// Adds the workers that have failed in the epoch, as slots remember or Pods show it, and those whose agents report the next one.
fn add_those_in_place<'a>(
    reconciliation: &Reconciliation<'a>,
    ends: &mut Vec<WorkerEnd<'a>>,
    began: Option<Timestamp>,
) {
    if !reconciliation.in_place() {
        return;
    }
    let is_over = reconciliation.status.epochs().is_closed();
    let synced = reconciliation.status.synced_epoch;
    let failed = reconciliation.running_pods().flat_map(|pods| pods.broken_in(synced));
    let mut failed: Vec<_> = failed.map(WorkerEnd::of_worker).collect();
    failed.sort_by_key(|end| (end.at.is_none(), end.at, end.pod));
    // A Pod that is younger than the epoch has replaced one, and has not failed itself.
    let kind = |pod: &PodView| match began {
        Some(began) if pod.created > began => EndKind::Asked,
        _ => EndKind::Unseen,
    };
    let next = reconciliation.running_pods().flat_map(|pods| pods.members_at(reconciliation.next_epoch()));
    // Once the epoch is over, all report the next one.
    let next = by_name(next).into_iter().filter(|_| !is_over).map(|pod| WorkerEnd::of_unknown(pod, kind(pod)));
    let mut known: HashSet<&str> = ends.iter().map(|end| end.pod).collect();
    let others = failed.into_iter().chain(late(reconciliation, synced)).chain(next);
    ends.extend(others.filter(|end| known.insert(end.pod)));
}

/// The workers of all Jobs that have failed by themselves in this epoch, as far as their Pods show it. A Job that is deleted, or about to
/// fail, has none that can come back, but one of them may have failed first. Those of a Job that succeeds fail for that.
fn late<'a>(reconciliation: &Reconciliation<'a>, epoch: i32) -> impl Iterator<Item = WorkerEnd<'a>> + use<'a> {
    let observed = reconciliation.observed;
    let open =
        observed.jobs().filter(|(_, job)| job.finished.is_none()).filter_map(move |(_, job)| observed.pods_of(job));
    let pods = open.filter(|pods| pods.done().is_empty()).flat_map(JobPods::all);
    pods.filter_map(move |pod| WorkerEnd::seen_late(pod, epoch))
}

/// What is known by now of the incident that this strike is of.
pub(super) enum Review {
    /// The strike holds.
    Holds,
    /// Somebody else has failed before. Says so.
    Other(Blame, String),
    /// Nobody can tell who was first, and why.
    Nobody(String),
}

/// On whom the incident is blamed by now that this strike is of. The epoch of its workers is over.
pub(super) fn review(reconciliation: &Reconciliation<'_>, strike: &NodeStrike) -> Review {
    let over = reconciliation.status.deprecated_epoch;
    let pods = reconciliation.observed.jobs().filter_map(|(_, job)| reconciliation.observed.pods_of(job));
    // What a slot remembers is erased from the status of its Pod.
    let known = pods.flat_map(|pods| pods.broken_in(over)).map(WorkerEnd::of_worker);
    let known = known.filter(|end| end.kind != EndKind::Asked);
    let mut ends: Vec<_> = known.chain(late(reconciliation, over)).collect();
    ends.sort_by_key(|end| (end.at.is_none(), end.at, end.pod));
    // The strike comes first: it holds for its node unless another one was before.
    ends.insert(0, WorkerEnd::of_strike(strike));
    ends.extend(lost(reconciliation));
    let earliest = strike.time.0.checked_sub(LATEST).ok();
    for end in &mut ends {
        end.distrust_clock(earliest, reconciliation.now.0);
    }
    match blamed(&ends, is_spread(reconciliation)) {
        Ok(end) if end.node == Some(&*strike.node) => Review::Holds,
        Ok(end) => match blame(reconciliation, end, None) {
            Some(blame) => {
                let why = format!("Pod {} on node {} failed before", blame.pod, blame.node);
                Review::Other(blame, why)
            }
            None => Review::Nobody("a Pod that is gone failed before".to_owned()),
        },
        Err(Some(end)) if end.kind == EndKind::Lost => {
            Review::Nobody(format!("Pod {} is on a node that is lost, and may have failed before", end.pod))
        }
        Err(Some(end)) => Review::Nobody(format!("Pod {} failed at the same time, as far as clocks can tell", end.pod)),
        Err(None) => Review::Holds,
    }
}

/// The blame for a stall that is sure. The worker has made no progress since then.
pub(crate) fn of_stalled(reconciliation: &Reconciliation<'_>, pod: &PodView, since: Timestamp) -> Option<Blame> {
    let end = WorkerEnd { at: Some(since), ..WorkerEnd::of_pod(pod, Trigger::Stalled) };
    blame(reconciliation, &end, None)
}

fn blame(reconciliation: &Reconciliation<'_>, end: &WorkerEnd<'_>, earliest: Option<Timestamp>) -> Option<Blame> {
    let (current, index) = slot_of(reconciliation, end.pod)?;
    let (pod, job, node) = (end.pod.to_owned(), current.name.to_owned(), end.node?.into());
    let now = reconciliation.now.0;
    // The clock of a node may be behind.
    let created = reconciliation.observed.pods().named(end.pod).map(|(_, pod)| pod.created);
    let at = end.at.unwrap_or(now).max(earliest.max(created).unwrap_or(Timestamp::MIN)).min(now);
    Some(Blame { pod, job, index, node, at, trigger: end.trigger })
}

/// When the workers of the group began to run, if they run.
fn began(reconciliation: &Reconciliation<'_>) -> Option<Timestamp> {
    backoff::began_to_run(reconciliation).map(|time| time.0)
}

fn is_spread(reconciliation: &Reconciliation<'_>) -> bool {
    reconciliation.observed.pods().count_nodes() > 1
}

/// Workers on nodes that nobody reaches.
fn lost<'a>(reconciliation: &Reconciliation<'a>) -> impl Iterator<Item = WorkerEnd<'a>> + use<'a> {
    let unreachable = reconciliation.observed.unreachable().into_iter().map(|it| it.pod);
    let open = unreachable.filter(|pod| pod.phase == PodPhase::Open);
    open.map(|pod| WorkerEnd::of_unknown(pod, EndKind::Lost))
}

#[cfg(test)]
mod tests {
    use EndKind::{Asked, ByNode, Failed, Lost, Unseen};
    use rstest::rstest;

    use super::*;

    const SPREAD: bool = true;

    /// The ends of Pods: their node, kind, and when they ended in milliseconds. Whole seconds are those of kubelets.
    fn ends(all: &[(&'static str, EndKind, Option<i64>)]) -> Vec<WorkerEnd<'static>> {
        let end = |(pod, (node, kind, at)): (&'static str, &(&'static str, EndKind, Option<i64>))| WorkerEnd {
            pod,
            node: Some(node),
            kind: *kind,
            trigger: Trigger::JobFailed,
            at: at.and_then(|at| Timestamp::from_millisecond(at).ok()),
            resolution: if at.is_some_and(|at| at % 1_000 == 0) { SECOND } else { SignedDuration::ZERO },
        };
        ["p", "q", "r"].into_iter().zip(all).map(end).collect()
    }

    #[rstest]
    #[case::alone(&[("a", Failed, Some(10_000))], Ok("p"))]
    #[case::alone_at_unknown_time(&[("a", Failed, None)], Ok("p"))]
    #[case::unseen(&[("a", Unseen, None)], Err(None))]
    #[case::asked(&[("a", Asked, Some(10_000))], Err(None))]
    #[case::same_second(&[("a", Failed, Some(10_000)), ("b", Failed, Some(10_000))], Err(Some("q")))]
    #[case::next_second(&[("a", Failed, Some(10_000)), ("b", Failed, Some(11_000))], Err(Some("q")))]
    #[case::two_seconds_later(&[("a", Failed, Some(10_000)), ("b", Failed, Some(12_000))], Ok("p"))]
    #[case::two_seconds_before(&[("a", Failed, Some(12_000)), ("b", Failed, Some(10_000))], Ok("q"))]
    #[case::reports_within_skew(&[("a", Failed, Some(10_100)), ("b", Failed, Some(10_599))], Err(Some("q")))]
    #[case::reports_apart(&[("a", Failed, Some(10_100)), ("b", Failed, Some(10_600))], Ok("p"))]
    #[case::report_after_second_of_kubelet(&[("a", Failed, Some(10_000)), ("b", Failed, Some(11_501))], Ok("p"))]
    #[case::report_within_second_of_kubelet(&[("a", Failed, Some(10_000)), ("b", Failed, Some(11_499))], Err(Some("q")))]
    #[case::peer_unseen(&[("a", Failed, Some(10_000)), ("b", Unseen, None)], Err(Some("q")))]
    #[case::peer_on_its_node(&[("a", Failed, Some(10_000)), ("a", Failed, Some(10_000))], Ok("p"))]
    #[case::peer_deleted_before(&[("a", Failed, Some(12_000)), ("a", Asked, Some(10_000))], Err(Some("q")))]
    #[case::peer_of_its_node_deleted_a_second_later(&[("a", Failed, Some(10_000)), ("a", Asked, Some(11_000))], Ok("p"))]
    #[case::peer_deleted_after(&[("a", Failed, Some(10_000)), ("b", Asked, Some(12_000))], Ok("p"))]
    #[case::peer_on_lost_node(&[("a", Failed, Some(10_000)), ("b", Lost, None)], Err(Some("q")))]
    #[case::refused_beside_failure(&[("a", Failed, Some(10_000)), ("b", ByNode, None)], Ok("q"))]
    #[case::two_bad_nodes(&[("a", ByNode, None), ("b", ByNode, None)], Err(Some("q")))]
    #[case::two_pods_of_a_bad_node(&[("a", ByNode, None), ("a", ByNode, None)], Ok("p"))]
    #[case::bad_node_beside_lost_one(&[("a", ByNode, None), ("b", Lost, None)], Err(Some("q")))]
    #[case::first_of_three(&[("a", Failed, Some(12_000)), ("b", Failed, Some(9_000)), ("c", Failed, Some(11_000))], Ok("q"))]
    fn first_end_is_blamed_if_it_is_sure(
        #[case] all: &[(&'static str, EndKind, Option<i64>)],
        #[case] expected: Result<&str, Option<&str>>,
    ) {
        let ends = ends(all);
        let pods = |end: Result<&WorkerEnd<'static>, Option<&WorkerEnd<'static>>>| {
            end.map(|end| end.pod).map_err(|doubt| doubt.map(|end| end.pod))
        };
        assert_eq!(pods(blamed(&ends, SPREAD)), expected);
    }

    #[test]
    fn unseen_failure_is_of_the_only_node() {
        assert!(blamed(&ends(&[("a", Unseen, None), ("a", Unseen, None)]), !SPREAD).is_ok());
    }

    #[rstest]
    #[case::in_epoch(10_000, true)]
    #[case::in_second_before_it(8_600, true)]
    #[case::before_it(7_000, false)]
    #[case::to_come(21_000, false)]
    fn time_outside_of_epoch_is_unknown(#[case] at: i64, #[case] is_known: bool) {
        let mut end = ends(&[("a", Failed, Some(at))]).remove(0);
        end.distrust_clock(Timestamp::from_second(9).ok(), Timestamp::from_second(20).unwrap());
        assert_eq!(end.at.is_some(), is_known);
    }
}
