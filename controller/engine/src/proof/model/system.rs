//! Who can do what, and when, and what comes of it: the model as the explorer walks through it. [`super::effects`] has the longer
//! effects.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use jobset_api::JobSet;

use super::controller::{self, Decided};
use super::link::Heard;
use super::node::{Deed, ModelMachine, ModelWorker};
use super::setting::{Budget, Setting, Stream};
use super::state::{Going, JobSetObject, ModelController, ModelSlot, ModelState, ModelStatus, Shared};
use crate::proof::RuleMutation;
use crate::proof::mutation::edit_jobset;

/// The model in one setting.
pub(super) struct System {
    pub setting: Setting,
    pub jobset: Arc<JobSet>,
    /// Earlier reconciliations: most states differ in what the controller does not observe.
    pub decided: RefCell<HashMap<u64, Arc<Decided>>>,
    pub heard: RefCell<Heard>,
}

/// One thing that can happen in a state.
pub(super) struct Step<'a> {
    /// What happens. Numbers are places in [`ModelState::slots`], which change from state to state.
    pub what: String,
    /// Whether it may happen again and again: a hostile relay does it.
    pub may_recur: bool,
    effect: Box<dyn FnOnce(&mut ModelState) + 'a>,
}

impl Step<'_> {
    /// The state after this step, which is possible in this state.
    pub(super) fn after(self, state: &ModelState) -> ModelState {
        let mut next = state.clone();
        (self.effect)(&mut next);
        next.settle();
        next
    }
}

/// What can happen in a state, as it is collected.
#[derive(Default)]
pub(super) struct Steps<'a> {
    all: Vec<Step<'a>>,
    /// Whether those that are added may recur.
    pub may_recur: bool,
}

impl<'a> Steps<'a> {
    /// This can happen, if it is possible.
    pub(super) fn may(&mut self, possible: bool, what: impl Into<String>, effect: impl FnOnce(&mut ModelState) + 'a) {
        if possible {
            self.all.push(Step { what: what.into(), may_recur: self.may_recur, effect: Box::new(effect) });
        }
    }

    /// The same of a slot.
    pub(super) fn of(
        &mut self,
        slot: usize,
        possible: bool,
        what: &str,
        effect: impl FnOnce(&mut ModelState, usize) + 'a,
    ) {
        if possible {
            self.may(true, format!("{slot}: {what}"), move |state| effect(state, slot));
        }
    }
}

impl System {
    pub(super) fn new(setting: Setting) -> Self {
        let mut jobset = Arc::new(controller::jobset(&setting));
        edit_jobset(setting.broken, &mut jobset);
        Self { setting, jobset, decided: RefCell::default(), heard: RefCell::default() }
    }

    /// A JobSet whose Pods have just been created, or whose workers all run in the first epoch.
    pub(super) fn beginning(&self) -> ModelState {
        let job_suspended = false;
        let jobset =
            JobSetObject { status: ModelStatus::default(), suspended: false, job_suspended, history: vec![(0, 0)] };
        // What a leader that is stopped has seen, or a hostile relay heard.
        let Budget { woken, hostile, .. } = self.setting.left;
        let left = Budget { woken, hostile, ..Budget::default() };
        let controller = ModelController { observed: jobset.shown(), ..ModelController::default() };
        let slots = (0..self.setting.pods).map(|_| Shared::new(ModelSlot::default())).collect();
        let mut state = ModelState { slots, jobset, controller, late: None, left, violation: None };
        for slot in 0..self.setting.pods {
            self.create_pod(&mut state, slot);
        }
        let next = |state: &ModelState| {
            let mut steps = Steps::default();
            self.connections(state, &mut steps);
            self.progress(state, &mut steps);
            steps.all.into_iter().next()
        };
        if !self.setting.from_birth {
            while let Some(step) = next(&state) {
                state = step.after(&state);
            }
        }
        state.left = self.setting.left;
        state.settle();
        state
    }

    /// What can happen in a state.
    pub(super) fn steps(&self, state: &ModelState) -> Vec<Step<'_>> {
        let mut steps = Steps::default();
        self.progress(state, &mut steps);
        if !state.is_over() {
            steps.may_recur = state.left.hostile;
            if self.setting.stream != Stream::Alone {
                self.connections(state, &mut steps);
            }
            self.hostilities(state, &mut steps);
            steps.may_recur = false;
            self.faults(state, &mut steps);
            self.faults_of_stream(state, &mut steps);
        }
        steps.all
    }

    /// Whether nothing is left to happen, unless something goes wrong.
    pub(super) fn rests(&self, state: &ModelState) -> bool {
        let mut steps = Steps::default();
        self.progress(state, &mut steps);
        steps.all.is_empty()
    }

    /// What can happen without anything going wrong. Each of these changes something.
    fn progress<'a>(&'a self, state: &ModelState, steps: &mut Steps<'a>) {
        if state.is_over() {
            return;
        }
        if self.setting.stream == Stream::Alone {
            self.connections(state, steps);
        }
        for (index, slot) in state.slots.iter().enumerate() {
            self.progress_of_slot(state, index, slot, steps);
        }
        self.progress_of_hostile(state, steps);
        let controller = &state.controller;
        steps.may(controller.pending.is_some(), "the write of the controller arrives", |state| {
            if let Some(status) = state.controller.pending.take() {
                self.store(state, status);
            }
        });
        steps.may(state.late.is_some(), "the write of a former controller arrives", |state| {
            if let Some(status) = state.late.take() {
                self.store(state, status);
            }
        });
        steps.may(
            controller.observed != state.jobset.shown(),
            "the controller sees the newest version of the JobSet",
            |state| self.show_jobset(state),
        );
        if controller.pending.is_none() {
            let decides = |later| self.decide(state, later).changes(state, self.setting.broken);
            steps.may(decides(false), "the controller applies its rules", |state| self.reconcile(state, false));
            let waits = self.decide(state, false).waits;
            steps.may(waits && decides(true), "the same after the time that it wanted to wait", |state| {
                self.reconcile(state, true);
            });
        }
    }

    fn progress_of_slot<'a>(&'a self, state: &ModelState, index: usize, slot: &ModelSlot, steps: &mut Steps<'a>) {
        let seen = "the controller sees the next event of the Pod";
        steps.of(index, !slot.unseen.is_empty(), seen, |state, slot| self.show_next(state, slot));
        let (job, suspended) = ("the Job controller deletes or creates the Pod", state.jobset.job_suspended);
        let syncs = slot.pod.as_ref().map_or(!suspended, |pod| pod.has_failed() || suspended && pod.going.is_none());
        steps.of(index, syncs, job, |state, slot| self.run_job_controller(state, slot));
        let (Some(pod), Some(machine)) = (&slot.pod, &slot.machine) else { return };
        let (goes, acts) = (pod.going.is_some(), machine.next_deed().is_some());
        steps.of(index, goes, "the kubelet ends the Pod", |state, slot| self.end_pod(state, slot));
        steps.of(index, acts && !goes, "the kubelet, or the supervisor, does what is next", |state, slot| {
            self.change_machine(state, slot, ModelMachine::act);
        });
        let is_outdated = machine.status() != pod.status;
        steps.of(index, is_outdated, "the kubelet writes the status", |state, slot| self.write_pod_status(state, slot));
        let Some(agent) = &machine.agent else { return };
        steps.of(index, agent.age > 0, "the agent sees the next version of the JobSet", |state, slot| {
            self.see(state, slot, false);
        });
        // It never sees those before it.
        steps.of(index, agent.age > 1, "the agent sees the newest version of the JobSet", |state, slot| {
            self.see(state, slot, true);
        });
        steps.of(index, agent.writing.is_some(), "a report arrives, and its answer", |state, slot| {
            self.report(state, slot, true, true);
        });
        self.progress_of_stream(index, agent, steps);
        let is_lost = pod.epoch != agent.entered && !agent.will_report();
        let repeats = agent.timer.is_some() && agent.awaits_sync() && is_lost && self.setting.repeats_reports();
        steps.of(index, repeats, "the report is repeated", |state, slot| {
            self.change_machine(state, slot, |machine, _| machine.ring());
        });
    }

    /// What can go wrong, and what the user can do.
    fn faults<'a>(&'a self, state: &ModelState, steps: &mut Steps<'a>) {
        for (index, slot) in state.slots.iter().enumerate() {
            self.faults_of_slot(state, index, slot, steps);
        }
        let left = state.left;
        if left.crashes > 0 {
            let may_arrive = state.controller.pending.is_some() && state.late.is_none();
            for (pods_first, write, statements) in (0..8)
                .map(|way: u8| (way & 1 != 0, way & 2 != 0, way & 4 != 0))
                .filter(|(_, write, statements)| (may_arrive || !write) && (state.has_statements() || !statements))
            {
                let what = format!(
                    "another controller takes over; sees Pods first: {pods_first}, of what its predecessor has sent arrives the \
                     write: {write}, the statements: {statements}"
                );
                steps.may(true, what, move |state| {
                    state.left.crashes -= 1;
                    Self::hang_up(state, statements);
                    self.crash(state, pods_first, write);
                    self.redial(state);
                });
            }
        }
        steps.may(state.jobset.suspended, "the user resumes the JobSet", |state| self.set_suspended(state, false));
        steps.may(!state.jobset.suspended && left.suspensions > 0, "the user suspends the JobSet", |state| {
            state.left.suspensions -= 1;
            self.set_suspended(state, true);
        });
    }

    fn faults_of_slot<'a>(&'a self, state: &ModelState, index: usize, slot: &ModelSlot, steps: &mut Steps<'a>) {
        let (left, may) = (state.left, self.setting.faults);
        let (Some(pod), Some(machine)) = (&slot.pod, &slot.machine) else { return };
        let stands = pod.going.is_none() && left.faults > 0 && !machine.must_reset;
        let (runs, has_agent) = (matches!(machine.worker, ModelWorker::Runs(_)), machine.agent.is_some());
        let mut strikes = |possible, what, effect: fn(&Self, &mut ModelState, usize)| {
            steps.of(index, stands && possible, what, move |state, slot| {
                Self::strike(state, slot);
                effect(self, state, slot);
            });
        };
        strikes(may.worker && runs && has_agent, "the worker fails", |system, state, slot| {
            system.change_machine(state, slot, |machine, _| machine.fail_worker());
        });
        // Beside a sidecar, the worker runs on.
        strikes(may.agent && has_agent, "the agent restarts", |system, state, slot| {
            system.change_machine(state, slot, |machine, _| machine.restart_agent());
        });
        strikes(may.pod && has_agent, "all containers restart", |system, state, slot| {
            system.change_machine(state, slot, |machine, _| (machine.agent, machine.must_reset) = (None, true));
        });
        strikes(may.eviction, "the Pod is evicted", |system, state, slot| {
            system.change_pod(state, slot, |pod| pod.going = Some(Going::Disrupted));
        });
        strikes(may.loss, "the Pod vanishes with its containers", Self::remove_pod);
        let stalls = left.stalls > 0 && pod.going.is_none() && !machine.must_reset && runs && !machine.stalls();
        steps.of(index, stalls, "the worker makes no progress any longer", |state, slot| self.stall(state, slot));
        let loses = left.reports > 0 && machine.agent.as_ref().is_some_and(|agent| agent.writing.is_some());
        for (is_stored, what) in [(false, "the report gets lost"), (true, "the answer to the report gets lost")] {
            steps.of(index, loses, what, move |state, slot| {
                state.left.reports -= 1;
                self.report(state, slot, is_stored, false);
            });
        }
        let starts = pod.going.is_none() && machine.next_deed() == Some(Deed::StartAgent);
        let is_stale = left.stale_reads > 0 && starts && state.jobset.history.len() > 1;
        steps.of(index, is_stale, "the agent starts, and its first read is stale", |state, slot| {
            state.left.stale_reads -= 1;
            let old = state.jobset.history[state.jobset.history.len() - 2];
            self.change_machine(state, slot, |machine, _| machine.start_agent(old, 1));
        });
    }
}

impl ModelState {
    /// Whether nothing more is to be seen of this life.
    fn is_over(&self) -> bool {
        self.violation.is_some() || self.jobset.status.end.is_some()
    }
}

impl Setting {
    fn repeats_reports(&self) -> bool {
        self.broken != Some(RuleMutation::ReportsOnce)
    }
}
