//! What has to hold in every state, against what has truly happened.

use super::setting::{Setting, Stream};
use super::state::{ModelEnd, ModelSlot, ModelState, ModelStatus, bit};
use super::system::System;
use crate::proof::{CheckResult, GroupStatus, Property, Violation, check_report, check_start, ensure};

impl System {
    /// What does not hold in a state, if anything.
    pub(super) fn violation(&self, state: &ModelState) -> Option<Violation> {
        let violation = state.violation.clone().or_else(|| self.unrest(state)).or_else(|| Self::unfair(state));
        violation.or_else(|| self.untold(state))
    }

    /// An agent that would never know what is stored if its relay were silent from now on.
    fn untold(&self, state: &ModelState) -> Option<Violation> {
        let GroupStatus { synced, deprecated, .. } = *state.jobset.status;
        let machines = state.slots.iter().filter(|_| state.left.hostile).filter_map(|slot| slot.machine.clone());
        let mut told = machines.filter_map(|it| it.told_without_stream((synced, deprecated), self.notices_silence()));
        let (s, d) = told.find(|(s, d)| *s < synced || *d < deprecated)?;
        let message = format!("an agent knows S {s} D {d} for ever, and S {synced} D {deprecated} is stored");
        Some(Violation::new(Property::ToldInTime, message))
    }

    /// What is wrong with the failures that are counted before the barrier, where they can get into the status.
    fn unfair(state: &ModelState) -> Option<Violation> {
        let is_current = state.controller.observed == state.jobset.shown();
        let counted = |slot: &ModelSlot| slot.kept.failures_before_worker();
        let unfair = state.slots.iter().filter(|_| is_current).find(|slot| counted(slot) > u32::from(slot.strikes))?;
        let (counted, truly) = (counted(unfair), unfair.strikes);
        let message =
            format!("{counted} failures are counted before the barrier, of a slot that was struck {truly} times");
        Some(Violation::new(Property::ExactBudget, message))
    }

    /// What is wrong in a state in which nothing happens any more, unless something goes wrong again.
    fn unrest(&self, state: &ModelState) -> Option<Violation> {
        if state.jobset.status.end.is_some() || !self.rests(state) {
            return None;
        }
        let GroupStatus { synced, deprecated, .. } = *state.jobset.status;
        let hang = |message: String| Some(Violation::new(Property::NoHang, message));
        if state.jobset.suspended {
            let is_left = state.slots.iter().any(|slot| slot.pod.is_some());
            return if is_left { hang("it is suspended, and a Pod is left".to_owned()) } else { None };
        }
        if deprecated >= synced {
            return hang(format!("epoch {synced} is over, and nothing follows"));
        }
        let is_written = |slot: &ModelSlot| slot.pod.as_ref().is_some_and(|pod| pod.epoch == slot.runs_in());
        if self.setting.stream != Stream::Absent
            && state.slots.iter().any(|slot| slot.runs_in() == Some(synced) && !is_written(slot))
        {
            return hang(format!("a worker runs in epoch {synced}, and no annotation ever says so"));
        }
        if state.group_stalls() {
            return hang(format!("the group stalls in epoch {synced}, and nothing follows"));
        }
        let wrong = state.slots.iter().find(|slot| slot.runs_in() != Some(synced))?;
        if wrong.runs_in().is_none() {
            return hang(format!("a worker does not run, and the synced epoch is {synced}"));
        }
        let message = format!("a worker runs on in epoch {:?}, and the synced epoch is {synced}", wrong.runs_in());
        Some(Violation::new(Property::OneWorkerPerEpoch, message))
    }
}

impl ModelState {
    fn ensure(&mut self, holds: bool, property: Property, message: impl FnOnce() -> String) {
        self.note(ensure(holds, property, message));
    }

    fn note(&mut self, checked: CheckResult) {
        self.violation = self.violation.take().or_else(|| checked.err());
    }

    /// An agent's report arrives.
    pub(super) fn check_report(&mut self, epoch: i32) {
        self.note(check_report("a Pod", epoch, self.jobset.status.synced));
    }

    /// A worker starts.
    pub(super) fn check_start(&mut self, slot: usize, epoch: i32) {
        self.note(check_start("a slot", epoch, Some(self.slots[slot].last_run), self.jobset.status.synced));
        // One whose agent restarted alone runs on until the controller notices.
        let others = self.slots.iter().enumerate().filter(|(other, it)| {
            *other != slot && it.machine.as_ref().is_some_and(|machine| !machine.agent_is_younger)
        });
        let other = others.filter_map(|(_, it)| it.runs_in()).find(|other| *other != epoch);
        self.ensure(other.is_none(), Property::OneWorkerPerEpoch, || {
            format!("a worker starts in epoch {epoch}, and another runs in epoch {other:?}")
        });
        self.slots[slot].change(|slot| slot.last_run = slot.last_run.max(epoch));
    }

    /// A status is written over this one.
    pub(super) fn check_write(&mut self, before: ModelStatus, setting: &Setting) {
        let (after, max_restarts) = (self.jobset.status, setting.max_restarts);
        let s = before.synced;
        self.note(after.check(&before));
        if after.synced > s {
            let all = self.slots.iter().all(|slot| slot.has_reported);
            self.ensure(all, Property::Barrier, || format!("epoch {} begins, and a slot has not reported it", s + 1));
        }
        let (restarts, counts) = (after.restarts - before.restarts, after.counted - before.counted);
        self.ensure(restarts == counts, Property::ExactBudget, || format!("{restarts} restarts, {counts} counted"));
        self.ensure(after.counted <= max_restarts, Property::ExactBudget, || {
            format!("{} restarts are counted of {max_restarts}", after.counted)
        });
        let is_struck = self.slots.iter().any(|slot| slot.is_struck_in(s));
        self.ensure(restarts == 0 || is_struck, Property::OneRestartPerIncident, || {
            format!("a restart in epoch {s}, in which nothing failed")
        });
        let is_free = after.free == s + 1 && !(setting.strict && is_struck);
        self.ensure(!after.ends(&before) || restarts == 1 || is_free, Property::ExactBudget, || {
            format!("epoch {s} ends, and nobody counts it")
        });
        let is_spent = before.counted == max_restarts && is_struck;
        let may_end = match after.end {
            None => true,
            Some(ModelEnd::Restarts) => is_spent,
            Some(ModelEnd::Barrier) => self.slots.iter().any(|slot| i32::from(slot.strikes) > max_restarts),
            Some(ModelEnd::Other) => false,
        };
        self.ensure(may_end, Property::ExactBudget, || {
            format!("it ends ({:?}) after {} restarts of {max_restarts}", after.end, before.counted)
        });
    }

    /// The controller deletes a Pod because its report is too high.
    pub(super) fn check_deletion(&mut self, slot: usize) {
        let (synced, epoch) = (self.jobset.status.synced, self.slots[slot].pod.as_ref().and_then(|pod| pod.epoch));
        self.ensure(epoch > Some(synced + 1), Property::OneRestartPerIncident, || {
            format!("a Pod that reports {epoch:?} is deleted, and the synced epoch is {synced}")
        });
    }

    /// An epoch has begun. What struck before it is over, unless the slot has nobody who goes on in it: whoever comes next
    /// reports the epoch after it.
    pub(super) fn note_lift(&mut self) {
        let epoch = self.jobset.status.synced;
        for slot in &mut self.slots {
            slot.change(|slot| {
                let goes_on = slot.pod.as_ref().is_some_and(|pod| pod.going.is_none())
                    && slot.machine.as_ref().is_some_and(|machine| {
                        !machine.must_reset && machine.agent.as_ref().is_some_and(|agent| agent.entered == Some(epoch))
                    });
                slot.has_reported = false;
                // Bits of this epoch and of those after it.
                slot.struck &= !(bit(epoch) - 1);
                if goes_on {
                    slot.struck &= !bit(epoch);
                }
            });
        }
    }
}
