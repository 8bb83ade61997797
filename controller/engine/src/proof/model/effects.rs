//! What comes of a [step](super::system::Step).

use jobset_store::pods::PodPhase;

use super::link::time_of;
use super::node::{Deed, ModelMachine, ModelWorker};
use super::setting::Stream;
use super::state::{Event, Going, ModelState, Pod, Shared};
use super::system::System;
use crate::proof::RuleMutation;

impl System {
    /// Takes down that something strikes the Pod in the epoch that its agent has entered, if it has.
    pub(super) fn strike(state: &mut ModelState, slot: usize) {
        state.left.faults -= 1;
        state.slots[slot].change(|slot| {
            slot.strikes += 1;
            slot.take_along(slot.machine.as_ref().and_then(|machine| machine.entered));
        });
    }

    /// A worker makes no progress any longer. Once none does, that strikes the group.
    pub(super) fn stall(&self, state: &mut ModelState, slot: usize) {
        state.left.stalls -= 1;
        self.change_machine(state, slot, ModelMachine::stall);
        if state.group_stalls() {
            let synced = state.jobset.status.synced;
            state.slots.iter_mut().for_each(|slot| slot.change(|slot| slot.take_along(Some(synced))));
        }
    }

    pub(super) fn see(&self, state: &mut ModelState, slot: usize, newest: bool) {
        let Some(age) = state.slots[slot].machine.as_ref().and_then(|it| Some(it.agent.as_ref()?.age)) else { return };
        let age = if newest { 0 } else { age - 1 };
        let observed = state.jobset.history[state.jobset.history.len() - 1 - age];
        self.change_machine(state, slot, |machine, _| machine.see(observed, age));
    }

    pub(super) fn report(&self, state: &mut ModelState, slot: usize, is_stored: bool, is_answered: bool) {
        let machine = state.slots[slot].machine.as_ref();
        let Some(agent) = machine.and_then(|machine| machine.agent.as_ref()) else { return };
        let (Some(epoch), progress) = (agent.writing, agent.writing_progress) else { return };
        if is_stored {
            state.check_report(epoch);
            let next = state.jobset.status.synced + 1;
            state.slots[slot].change(|slot| slot.has_reported |= epoch == next);
            // An agent that knows of no progress leaves what an earlier one has written.
            self.change_pod(state, slot, |pod| (pod.epoch, pod.progress) = (Some(epoch), progress.or(pod.progress)));
        }
        self.change_machine(state, slot, |machine, _| machine.answer(is_answered));
    }

    /// Changes what runs of a Pod. What follows from a worker that starts is looked at, and where kubelets are prompt, the
    /// status is written.
    pub(super) fn change_machine(
        &self,
        state: &mut ModelState,
        slot: usize,
        change: impl FnOnce(&mut ModelMachine, (i32, i32)),
    ) {
        let newest = state.jobset.history[state.jobset.history.len() - 1];
        let Some(before) = state.slots[slot].machine.as_ref().map(|machine| machine.worker) else { return };
        let connected = state.connection(slot);
        state.slots[slot].change(|slot| {
            let Some(machine) = &mut slot.machine else { return };
            let is_taken_along = machine.next_deed() == Some(Deed::Reset);
            let of_agent = machine.agent.as_ref().and_then(|agent| agent.entered);
            change(machine, newest);
            if self.setting.broken == Some(RuleMutation::SupervisorsDoNotWait) {
                machine.ignore_running_worker();
            }
            slot.take_along(of_agent.filter(|_| is_taken_along));
        });
        Self::note_end(state, slot, connected);
        let started = state.slots[slot].machine.as_ref().map(|machine| machine.worker).filter(|after| *after != before);
        if let Some(ModelWorker::Runs(epoch)) = started {
            state.check_start(slot, epoch);
        }
        if !self.setting.late.statuses {
            self.write_pod_status(state, slot);
        }
    }

    pub(super) fn write_pod_status(&self, state: &mut ModelState, slot: usize) {
        let Some(status) = state.slots[slot].machine.as_ref().map(ModelMachine::status) else { return };
        self.change_pod(state, slot, |pod| pod.status = status);
    }

    /// The last status is always written, and as the last.
    pub(super) fn end_pod(&self, state: &mut ModelState, slot: usize) {
        let connected = state.connection(slot);
        state.slots[slot].change(|slot| {
            let Some(machine) = slot.machine.take() else { return };
            let is_struck = machine.agent_is_younger || slot.pod.as_ref().is_some_and(Pod::is_disrupted);
            slot.take_along(machine.agent.and_then(|agent| agent.entered).filter(|_| is_struck));
        });
        Self::note_end(state, slot, connected);
        self.change_pod(state, slot, |pod| {
            let status = &mut pod.status;
            status.workers_ended = status.workers_ended.or(status.workers_started);
            (status.phase, status.workers, status.agents) = (PodPhase::Failed, 0, 0);
            (status.workers_started, status.agent_started) = (None, None);
        });
    }

    pub(super) fn run_job_controller(&self, state: &mut ModelState, slot: usize) {
        match &state.slots[slot].pod {
            None => self.create_pod(state, slot),
            Some(pod) if pod.has_failed() => {
                self.remove_pod(state, slot);
                if !state.jobset.job_suspended {
                    self.create_pod(state, slot);
                }
            }
            Some(_) => self.ask_to_go(state, slot),
        }
    }

    /// A deletion that nobody shall take for a failure.
    pub(super) fn ask_to_go(&self, state: &mut ModelState, slot: usize) {
        self.change_pod(state, slot, |pod| {
            pod.going.get_or_insert(Going::Asked);
        });
    }

    pub(super) fn create_pod(&self, state: &mut ModelState, slot: usize) {
        let mode = self.setting.mode;
        state.slots[slot].change(|slot| {
            slot.generations += 1;
            let machine = ModelMachine::new(mode, self.setting.stream != Stream::Absent, self.setting.broken);
            let (generation, status) = (slot.generations, machine.status());
            slot.pod = Some(Pod { generation, epoch: None, progress: None, status, going: None });
            slot.machine = Some(machine);
        });
        self.tell_of_pod(state, slot);
    }

    pub(super) fn change_pod(&self, state: &mut ModelState, slot: usize, change: impl FnOnce(&mut Pod)) {
        let Some(before) = state.slots[slot].pod.clone() else { return };
        let mut after = before.clone();
        change(&mut after);
        if after != before {
            state.slots[slot].change(|slot| slot.pod = Some(after));
            self.tell_of_pod(state, slot);
        }
    }

    pub(super) fn remove_pod(&self, state: &mut ModelState, slot: usize) {
        let Some(pod) = state.slots[slot].pod.clone() else { return };
        let connected = state.connection(slot);
        state.slots[slot].change(|slot| (slot.pod, slot.machine) = (None, None));
        Self::note_end(state, slot, connected);
        self.tell(state, slot, Event::Gone(pod.generation));
    }

    fn tell_of_pod(&self, state: &mut ModelState, slot: usize) {
        if let Some(pod) = state.slots[slot].pod.clone() {
            self.tell(state, slot, Event::Put(Box::new(pod)));
        }
    }

    /// The controller's watch shows an event, now or later.
    fn tell(&self, state: &mut ModelState, slot: usize, event: Event) {
        let most = self.setting.late.pods;
        state.slots[slot].change(|slot| {
            if slot.unseen.len() >= most.max(1)
                && let (Some(Event::Put(last)), Event::Put(pod)) = (slot.unseen.last(), &event)
                && last.generation == pod.generation
            {
                slot.unseen.pop();
            }
            slot.unseen.push(event);
        });
        if most == 0 {
            self.show_next(state, slot);
        }
    }

    /// The JobSet has another version: whatever is to be written over the one before is refused.
    pub(super) fn outdate(&self, state: &mut ModelState) {
        (state.controller.pending, state.late) = (None, None);
        if !self.setting.late.jobsets {
            self.show_jobset(state);
        }
    }

    pub(super) fn set_suspended(&self, state: &mut ModelState, suspended: bool) {
        state.jobset.suspended = suspended;
        self.outdate(state);
    }
}

impl ModelState {
    /// Brings what has no order into one, and forgets what nobody looks at any more.
    pub(super) fn settle(&mut self) {
        if self.left.crashes == 0 {
            self.forget_known();
        }
        self.slots.sort_by_key(Shared::rank);
        let ages = self.slots.iter().filter_map(|slot| Some(slot.machine.as_ref()?.agent.as_ref()?.age));
        let oldest = ages.chain([usize::from(self.left.stale_reads > 0)]).max().unwrap_or(0);
        if self.left.woken > 0 {
            return;
        }
        let repeated = self.oldest_that_relays_repeat();
        let history = &mut self.jobset.history;
        let repeated = repeated.map_or(0, |time| history.iter().filter(|version| time_of(**version) > time).count());
        history.drain(..history.len().saturating_sub(oldest.max(repeated) + 1));
    }
}
