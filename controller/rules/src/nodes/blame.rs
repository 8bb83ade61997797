//! On whom an incident is blamed: the Pod that ended first, if that is sure.
//!
//! Peers of a worker that fails often fail as well. Kubelets write whole seconds and the clocks of nodes differ, so the first of several
//! Pods on several nodes is known only if it ended before all others by what these clocks can tell. Otherwise the incident blames nobody.

use std::sync::Arc;

use jobset_api::NodeStrike;
use jobset_store::pods::{FailedWorker, PodFailure, PodPhase, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::moves;
use crate::cause::Blame;
use crate::reconciliation::{Reconciliation, by_name};

/// Unit of the times that kubelets and the API server write.
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// By how much the clocks of nodes differ at most, where agents report in microseconds.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_millis(10);

/// Exit codes of workers that were asked to end: by SIGKILL, and by SIGTERM.
const OF_ASKED: [i32; 2] = [137, 143];

/// The end of a Pod's worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerEnd<'a> {
    pod: &'a str,
    node: Option<&'a Arc<str>>,
    at: Option<Timestamp>,
    /// Within this time after `at` it ended.
    resolution: SignedDuration,
    /// Whether it is a failure of the worker or of its node: nobody has deleted or disrupted the Pod.
    is_fault: bool,
}

impl<'a> WorkerEnd<'a> {
    pub(crate) fn of_worker(worker: &'a FailedWorker) -> Self {
        let FailedWorker { pod, node, deleted, failure, .. } = worker;
        Self::new(pod, node.as_ref(), Some(failure), *deleted)
    }

    /// The end of a Pod that was or was not asked to go before.
    pub(crate) fn of_pod(pod: &'a PodView, was_asked: bool) -> Self {
        Self::new(&pod.name, pod.node.as_ref(), pod.failure.as_deref(), was_asked)
    }

    /// The end that a strike tells of.
    pub(crate) fn of_strike(strike: &'a NodeStrike) -> Self {
        let at = strike.time.0;
        let resolution = if at.subsec_nanosecond() == 0 { SECOND } else { CLOCK_SKEW };
        Self { pod: "", node: None, at: Some(at), resolution, is_fault: true }
    }

    /// The end of a worker in an epoch that is over, if the Pod shows that it failed by itself. Agents do not report the end of workers that
    /// they have ended. Of the worker beside a sidecar, the exit code tells.
    pub(crate) fn seen_late(pod: &'a PodView, epoch: i32) -> Option<Self> {
        let reported = pod.worker_exit.as_deref().filter(|exit| exit.epoch == epoch);
        let at = if let Some(exit) = reported {
            exit.exit.finished_at
        } else {
            let exit = pod.failure.as_ref()?.exit.as_ref().filter(|_| pod.epoch.number() == Some(epoch))?;
            exit.finished_at.filter(|_| !OF_ASKED.contains(&exit.code))
        };
        let resolution = if reported.is_some() { CLOCK_SKEW } else { SECOND };
        let end = Self { at: Some(at?), resolution, ..Self::of_pod(pod, pod.deleted_at.is_some()) };
        end.is_fault.then_some(end)
    }

    fn new(pod: &'a str, node: Option<&'a Arc<str>>, failure: Option<&PodFailure>, was_asked: bool) -> Self {
        let exit = failure.and_then(|failure| failure.exit.as_ref());
        let at = exit.and_then(|exit| exit.finished_at).or(failure.and_then(|failure| failure.disrupted_at));
        // Agents do not name the container.
        let resolution = if exit.is_some_and(|exit| exit.container.is_empty()) { CLOCK_SKEW } else { SECOND };
        let is_fault = !was_asked && failure.is_none_or(|failure| failure.disruption.is_none());
        Self { pod, node, at, resolution, is_fault }
    }

    /// Whether it came before the other one for certain.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        let latest = self.at.and_then(|at| at.checked_add(self.resolution).ok());
        latest.zip(other.at).is_some_and(|(latest, other)| latest <= other)
    }
}

/// On whom these ends are blamed, the first of which is taken for the first. A peer on a node that nobody reaches may have ended before.
pub(crate) fn of(reconciliation: &Reconciliation<'_>, ends: &[WorkerEnd<'_>]) -> Option<Blame> {
    let (first, others) = ends.split_first()?;
    let is_sure = |other: &WorkerEnd<'_>| other.node.is_some() && other.node == first.node || first.is_before(other);
    let any_is_lost = || reconciliation.observed.unreachable().iter().any(|it| it.pod.phase == PodPhase::Open);
    if !first.is_fault || !others.iter().all(is_sure) || any_is_lost() {
        return None;
    }
    blame(reconciliation, first)
}

/// On whom an in-place incident with these ends is blamed. A Pod that reports the next epoch has failed, too, although nobody has seen
/// how.
pub(crate) fn in_place<'a>(reconciliation: &Reconciliation<'a>, mut ends: Vec<WorkerEnd<'a>>) -> Option<Blame> {
    let next = reconciliation.next_epoch();
    let began = reconciliation.status.epoch_transition_time.as_ref().map(|time| time.0);
    // A Pod that is younger than the epoch has replaced one, and has not failed itself.
    let ran = |pod: &PodView| began.is_none_or(|began| pod.created <= began);
    for pod in by_name(reconciliation.running_pods().flat_map(|pods| pods.members_at(next))) {
        if !ends.iter().any(|end| end.pod == pod.name) {
            ends.push(WorkerEnd { at: None, ..WorkerEnd::of_pod(pod, !ran(pod)) });
        }
    }
    of(reconciliation, &ends)
}

/// The blame for a stall that is sure. The worker has made no progress since then.
pub(crate) fn of_stalled(reconciliation: &Reconciliation<'_>, pod: &PodView, since: Timestamp) -> Option<Blame> {
    blame(reconciliation, &WorkerEnd { at: Some(since), ..WorkerEnd::of_pod(pod, false) })
}

fn blame(reconciliation: &Reconciliation<'_>, end: &WorkerEnd<'_>) -> Option<Blame> {
    let (current, index) = moves::slot_of(reconciliation, end.pod)?;
    let (pod, job, node) = (end.pod.to_owned(), current.name.to_owned(), end.node?.clone());
    Some(Blame { pod, job, index, node, at: end.at })
}

#[cfg(test)]
mod tests {
    use jobset_store::pods::Exit;
    use rstest::rstest;

    use super::*;

    fn failure(container: &str, milliseconds: i64) -> PodFailure {
        let finished_at = Timestamp::from_millisecond(milliseconds).ok();
        let mut failure = PodFailure::default();
        failure.exit = Some(Exit { container: container.into(), code: 1, finished_at, ..Exit::default() });
        failure
    }

    #[rstest]
    #[case::same_second("w", 10_000, "w", 10_000, false)]
    #[case::next_second("w", 10_000, "w", 11_000, true)]
    #[case::second_before("w", 11_000, "w", 10_000, false)]
    #[case::reports_apart("", 10_000, "", 10_010, true)]
    #[case::reports_within_skew("", 10_000, "", 10_009, false)]
    #[case::report_within_second_of_kubelet("w", 10_000, "", 10_900, false)]
    #[case::report_before_second_of_kubelet("", 10_900, "w", 11_000, true)]
    fn first_end_is_known_by_resolution_of_clocks(
        #[case] container: &str,
        #[case] at: i64,
        #[case] other: &str,
        #[case] other_at: i64,
        #[case] expected: bool,
    ) {
        let (first, second) = (failure(container, at), failure(other, other_at));
        let end = |failure| WorkerEnd::new("p", None, Some(failure), false);
        assert_eq!(end(&first).is_before(&end(&second)), expected);
    }

    #[test]
    fn end_without_time_is_before_none() {
        let known = failure("w", 0);
        let end = |failure| WorkerEnd::new("p", None, failure, false);
        assert!(!end(Some(&known)).is_before(&end(None)) && !end(None).is_before(&end(Some(&known))));
    }
}
