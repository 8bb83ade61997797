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
    /// It was seen well in this epoch.
    well: Option<Well>,
    /// What ran in it in an epoch before the present one.
    past: Option<Past>,
    /// Whether its worker was seen running since its containers last restarted.
    ran: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Well {
    epoch: i32,
    agent_restarts: i32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Past {
    workers: u64,
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
    /// A Pod that was not seen before.
    pub(super) fn new(view: PodView) -> Self {
        let mut member = Self { ran: view.workers != 0, well: None, past: None, view };
        member.arm();
        member
    }

    /// The Pod as it is now.
    pub(super) fn see(&mut self, view: PodView) -> Seen {
        let before = std::mem::replace(&mut self.view, view);
        let now = &self.view;
        if now.epoch != before.epoch {
            let ran = before.workers != 0;
            self.past = ran.then_some(Past { workers: before.workers, agents: before.agents });
        }
        let restarted = now.restarts > before.restarts;
        let failed = now.phase == PodPhase::Failed && before.phase != PodPhase::Failed;
        // A disruption is nobody's failure.
        let disrupted = now.failure.as_ref().is_some_and(|failure| failure.disruption.is_some());
        let failed_before_worker = !self.ran && (restarted || failed && !disrupted);
        self.ran = now.workers != 0 || self.ran && !restarted;
        let broke_in = self.broke_in();
        self.arm();
        Seen { broke_in, failed_before_worker }
    }

    /// Whether the agent reports an epoch that its worker is not in: the worker is the one that ran in an earlier epoch.
    /// Either the agent restarted alone, or the status lags.
    ///
    /// Said of Pods with an agent of its own container alone: a supervisor restarts its worker within one container.
    pub(super) fn worker_is_of_the_past(&self) -> bool {
        self.past.is_some_and(|past| {
            let sidecar = past.agents != 0 || self.view.agents != 0;
            sidecar && self.view.workers != 0 && past.workers == self.view.workers
        })
    }

    /// Whether the agent restarted alone for certain: another agent runs beside the same worker.
    pub(super) fn agent_restarted_alone(&self) -> bool {
        let another = self.past.is_some_and(|past| self.view.agents != 0 && past.agents != self.view.agents);
        self.worker_is_of_the_past() && another
    }

    /// The epoch in which it is failing, if it had been seen well in it.
    fn broke_in(&self) -> Option<i32> {
        let well = self.well.filter(|well| self.view.epoch.number() == Some(well.epoch))?;
        let restarted = self.view.agent_restarts > well.agent_restarts;
        (self.is_failing() || restarted).then_some(well.epoch)
    }

    fn is_failing(&self) -> bool {
        // What succeeded cannot fail any more, but a success on request is a loss.
        if self.view.phase == PodPhase::Succeeded {
            return self.view.succeeded_by_deletion();
        }
        self.view.restarting || !self.view.fills_its_slot()
    }

    fn arm(&mut self) {
        let Some(epoch) = self.view.epoch.number() else { return };
        let known = self.well.is_some_and(|well| well.epoch == epoch);
        if !known && !self.is_failing() && self.view.phase == PodPhase::Open {
            self.well = Some(Well { epoch, agent_restarts: self.view.agent_restarts });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::Epoch;
    use super::*;

    fn at(epoch: i32) -> PodView {
        PodView { epoch: Epoch::Reported(epoch), ..PodView::default() }
    }

    fn running(epoch: i32, workers: u64, agents: u64) -> PodView {
        PodView { workers, agents, ..at(epoch) }
    }

    #[test]
    fn a_failure_counts_in_the_epoch_in_which_the_pod_was_seen_well() {
        let mut pod = Member::new(at(1));
        assert_eq!(pod.see(PodView { restarting: true, ..at(1) }).broke_in, Some(1));
    }

    #[test]
    fn a_slow_status_that_still_shows_the_last_restart_is_no_failure_of_the_next_epoch() {
        let mut pod = Member::new(at(1));
        pod.see(PodView { restarting: true, ..at(1) });
        assert_eq!(pod.see(PodView { restarting: true, ..at(2) }).broke_in, None);
        assert_eq!(pod.see(at(2)).broke_in, None);
        assert_eq!(pod.see(PodView { restarting: true, ..at(2) }).broke_in, Some(2));
    }

    #[test]
    fn nothing_follows_from_a_failure_that_was_there_before_the_controller() {
        let mut pod = Member::new(PodView { restarting: true, ..at(1) });
        assert_eq!(pod.see(PodView { restarting: true, version: 2, ..at(1) }).broke_in, None);
    }

    #[test]
    fn a_restart_that_no_status_showed_is_known_by_the_agents_count() {
        let mut pod = Member::new(PodView { agent_restarts: 3, ..at(1) });
        assert_eq!(pod.see(PodView { agent_restarts: 4, ..at(1) }).broke_in, Some(1));
        assert_eq!(pod.see(PodView { agent_restarts: 4, ..at(2) }).broke_in, None);
    }

    #[test]
    fn an_agent_that_restarts_beside_its_worker_is_suspected_and_then_convicted() {
        let mut pod = Member::new(running(1, 7, 1));
        pod.see(running(2, 7, 1));
        assert_eq!((pod.worker_is_of_the_past(), pod.agent_restarted_alone()), (true, false), "the status may lag");
        pod.see(running(2, 7, 2));
        assert_eq!((pod.worker_is_of_the_past(), pod.agent_restarted_alone()), (true, true));
    }

    #[test]
    fn a_supervisor_that_restarts_its_worker_in_one_container_is_not_suspected() {
        let mut pod = Member::new(running(1, 7, 0));
        pod.see(running(2, 7, 0));
        assert!(!pod.worker_is_of_the_past());
    }

    #[test]
    fn a_status_that_catches_up_clears_the_suspicion() {
        let mut pod = Member::new(running(1, 7, 1));
        pod.see(running(2, 7, 1));
        pod.see(running(2, 0, 2));
        assert!(!pod.worker_is_of_the_past());
        pod.see(running(2, 8, 2));
        assert!(!pod.worker_is_of_the_past());
    }

    #[test]
    fn only_a_failure_before_the_worker_ran_is_counted_as_one() {
        let mut pod = Member::new(at(2));
        assert!(pod.see(PodView { restarts: 1, ..at(2) }).failed_before_worker);
        assert!(!pod.see(PodView { restarts: 1, workers: 7, ..at(2) }).failed_before_worker);
        assert!(!pod.see(PodView { restarts: 2, ..at(2) }).failed_before_worker, "its worker had run");
        assert!(pod.see(PodView { restarts: 3, ..at(2) }).failed_before_worker);
        assert!(pod.see(PodView { restarts: 3, phase: PodPhase::Failed, ..at(2) }).failed_before_worker);
    }
}
