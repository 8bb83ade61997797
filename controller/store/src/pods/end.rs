//! The end of the Pod that stands for a slot, read from what every leader sees, in whatever order it came.

use k8s_openapi::jiff::Timestamp;

use super::failure::PodFailure;
use super::view::{PodPhase, PodView};

/// The epoch in which the worker of the Pod has ended for good, without a success.
///
/// That holds however late the status is: a phase is final, a Pod that is being deleted and runs no worker never runs it again, and
/// the agent has entered the epoch that it reports. Where the containers of one Pod restart, the life that has ended must be the
/// one that has reported. Of several Pods of a slot, only the one that stands for it counts: one that has
/// a successor may have failed before the group began the epoch.
pub(super) fn ended_in(pod: &PodView) -> Option<i32> {
    let has_ended = match pod.phase {
        PodPhase::Failed => true,
        PodPhase::Succeeded => false,
        PodPhase::Open if pod.workers_succeeded => false,
        PodPhase::Open => is_over(pod) || reporting_life_has_ended(pod),
    };
    pod.epoch.number().filter(|_| has_ended)
}

/// Whether no worker of a Pod that goes, or has lost its sandbox for good, runs or will run.
fn is_over(pod: &PodView) -> bool {
    (pod.deleted_at.is_some() || pod.sandbox_lost_at.is_some()) && pod.workers == 0
}

fn reporting_life_has_ended(pod: &PodView) -> bool {
    pod.ended_life.zip(pod.life).is_some_and(|(ended, life)| ended.is_of(life))
}

/// Whether the Pod had ended when the epoch began that it reports: it failed at the barrier, and whoever lifted it had not observed
/// that. Its successor may be in the epoch.
///
/// A worker that a sidecar keeps waiting has started, so it was lifted. A supervisor runs before the lift, too. The kubelet and the API
/// server write whole seconds: who ends within the second of the lift has ended after it.
pub(super) fn ended_before(pod: &PodView, lift: Option<Timestamp>) -> bool {
    let failure = pod.failure.as_deref();
    let exit = failure.and_then(PodFailure::finished_at);
    if pod.sidecar && exit.is_some() {
        return false;
    }
    let ended_at = exit.max(failure.and_then(|failure| failure.disrupted_at)).max(pod.deleted_at);
    ended_at.zip(lift).is_some_and(|(ended, lift)| ended.as_second() < lift.as_second())
}

/// The epoch that a Pod was in which was removed and had last been observed like this. Nobody tells how the worker on a lost node
/// ends.
pub(super) fn vanished_in(pod: &PodView) -> Option<i32> {
    pod.epoch.number().filter(|_| pod.phase == PodPhase::Open && !pod.workers_succeeded)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use rstest::rstest;

    use super::super::failure::Exit;
    use super::super::life::EndedLife;
    use super::super::view::Epoch;
    use super::*;

    fn pod() -> PodView {
        PodView { epoch: Epoch::Reported(3), ..PodView::default() }
    }

    fn deleted() -> PodView {
        PodView { deleted_at: Some(Timestamp::UNIX_EPOCH), ..pod() }
    }

    /// A container of the agent that started at second 10 has ended, and the agent says that it started at this second.
    fn restarting(agent: i64) -> PodView {
        let second = |second| Timestamp::from_second(second).unwrap();
        let ended_life = Some(EndedLife { started: second(10), ended: second(40) });
        PodView { life: Some(second(agent)), ended_life, ..pod() }
    }

    #[rstest]
    #[case::waits(pod(), None)]
    #[case::failed(PodView { phase: PodPhase::Failed, ..pod() }, Some(3))]
    #[case::failed_without_report(PodView { phase: PodPhase::Failed, epoch: Epoch::Absent, ..pod() }, None)]
    #[case::succeeded(PodView { phase: PodPhase::Succeeded, ..deleted() }, None)]
    #[case::deleted_worker_saves_its_state(PodView { workers: 7, ..deleted() }, None)]
    #[case::deleted(deleted(), Some(3))]
    #[case::deleted_with_its_work_done(PodView { workers_succeeded: true, ..deleted() }, None)]
    #[case::reporting_life_ended(restarting(10), Some(3))]
    #[case::reporting_life_ended_while_its_worker_goes(PodView { workers: 7, ..restarting(10) }, Some(3))]
    #[case::another_life_ended(restarting(50), None)]
    #[case::life_unknown(PodView { life: None, ..restarting(10) }, None)]
    #[case::work_done(PodView { workers_succeeded: true, ..restarting(10) }, None)]
    fn ended_in_needs_an_end_for_good(#[case] pod: PodView, #[case] epoch: Option<i32>) {
        assert_eq!(ended_in(&pod), epoch);
    }

    fn failed_at(second: i64, sidecar: bool) -> PodView {
        let exit = Exit { finished_at: Timestamp::from_second(second).ok(), ..Exit::default() };
        let mut failure = Box::<PodFailure>::default();
        failure.exit = Some(exit);
        PodView { phase: PodPhase::Failed, sidecar, failure: Some(failure), ..pod() }
    }

    #[rstest]
    #[case::supervisor_at_the_barrier(failed_at(9, false), true)]
    #[case::supervisor_in_the_second_of_the_lift(failed_at(10, false), false)]
    #[case::worker_beside_a_sidecar_on_a_clock_behind(failed_at(9, true), false)]
    #[case::deleted_at_the_barrier(PodView { deleted_at: Timestamp::from_second(9).ok(), ..pod() }, true)]
    #[case::time_unknown(PodView { phase: PodPhase::Failed, ..pod() }, false)]
    fn end_before_the_lift_is_none_of_the_epoch(#[case] pod: PodView, #[case] before: bool) {
        assert_eq!(ended_before(&pod, Timestamp::from_millisecond(10_500).ok()), before);
        assert!(!ended_before(&pod, None), "a status of another version has no such time");
    }
}
