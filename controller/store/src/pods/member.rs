//! A Pod with what is remembered of it.
//!
//! The annotation with the epoch is written by the agent, the status by the kubelet, which batches. To compare
//! the two where the containers of one Pod restart, the order of the observations has to be known: a member keeps that, and nothing
//! else. After a start of the controller nothing is known, and nothing follows from a restart until it changes (`docs/src/protocol.md`,
//! "What the controller does"). What ends for good needs no memory ([`super::end`]).

use super::ObservedEpochs;
use super::failure::Exit;
use super::view::{PodPhase, PodView};

/// A Pod as it was last observed, and what was observed before.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct Member {
    pub view: PodView,
    /// Its worker was observed running in this epoch.
    well: Option<Well>,
    /// Identity of the worker that runs, as [`PodView::workers`].
    run: u64,
    /// Whether its worker was observed running since its containers last restarted.
    ran: bool,
    /// The newest epoch that its containers have left by restarting. The annotation may still say so.
    left: i32,
    /// The first epoch that it was observed to report since then: the one that its containers leave when they restart again. By
    /// the time a slow status shows that, the agent may have reported the next.
    entered: Option<i32>,
    /// Whether the worker was observed running when the Pod was being deleted; `None` if it was never observed being deleted.
    ran_when_deleted: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Hash)]
struct Well {
    epoch: i32,
    agent_restarts: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberChange {
    /// Its containers restart in this epoch, in which its worker had been observed running.
    pub broke_in: Option<i32>,
    /// It failed without its worker having run.
    pub failed_before_worker: bool,
    /// Its node has refused it before its worker ran.
    pub refused: bool,
    /// The container that has failed before the worker ran. A restart erases it.
    pub first: Option<Exit>,
}

impl Member {
    pub(super) fn new(view: PodView, epochs: ObservedEpochs) -> Self {
        // What is not new may have run.
        let ran = view.restarting || view.restarts > 0 || has_run(&view);
        let entered = view.epoch.number();
        let mut member = Self { ran, well: None, run: 0, left: 0, entered, ran_when_deleted: None, view };
        member.note_run(epochs);
        member.note_deletion(false);
        member
    }

    pub(super) fn apply(&mut self, view: PodView, epochs: ObservedEpochs) -> MemberChange {
        let before = std::mem::replace(&mut self.view, view);
        self.note_run(epochs);
        self.note_deletion(before.workers_ended.is_some());
        let now = &self.view;
        // A worker whose epoch has begun has run, whatever its status shows.
        let has_begun = self.entered.is_some_and(|epoch| epoch <= epochs.synced);
        // An agent that runs on is at the barrier: another sidecar that restarts keeps nothing from starting.
        let runs_on = now.agents != 0 && now.agents == before.agents;
        let restarted = now.restarts > before.restarts && !runs_on && !has_begun && !self.ran && !has_run(now);
        let failed = now.phase == PodPhase::Failed && before.phase != PodPhase::Failed && !self.has_run_in(epochs);
        // A disruption is nobody's failure, and one that was deleted did what it was asked to.
        let asked = now.deleted_at.is_some() || now.is_disrupted();
        let refused = failed && now.failure.as_ref().is_some_and(|failure| failure.refused);
        let failed_before_worker = (restarted || failed) && !asked && !refused;
        let first = |view: &PodView| view.failure.as_ref()?.first.clone();
        let first = if failed_before_worker { first(now).or_else(|| first(&before)) } else { None };
        self.ran = has_run(now) || self.ran && now.restarts == before.restarts;
        if now.restarts > before.restarts
            && let Some(epoch) = now.epoch.number()
        {
            let is_left = self.entered.take() == Some(epoch);
            self.left = self.left.max(if is_left { epoch } else { epoch.saturating_sub(1) });
        }
        self.entered = self.entered.or(now.epoch.number().filter(|epoch| *epoch > self.left));
        MemberChange { broke_in: self.broke_in(), failed_before_worker, refused, first }
    }

    /// Whether the worker that runs is not in the epoch that the agent reports: that has not begun, or the agent is younger.
    /// Either the agent restarted alone, or the status lags.
    ///
    /// Said of Pods with an agent of its own container alone: a supervisor restarts its worker within one container.
    pub(super) fn worker_is_of_the_past(&self, synced: i32) -> bool {
        let has_not_begun = self.view.epoch.number().is_some_and(|epoch| epoch > synced);
        self.view.sidecar && self.view.workers != 0 && (has_not_begun || self.agent_is_younger())
    }

    /// Whether it is being deleted while it waits at the barrier: it will never pass it.
    ///
    /// Of a supervisor the status shows a container that runs, whether it has started its worker or not.
    pub(super) fn goes_before_it_runs(&self, synced: i32) -> bool {
        self.view.deleted_at.is_some() && self.view.epoch.number().is_some_and(|epoch| epoch > synced)
    }

    /// Whether the agent restarted alone for certain: a sidecar that is younger than its worker. The kubelet takes longer
    /// than a second, the unit of its times, to notice that a container has ended, and to start it again.
    ///
    /// Whatever it reports: a status that came late may have shown no worker, so that the report was believed, and the
    /// epoch has begun.
    pub(super) fn agent_restarted_alone(&self) -> bool {
        self.view.sidecar && self.view.workers != 0 && self.agent_is_younger()
    }

    fn agent_is_younger(&self) -> bool {
        let started = self.view.agent_started.zip(self.view.workers_started);
        started.is_some_and(|(agent, worker)| agent > worker)
    }

    /// Whether the Pod succeeded because it was deleted: a worker that exits with 0 on SIGTERM has not done its work.
    ///
    /// What was observed in which order decides. Where both came at once, the times do, of the API server and of the node.
    pub(super) fn succeeded_by_deletion(&self) -> bool {
        let by_times =
            || self.view.deleted_at.zip(self.view.workers_ended).is_some_and(|(deleted, ended)| ended >= deleted);
        self.view.phase == PodPhase::Succeeded
            && self.view.deleted_at.is_some()
            && self.ran_when_deleted.unwrap_or_else(by_times)
    }

    /// Notes whether the worker still ran when the deletion was first observed. `had_ended` says that its end was observed before.
    fn note_deletion(&mut self, had_ended: bool) {
        let PodView { deleted_at, workers, .. } = self.view;
        if deleted_at.is_some() && self.ran_when_deleted.is_none() && (workers != 0 || had_ended) {
            self.ran_when_deleted = Some(!had_ended);
        }
    }

    /// Whether its worker was observed running in the newest epoch.
    pub(super) fn is_well_in(&self, epoch: i32) -> bool {
        self.well.is_some_and(|well| well.epoch == epoch)
    }

    /// The epoch that the Pod reports, if its worker was not observed to start in it.
    pub(super) fn waits_to_start(&self) -> Option<i32> {
        let has_started = |epoch| self.view.workers != 0 || self.view.workers_ended.is_some() || self.is_well_in(epoch);
        self.view.epoch.number().filter(|epoch| !has_started(*epoch))
    }

    /// Takes note of a worker that is observed running for the first time. If its epoch has begun, it can be observed to fail from
    /// now on.
    ///
    /// Nothing else proves that the status is of this epoch: a slow one may still show the last worker, its restart, or a
    /// failure before the barrier, when the epoch begins.
    fn note_run(&mut self, epochs: ObservedEpochs) {
        let PodView { workers, agent_restarts, .. } = self.view;
        if std::mem::replace(&mut self.run, workers) == workers || workers == 0 {
            return;
        }
        let has_begun = |epoch: &i32| *epoch <= epochs.synced;
        if let Some(epoch) = self.view.epoch.number().filter(has_begun)
            && self.view.phase == PodPhase::Open
            && !self.view.restarting
        {
            self.well = Some(Well { epoch, agent_restarts });
        }
    }

    /// Whether the Pod, which has failed, had run a worker.
    ///
    /// The container of a supervisor runs and ends without a worker, too: the epoch tells.
    fn has_run_in(&self, epochs: ObservedEpochs) -> bool {
        let ran = self.ran || has_run(&self.view);
        match self.view.epoch.number() {
            Some(epoch) if epochs.runs(epoch) => true,
            Some(epoch) if epoch <= epochs.deprecated => ran,
            _ => ran && self.view.sidecar,
        }
    }

    /// The epoch in which its containers restart, if its worker had been observed running in it.
    fn broke_in(&self) -> Option<i32> {
        let view = &self.view;
        let well = self.well.filter(|well| view.epoch.number() == Some(well.epoch))?;
        let restarts = view.restarting || view.agent_restarts > well.agent_restarts;
        (restarts && view.deleted_at.is_none() && view.phase == PodPhase::Open).then_some(well.epoch)
    }
}

fn has_run(view: &PodView) -> bool {
    view.workers != 0 || view.workers_ended.is_some()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use rstest::rstest;

    use super::super::view::Epoch;
    use super::*;

    /// Waits at the barrier of this epoch.
    fn at(epoch: i32) -> PodView {
        PodView { epoch: Epoch::Reported(epoch), sidecar: true, ..PodView::default() }
    }

    fn running(epoch: i32, workers: u64, agents: u64) -> PodView {
        PodView { workers, agents, ..at(epoch) }
    }

    fn failing(epoch: i32) -> PodView {
        PodView { restarting: true, ..at(epoch) }
    }

    fn synced(synced: i32) -> ObservedEpochs {
        ObservedEpochs { synced, deprecated: synced - 1, lifted_at: None }
    }

    // The clocks of nodes and API servers differ.
    #[rstest]
    #[case::node_behind_observed_running(&[deleted(60, None), deleted(60, Some(50))], true)]
    #[case::node_ahead_observed_ended(&[ended(70), PodView { deleted_at: Some(at_second(60)), ..ended(70) }], false)]
    #[case::both_at_once_ended_after(&[deleted(60, Some(61))], true)]
    #[case::both_at_once_ended_before(&[deleted(60, Some(59))], false)]
    fn success_is_loss_if_worker_ran_when_pod_was_deleted(#[case] observed: &[PodView], #[case] expected: bool) {
        let mut pod = Member::new(running(1, 7, 1), synced(1));
        for view in observed {
            pod.apply(view.clone(), synced(1));
        }
        assert_eq!(pod.succeeded_by_deletion(), expected);
    }

    fn at_second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Succeeded at this second.
    fn ended(second: i64) -> PodView {
        PodView { phase: PodPhase::Succeeded, workers_ended: Some(at_second(second)), ..at(1) }
    }

    /// Deleted at one second, and still running or succeeded at the other.
    fn deleted(second: i64, succeeded: Option<i64>) -> PodView {
        PodView { deleted_at: Some(at_second(second)), ..succeeded.map_or_else(|| running(1, 7, 1), ended) }
    }

    #[test]
    fn failure_counts_in_epoch_in_which_worker_ran() {
        let mut pod = Member::new(running(1, 7, 1), synced(1));
        assert_eq!(pod.apply(failing(1), synced(1)).broke_in, Some(1));
    }

    #[test]
    fn slow_status_with_last_restart_does_not_fail_next_epoch() {
        let mut pod = Member::new(running(1, 7, 1), synced(1));
        pod.apply(failing(1), synced(1));
        assert_eq!(pod.apply(failing(2), synced(1)).broke_in, None);
        assert_eq!(pod.apply(failing(2), synced(2)).broke_in, None);
        assert_eq!(pod.apply(running(2, 8, 2), synced(2)).broke_in, None);
        assert_eq!(pod.apply(failing(2), synced(2)).broke_in, Some(2));
    }

    #[test]
    fn slow_status_with_last_worker_proves_nothing_for_next() {
        let mut pod = Member::new(running(1, 7, 1), synced(1));
        pod.apply(running(2, 7, 1), synced(1));
        assert_eq!(pod.apply(PodView { agent_restarts: 1, ..at(2) }, synced(1)).broke_in, None, "it caught up");
        assert_eq!(
            pod.apply(PodView { agent_restarts: 2, ..at(2) }, synced(2)).broke_in,
            None,
            "it failed before the lift"
        );
    }

    #[test]
    fn last_worker_is_not_taken_for_one_of_next_epoch() {
        let mut pod = Member::new(running(1, 7, 1), synced(1));
        pod.apply(running(2, 7, 1), synced(2));
        assert_eq!(pod.apply(failing(2), synced(2)).broke_in, None);
    }

    #[test]
    fn failure_before_controller_start_restarts_nothing() {
        let mut pod = Member::new(failing(1), synced(1));
        assert_eq!(pod.apply(PodView { version: 2, ..failing(1) }, synced(1)).broke_in, None);
    }

    #[test]
    fn restart_not_shown_is_known_by_agents_count() {
        let mut pod = Member::new(PodView { agent_restarts: 3, ..running(1, 7, 1) }, synced(1));
        let restarted = PodView { agent_restarts: 4, ..at(1) };
        assert_eq!(pod.apply(restarted.clone(), synced(1)).broke_in, Some(1));
        assert_eq!(pod.apply(PodView { epoch: Epoch::Reported(2), ..restarted }, synced(1)).broke_in, None);
    }

    #[rstest]
    #[case::the_status_may_lag(8, 8, 1, (true, false))]
    #[case::it_is_younger_than_its_worker(9, 8, 1, (true, true))]
    #[case::it_is_younger_and_was_believed(9, 8, 2, (true, true))]
    #[case::the_epoch_of_its_worker_runs(8, 8, 2, (false, false))]
    fn agent_is_suspected_if_worker_runs_before_its_epoch(
        #[case] agent: i64,
        #[case] worker: i64,
        #[case] begun: i32,
        #[case] suspected_and_convicted: (bool, bool),
    ) {
        let second = |second| Some(Timestamp::from_second(second).unwrap());
        let view = PodView { agent_started: second(agent), workers_started: second(worker), ..running(2, 7, 1) };
        let pod = Member::new(view, synced(begun));
        assert_eq!((pod.worker_is_of_the_past(begun), pod.agent_restarted_alone()), suspected_and_convicted);
    }

    #[test]
    fn supervisor_that_restarts_its_worker_is_not_suspected() {
        let supervised = |epoch| PodView { sidecar: false, ..running(epoch, 7, 0) };
        let mut pod = Member::new(supervised(1), synced(1));
        pod.apply(supervised(2), synced(1));
        assert!(!pod.worker_is_of_the_past(1));
    }

    #[test]
    fn a_status_that_catches_up_clears_the_suspicion() {
        let mut pod = Member::new(running(1, 7, 1), synced(1));
        pod.apply(running(2, 7, 1), synced(1));
        pod.apply(running(2, 0, 2), synced(1));
        assert!(!pod.worker_is_of_the_past(1));
        pod.apply(running(2, 8, 2), synced(2));
        assert!(!pod.worker_is_of_the_past(2));
    }

    #[test]
    fn only_failure_before_worker_ran_is_counted() {
        let now = synced(1);
        let mut pod = Member::new(at(2), now);
        assert!(pod.apply(PodView { restarts: 1, ..at(2) }, now).failed_before_worker);
        assert!(!pod.apply(PodView { restarts: 1, workers: 7, ..at(2) }, now).failed_before_worker);
        assert!(!pod.apply(PodView { restarts: 2, ..at(2) }, now).failed_before_worker, "its worker had run");
        assert!(pod.apply(PodView { restarts: 3, ..at(2) }, now).failed_before_worker);
        let failed = PodView { restarts: 3, phase: PodPhase::Failed, ..at(2) };
        let ran = PodView { workers_ended: Some(Timestamp::UNIX_EPOCH), ..failed.clone() };
        assert!(!pod.clone().apply(ran, now).failed_before_worker, "too short to be observed running");
        assert!(pod.apply(failed, now).failed_before_worker);
    }

    #[test]
    fn what_was_there_before_the_controller_may_have_run() {
        let mut pod = Member::new(failing(1), synced(1));
        assert!(!pod.apply(PodView { restarts: 1, ..at(1) }, synced(1)).failed_before_worker);
        assert!(pod.apply(PodView { restarts: 2, ..at(1) }, synced(1)).failed_before_worker);
    }

    #[test]
    fn first_restart_after_end_of_epoch_is_no_failure() {
        let over = ObservedEpochs { synced: 1, deprecated: 1, lifted_at: None };
        let mut pod = Member::new(at(1), synced(1));
        assert!(!pod.apply(PodView { restarts: 1, ..at(1) }, over).failed_before_worker);
        assert!(pod.apply(PodView { restarts: 2, ..at(1) }, over).failed_before_worker);
    }

    #[test]
    fn restart_status_after_next_report_is_no_failure() {
        let over = ObservedEpochs { synced: 1, deprecated: 1, lifted_at: None };
        let mut pod = Member::new(at(1), synced(1));
        assert!(!pod.apply(at(2), over).failed_before_worker);
        assert!(!pod.apply(PodView { restarts: 1, ..at(2) }, over).failed_before_worker);
        assert!(pod.apply(PodView { restarts: 2, ..at(2) }, over).failed_before_worker);
    }

    #[test]
    fn each_ended_epoch_explains_one_restart() {
        let over = |deprecated| ObservedEpochs { synced: 2, deprecated, lifted_at: None };
        let mut pod = Member::new(at(1), synced(1));
        pod.apply(at(2), over(1));
        assert!(!pod.apply(PodView { restarts: 1, ..at(2) }, over(2)).failed_before_worker, "it has left epoch 1");
        assert!(!pod.apply(PodView { restarts: 2, ..at(2) }, over(2)).failed_before_worker, "it has left epoch 2");
        assert!(pod.apply(PodView { restarts: 3, ..at(2) }, over(2)).failed_before_worker);
        pod.apply(PodView { restarts: 3, ..at(3) }, over(2));
        assert!(pod.apply(PodView { restarts: 4, ..at(3) }, over(2)).failed_before_worker);
    }

    #[test]
    fn who_is_deleted_while_it_waits_has_not_failed() {
        let mut pod = Member::new(at(2), synced(1));
        let deleted = PodView { deleted_at: Some(Timestamp::UNIX_EPOCH), phase: PodPhase::Failed, ..at(2) };
        assert!(!pod.apply(deleted, synced(1)).failed_before_worker);
    }
}
