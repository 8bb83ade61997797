//! What has to hold in every state, against what has truly happened: `protocol.md`, "To be model-checked", 1 to 5.

use stateright::Property as Checked;

use super::setting::Setting;
use super::state::{End, ModelSlot, ModelState, ModelStatus, bit};
use super::system::System;

/// What is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelProperty {
    /// 1. No worker runs in an epoch before every slot has reported it.
    Barrier,
    /// 2. No worker is started twice in one epoch of one slot, and none of an older epoch runs on.
    OnePerEpoch,
    /// 3. When nothing is left to happen, all workers run in one epoch, or the JobSet has ended, or is suspended.
    NoHang,
    /// 4. No restart without a failure, and one for all that happens until it is over.
    OneRestartPerIncident,
    /// 5. Every restart is counted, unless the controller's own doing excuses it. The JobSet fails at one too many.
    ExactBudget,
}

/// The names of the properties, as the checker has them.
pub(super) const NAMES: [(&str, ModelProperty); 5] = [
    ("no worker runs before every slot has reported its epoch", ModelProperty::Barrier),
    ("one worker per slot and epoch, none in an older one", ModelProperty::OnePerEpoch),
    ("nobody hangs", ModelProperty::NoHang),
    ("one restart per incident", ModelProperty::OneRestartPerIncident),
    ("the budget is exact", ModelProperty::ExactBudget),
];

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelViolation {
    pub property: ModelProperty,
    pub message: String,
}

pub(super) fn all() -> Vec<Checked<System>> {
    vec![
        Checked::always(NAMES[0].0, |system, state| system.holds(state, ModelProperty::Barrier)),
        Checked::always(NAMES[1].0, |system, state| system.holds(state, ModelProperty::OnePerEpoch)),
        Checked::always(NAMES[2].0, |system, state| system.holds(state, ModelProperty::NoHang)),
        Checked::always(NAMES[3].0, |system, state| system.holds(state, ModelProperty::OneRestartPerIncident)),
        Checked::always(NAMES[4].0, |system, state| system.holds(state, ModelProperty::ExactBudget)),
    ]
}

impl System {
    fn holds(&self, state: &ModelState, property: ModelProperty) -> bool {
        let violation = match property {
            _ if state.violation.is_some() => state.violation.clone(),
            ModelProperty::NoHang | ModelProperty::OnePerEpoch => self.unrest(state),
            ModelProperty::ExactBudget => Self::unfair(state),
            ModelProperty::Barrier | ModelProperty::OneRestartPerIncident => None,
        };
        violation.is_none_or(|violation| violation.property != property)
    }

    /// What is wrong with the failures that are counted before the barrier, where they can get into the status.
    pub(super) fn unfair(state: &ModelState) -> Option<ModelViolation> {
        let is_current = state.controller.seen == state.jobset.shown();
        let counted = |slot: &ModelSlot| slot.kept.failures_before_worker();
        let unfair = state.slots.iter().filter(|_| is_current).find(|slot| counted(slot) > u32::from(slot.strikes))?;
        let (counted, truly) = (counted(unfair), unfair.strikes);
        let message =
            format!("{counted} failures are counted before the barrier, of a slot that was struck {truly} times");
        Some(ModelViolation { property: ModelProperty::ExactBudget, message })
    }

    /// What is wrong in a state in which nothing happens any more, unless something goes wrong again.
    pub(super) fn unrest(&self, state: &ModelState) -> Option<ModelViolation> {
        if state.jobset.status.end.is_some() || !self.progress(state).is_empty() {
            return None;
        }
        let ModelStatus { synced, deprecated, .. } = state.jobset.status;
        let hang = |message: String| Some(ModelViolation { property: ModelProperty::NoHang, message });
        if state.jobset.suspended {
            let is_left = state.slots.iter().any(|slot| slot.pod.is_some());
            return if is_left { hang("it is suspended, and a Pod is left".to_owned()) } else { None };
        }
        if deprecated >= synced {
            return hang(format!("epoch {synced} is over, and nothing follows"));
        }
        let wrong = state.slots.iter().find(|slot| slot.runs_in() != Some(synced))?;
        if wrong.runs_in().is_none() {
            return hang(format!("a worker does not run, and the synced epoch is {synced}"));
        }
        let message = format!("a worker runs on in epoch {:?}, and the synced epoch is {synced}", wrong.runs_in());
        Some(ModelViolation { property: ModelProperty::OnePerEpoch, message })
    }
}

impl ModelState {
    fn ensure(&mut self, holds: bool, property: ModelProperty, message: impl FnOnce() -> String) {
        if !holds && self.violation.is_none() {
            self.violation = Some(ModelViolation { property, message: message() });
        }
    }

    /// An agent's report arrives.
    pub(super) fn check_report(&mut self, epoch: i32) {
        let synced = self.jobset.status.synced;
        self.ensure(epoch <= synced + 1, ModelProperty::Barrier, || {
            format!("epoch {epoch} is reported, and the synced epoch is {synced}")
        });
    }

    /// A worker starts.
    pub(super) fn check_start(&mut self, slot: usize, epoch: i32) {
        let synced = self.jobset.status.synced;
        self.ensure(epoch <= synced, ModelProperty::Barrier, || {
            format!("a worker starts in epoch {epoch}, and the synced epoch is {synced}")
        });
        let last = self.slots[slot].last_run;
        self.ensure(last < epoch, ModelProperty::OnePerEpoch, || {
            format!("a worker starts in epoch {epoch}, and one of its slot has run in epoch {last}")
        });
        // One whose agent restarted alone runs on until the controller notices.
        let others = self.slots.iter().enumerate().filter(|(other, it)| {
            *other != slot && it.machine.as_ref().is_some_and(|machine| !machine.agent_is_younger)
        });
        let other = others.filter_map(|(_, it)| it.runs_in()).find(|other| *other != epoch);
        self.ensure(other.is_none(), ModelProperty::OnePerEpoch, || {
            format!("a worker starts in epoch {epoch}, and another runs in epoch {other:?}")
        });
        self.slots[slot].change(|slot| slot.last_run = slot.last_run.max(epoch));
    }

    /// A status is written over this one.
    pub(super) fn check_write(&mut self, before: ModelStatus, setting: &Setting) {
        let (after, max_restarts) = (self.jobset.status, setting.max_restarts);
        let (s, d) = (before.synced, before.deprecated);
        let grows = (s..=s + 1).contains(&after.synced) && (d..=after.synced).contains(&after.deprecated);
        self.ensure(grows, ModelProperty::OneRestartPerIncident, || format!("epochs {after:?} after {before:?}"));
        if after.synced > s {
            let all = self.slots.iter().all(|slot| slot.has_reported);
            self.ensure(all, ModelProperty::Barrier, || {
                format!("epoch {} begins, and a slot has not reported it", s + 1)
            });
        }
        let (restarts, counts) = (after.group - before.group, after.counted - before.counted);
        self.ensure(restarts == counts && (0..=1).contains(&counts), ModelProperty::ExactBudget, || {
            format!("{restarts} restarts, {counts} counted")
        });
        self.ensure(after.counted <= max_restarts, ModelProperty::ExactBudget, || {
            format!("{} restarts are counted of {max_restarts}", after.counted)
        });
        let ends = s > 0 && d < s && after.deprecated >= s;
        self.ensure(restarts == 0 || ends, ModelProperty::OneRestartPerIncident, || {
            format!("a restart that does not end epoch {s}")
        });
        let is_struck = self.slots.iter().any(|slot| slot.is_struck_in(s));
        self.ensure(restarts == 0 || is_struck, ModelProperty::OneRestartPerIncident, || {
            format!("a restart in epoch {s}, in which nothing failed")
        });
        let is_free = after.free == s + 1 && !(setting.strict && is_struck);
        self.ensure(!ends || restarts == 1 || is_free, ModelProperty::ExactBudget, || {
            format!("epoch {s} ends, and nobody counts it")
        });
        let is_spent = before.counted == max_restarts && is_struck;
        let may_end = match after.end {
            None => true,
            Some(End::Restarts) => is_spent,
            Some(End::Barrier) => self.slots.iter().any(|slot| i32::from(slot.strikes) > max_restarts),
            Some(End::Other) => false,
        };
        self.ensure(may_end, ModelProperty::ExactBudget, || {
            format!("it ends ({:?}) after {} restarts of {max_restarts}", after.end, before.counted)
        });
    }

    /// The controller deletes a Pod because its report is too high.
    pub(super) fn check_deletion(&mut self, slot: usize) {
        let (synced, epoch) = (self.jobset.status.synced, self.slots[slot].pod.as_ref().and_then(|pod| pod.epoch));
        self.ensure(epoch > Some(synced + 1), ModelProperty::OneRestartPerIncident, || {
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
