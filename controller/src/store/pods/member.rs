//! A Pod with what is remembered of it.
//!
//! The annotation with the epoch is written by the agent, the status by the kubelet, which batches. Whoever compares the
//! two has to know in which order things were seen: that is what is remembered here, and nothing else. After a start of
//! the controller nothing is remembered, and nothing follows until it was seen (`protocol.md`, "Early detection").

use super::view::{PodPhase, PodView};

/// A Pod as it was last seen, and what was seen before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    pub view: PodView,
    /// The epoch in which it was seen well, by a status of that epoch.
    well_in: Option<i32>,
    /// What was last seen running in it in an epoch before the present one.
    past: Past,
    /// Whether its worker was seen running, or ended, since its containers last restarted.
    ran: bool,
}

/// Identities of containers, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Past {
    /// Of the workers, as they ran when the agent reported another epoch.
    workers: u64,
    /// Of the agent, as it last ran in an earlier epoch.
    agents: u64,
}

/// What a change of a Pod means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// It failed in this epoch, which it had been seen in and well.
    pub broke_in: Option<i32>,
    /// It failed without its worker having run.
    pub failed_before_worker: bool,
}

impl Member {
    /// A Pod that was not seen before. Nobody knows whether its status is of the epoch that it reports, unless the group
    /// has been let into that epoch: `synced`.
    pub(super) fn new(view: PodView, synced: i32) -> Self {
        let mut member = Self { ran: has_run(&view), well_in: None, past: Past::default(), view };
        if member.view.epoch.number().is_some_and(|epoch| epoch <= synced) {
            member.arm();
        }
        member
    }

    /// The Pod as it is now.
    pub(super) fn see(&mut self, view: PodView) -> Seen {
        let before = std::mem::replace(&mut self.view, view);
        let now = &self.view;
        if now.epoch != before.epoch {
            self.past.workers = before.workers;
            // The agent that ran before the first report is the one that reports.
            let of_the_past = before.agents != 0 && before.epoch.number().is_some();
            self.past.agents = if of_the_past { before.agents } else { self.past.agents };
        } else if now.agents == 0 && before.agents != 0 && self.well_in == now.epoch.number() {
            // The agent of this epoch has gone: whoever reports the next one is another.
            self.past.agents = before.agents;
        }
        let restarted = now.restarts > before.restarts;
        let failed = now.phase == PodPhase::Failed && before.phase != PodPhase::Failed;
        // A disruption is nobody's failure.
        let failed_before_worker = !self.ran && (restarted || failed && !now.is_disrupted());
        self.ran = has_run(now) || self.ran && !restarted;
        let broke_in = self.broke_in();
        self.arm();
        Seen { broke_in, failed_before_worker }
    }

    /// Whether the agent reports an epoch that its worker is not in: the worker is the one that ran in an earlier epoch.
    /// Either the agent restarted alone, or the status lags.
    ///
    /// Said of Pods with an agent of its own container alone: a supervisor restarts its worker within one container.
    pub(super) fn worker_is_of_the_past(&self) -> bool {
        self.view.has_sidecar && self.view.workers != 0 && self.past.workers == self.view.workers
    }

    /// Whether the agent restarted alone for certain: another agent runs beside the same worker.
    pub(super) fn agent_restarted_alone(&self) -> bool {
        self.worker_is_of_the_past() && self.view.agents != 0 && self.view.agents != self.past.agents
    }

    /// The epoch in which it was last seen, well and about to be disrupted.
    pub(super) fn lost_in(&self) -> Option<i32> {
        let ends = self.view.deleted_at.is_some() && self.view.is_disrupted() && self.view.fills_its_slot();
        self.well_in.filter(|epoch| ends && self.view.epoch.number() == Some(*epoch))
    }

    /// The epoch in which it is failing, if it had been seen well in it.
    fn broke_in(&self) -> Option<i32> {
        let epoch = self.well_in.filter(|epoch| self.view.epoch.number() == Some(*epoch))?;
        self.is_failing().then_some(epoch)
    }

    /// What was deleted, and not disrupted, someone asked to go: its Job, when that is suspended, resized or fails, or a
    /// person. If it comes back, its agent tells.
    fn is_failing(&self) -> bool {
        let view = &self.view;
        match view.deleted_at {
            // What succeeded cannot fail any more, but a success on request is a loss.
            _ if view.phase == PodPhase::Succeeded => view.succeeded_by_deletion(),
            Some(_) => !view.fills_its_slot() && view.is_disrupted(),
            None => view.restarting || view.phase == PodPhase::Failed,
        }
    }

    /// Notes that the Pod is well in the epoch that it reports. A status that lags shows it well in the epoch before, and
    /// then how it left that: until another agent is seen than that of the epoch before, the status proves nothing.
    fn arm(&mut self) {
        let epoch = self.view.epoch.number();
        let shows_this_epoch = !self.view.has_sidecar || self.view.agents != 0 && self.view.agents != self.past.agents;
        if epoch != self.well_in && shows_this_epoch && !self.is_failing() && self.view.phase == PodPhase::Open {
            self.well_in = epoch;
        }
    }
}

/// Whether a worker runs or has ended. One that ends at once may never be seen running.
fn has_run(view: &PodView) -> bool {
    view.workers != 0 || view.workers_ended.is_some()
}

#[cfg(test)]
mod tests {
    use super::super::view::Epoch;
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    /// A Pod with a sidecar, well in this epoch, with containers of this life.
    fn alive(epoch: i32, life: u64) -> PodView {
        PodView { workers: life, agents: life, ..waiting(epoch, life) }
    }

    /// The same, before its worker starts.
    fn waiting(epoch: i32, life: u64) -> PodView {
        PodView { epoch: Epoch::Reported(epoch), has_sidecar: true, agents: life, ..PodView::default() }
    }

    fn restarting(view: PodView) -> PodView {
        PodView { restarting: true, ..view }
    }

    #[test]
    fn a_failure_counts_in_the_epoch_in_which_the_pod_was_seen_well() {
        let mut pod = Member::new(alive(1, 1), 1);
        assert_eq!(pod.see(restarting(alive(1, 1))).broke_in, Some(1));
    }

    #[test]
    fn a_pod_that_is_deleted_on_request_has_not_failed() {
        let mut pod = Member::new(alive(1, 1), 1);
        let ended = PodView { deleted_at: Some(Timestamp::UNIX_EPOCH), phase: PodPhase::Failed, ..waiting(1, 1) };
        assert_eq!(pod.see(ended).broke_in, None);
    }

    #[test]
    fn a_slow_status_that_still_shows_the_last_restart_is_no_failure_of_the_next_epoch() {
        let mut pod = Member::new(alive(1, 1), 1);
        pod.see(restarting(alive(1, 1)));
        assert_eq!(pod.see(restarting(alive(2, 1))).broke_in, None);
        assert_eq!(pod.see(waiting(2, 2)).broke_in, None);
        assert_eq!(pod.see(restarting(waiting(2, 2))).broke_in, Some(2));
    }

    #[test]
    fn a_status_that_shows_the_last_restart_only_after_the_report_is_no_failure_of_the_next_epoch() {
        let mut pod = Member::new(alive(1, 1), 1);
        assert_eq!(pod.see(alive(2, 1)).broke_in, None, "the agent reports, the status is as it was");
        assert_eq!(pod.see(restarting(alive(2, 1))).broke_in, None, "the status tells how epoch 1 ended");
        assert_eq!(pod.see(PodView { agents: 0, workers: 0, ..restarting(alive(2, 1)) }).broke_in, None);
        assert_eq!(pod.see(waiting(2, 2)).broke_in, None);
        assert_eq!(pod.see(restarting(alive(2, 2))).broke_in, Some(2));
    }

    #[test]
    fn a_pod_whose_agent_was_seen_before_its_first_report_is_well_in_that_epoch() {
        let mut pod = Member::new(PodView { epoch: Epoch::Absent, ..waiting(1, 1) }, 0);
        pod.see(waiting(1, 1));
        pod.see(alive(1, 1));
        assert_eq!(pod.see(restarting(alive(1, 1))).broke_in, Some(1));
    }

    #[test]
    fn nothing_follows_from_a_failure_that_was_there_before_the_controller() {
        let mut pod = Member::new(restarting(alive(1, 1)), 1);
        assert_eq!(pod.see(restarting(alive(1, 1))).broke_in, None);
    }

    #[test]
    fn a_status_of_unknown_age_proves_nothing() {
        let mut pod = Member::new(alive(2, 1), 1);
        assert_eq!(pod.see(restarting(alive(2, 1))).broke_in, None, "epoch 2 has not begun, this is the end of 1");
    }

    #[test]
    fn a_supervised_worker_needs_no_other_container() {
        let supervised = |epoch| PodView { epoch: Epoch::Reported(epoch), workers: 7, ..PodView::default() };
        let mut pod = Member::new(supervised(1), 1);
        pod.see(supervised(2));
        assert!(!pod.worker_is_of_the_past(), "its agent restarts it within one container");
        let gone = PodView { phase: PodPhase::Failed, workers: 0, ..supervised(2) };
        assert_eq!(pod.see(gone).broke_in, Some(2));
    }

    #[test]
    fn an_agent_that_restarts_beside_its_worker_is_suspected_and_then_convicted() {
        let mut pod = Member::new(alive(1, 1), 1);
        pod.see(alive(2, 1));
        assert_eq!((pod.worker_is_of_the_past(), pod.agent_restarted_alone()), (true, false), "the status may lag");
        pod.see(PodView { agents: 2, ..alive(2, 1) });
        assert_eq!((pod.worker_is_of_the_past(), pod.agent_restarted_alone()), (true, true));
    }

    #[test]
    fn a_status_that_catches_up_clears_the_suspicion() {
        let mut pod = Member::new(alive(1, 1), 1);
        pod.see(alive(2, 1));
        pod.see(waiting(2, 2));
        assert!(!pod.worker_is_of_the_past());
        pod.see(alive(2, 2));
        assert!(!pod.worker_is_of_the_past());
    }

    #[test]
    fn only_a_failure_before_the_worker_ran_is_counted_as_one() {
        let with = |restarts, workers| PodView { workers, restarts, ..waiting(2, 1) };
        let mut pod = Member::new(with(0, 0), 1);
        assert!(pod.see(with(1, 0)).failed_before_worker);
        assert!(!pod.see(with(1, 7)).failed_before_worker);
        assert!(!pod.see(with(2, 0)).failed_before_worker, "its worker had run");
        assert!(pod.see(with(3, 0)).failed_before_worker);
        assert!(pod.see(PodView { phase: PodPhase::Failed, ..with(3, 0) }).failed_before_worker);
    }
}
