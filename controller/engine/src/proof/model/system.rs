//! Who can do what, and when: the model as the checker walks through it. What comes of it is in [`super::effects`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jobset_api::JobSet;
use stateright::Model;

use super::controller::{self, Decided};
use super::node::{Deed, ModelWorker};
use super::setting::{Budget, Setting, Stream};
use super::state::{JobSetObject, ModelController, ModelSlot, ModelState, ModelStatus, Shared};
use super::stream::StreamAction;
use crate::proof::RuleMutation;
use crate::proof::mutation::edit_jobset;

/// The model in one setting.
pub(super) struct System {
    pub setting: Setting,
    pub jobset: Arc<JobSet>,
    /// Earlier reconciliations: most states differ in what the controller does not observe.
    pub decided: Mutex<HashMap<u64, Arc<Decided>>>,
}

/// One thing that happens. Numbers are places in [`ModelState::slots`], which change from state to state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelAction {
    /// A kubelet does what is next to the containers of a Pod, or the supervisor in it.
    Node(usize),
    /// The kubelet ends a Pod that is being deleted.
    End(usize),
    /// The kubelet writes the status.
    WriteStatus(usize),
    /// An agent sees the next version of the JobSet.
    See(usize),
    /// An agent sees the newest version of the JobSet, and those before it never.
    SeeNewest(usize),
    /// A report arrives, and its answer.
    Report(usize),
    /// The report is repeated: it got lost.
    Repeat(usize),
    /// The Job controller deletes or creates a Pod.
    Job(usize),
    /// The controller sees the next event of a Pod.
    SeePod(usize),
    /// The controller sees the newest version of the JobSet.
    SeeJobSet,
    /// The controller applies its rules.
    Reconcile,
    /// The same after the time that it wanted to wait.
    ReconcileLater,
    /// The controller's write arrives.
    Write,
    /// The write of a former controller arrives.
    LateWrite,
    /// Something happens on the stream.
    Stream(StreamAction),

    WorkerFails(usize),
    /// An agent restarts; beside a sidecar, the worker runs on.
    AgentRestarts(usize),
    /// All containers of a Pod restart.
    PodRestarts(usize),
    /// A Pod is evicted.
    Evict(usize),
    /// A Pod vanishes with its containers.
    Lose(usize),
    /// A report gets lost.
    LoseReport(usize),
    /// A report is stored, and its answer gets lost.
    LoseAnswer(usize),
    /// An agent starts, and its first read shows the JobSet as it was before its newest version.
    StaleStart(usize),
    /// Another controller takes over. It sees Pods or the JobSet first; what its predecessor has sent arrives or does not.
    Crash {
        pods_first: bool,
        write_arrives: bool,
        statements_arrive: bool,
    },
    /// The user suspends the JobSet.
    Suspend,
    /// The user resumes it.
    Resume,
}

impl System {
    pub(super) fn new(setting: Setting) -> Self {
        let mut jobset = Arc::new(controller::jobset(&setting));
        edit_jobset(setting.broken, &mut jobset);
        Self { setting, jobset, decided: Mutex::default() }
    }

    /// A JobSet whose Pods have just been created, or whose workers all run in the first epoch.
    fn beginning(&self) -> ModelState {
        let job_suspended = false;
        let jobset =
            JobSetObject { status: ModelStatus::default(), suspended: false, job_suspended, history: vec![(0, 0)] };
        // What a leader that is stopped has seen.
        let left = Budget { woken: self.setting.left.woken, ..Budget::default() };
        let controller = ModelController { observed: jobset.shown(), ..ModelController::default() };
        let slots = (0..self.setting.pods).map(|_| Shared::new(ModelSlot::default())).collect();
        let mut state = ModelState { slots, jobset, controller, late: None, left, violation: None };
        for slot in 0..self.setting.pods {
            self.create_pod(&mut state, slot);
        }
        if !self.setting.from_birth {
            while let Some(action) = self.connections(&state).into_iter().chain(self.progress(&state)).next() {
                state = self.after(&state, action);
            }
        }
        state.left = self.setting.left;
        state.settle();
        state
    }

    /// What can happen without anything going wrong. Each of these changes something.
    pub(super) fn progress(&self, state: &ModelState) -> Vec<ModelAction> {
        let mut actions = Vec::new();
        if state.violation.is_some() || state.jobset.status.end.is_some() {
            return actions;
        }
        if self.setting.stream == Stream::Alone {
            actions.extend(self.connections(state));
        }
        for (index, slot) in state.slots.iter().enumerate() {
            self.progress_of_slot(state, index, slot, &mut actions);
        }
        let controller = &state.controller;
        if controller.pending.is_some() {
            actions.push(ModelAction::Write);
        }
        if state.late.is_some() {
            actions.push(ModelAction::LateWrite);
        }
        if controller.observed != state.jobset.shown() {
            actions.push(ModelAction::SeeJobSet);
        }
        if controller.pending.is_none() {
            let decided = self.decide(state, false);
            if decided.changes(state, self.setting.broken) {
                actions.push(ModelAction::Reconcile);
            }
            if decided.waits && self.decide(state, true).changes(state, self.setting.broken) {
                actions.push(ModelAction::ReconcileLater);
            }
        }
        actions
    }

    fn progress_of_slot(&self, state: &ModelState, index: usize, slot: &ModelSlot, actions: &mut Vec<ModelAction>) {
        if !slot.unseen.is_empty() {
            actions.push(ModelAction::SeePod(index));
        }
        let Some(pod) = &slot.pod else {
            if !state.jobset.job_suspended {
                actions.push(ModelAction::Job(index));
            }
            return;
        };
        if pod.status.failed || state.jobset.job_suspended && pod.going.is_none() {
            actions.push(ModelAction::Job(index));
        }
        let Some(machine) = &slot.machine else { return };
        if pod.going.is_some() {
            actions.push(ModelAction::End(index));
        } else if machine.next_deed().is_some() {
            actions.push(ModelAction::Node(index));
        }
        if machine.status() != pod.status {
            actions.push(ModelAction::WriteStatus(index));
        }
        let Some(agent) = &machine.agent else { return };
        if agent.age > 0 {
            actions.push(ModelAction::See(index));
        }
        if agent.age > 1 {
            actions.push(ModelAction::SeeNewest(index));
        }
        if agent.in_flight.is_some() {
            actions.push(ModelAction::Report(index));
        }
        self.progress_of_stream(index, agent, actions);
        let is_lost = pod.epoch != agent.entered && !agent.will_report();
        if agent.timer && agent.awaits_sync() && is_lost && self.setting.repeats_reports() {
            actions.push(ModelAction::Repeat(index));
        }
    }

    /// What can go wrong, and what the user can do.
    fn faults(&self, state: &ModelState, actions: &mut Vec<ModelAction>) {
        if state.violation.is_some() || state.jobset.status.end.is_some() {
            return;
        }
        let (left, may) = (state.left, self.setting.faults);
        for (index, slot) in state.slots.iter().enumerate() {
            let (Some(pod), Some(machine)) = (&slot.pod, &slot.machine) else { continue };
            if pod.going.is_none() && left.faults > 0 && !machine.must_reset {
                let runs = matches!(machine.worker, ModelWorker::Runs(_));
                let has_agent = machine.agent.is_some();
                let strikes = [
                    (may.worker && runs && has_agent, ModelAction::WorkerFails(index)),
                    (may.agent && has_agent, ModelAction::AgentRestarts(index)),
                    (may.pod && has_agent, ModelAction::PodRestarts(index)),
                    (may.eviction, ModelAction::Evict(index)),
                    (may.loss, ModelAction::Lose(index)),
                ];
                actions.extend(strikes.into_iter().filter(|(may, _)| *may).map(|(_, action)| action));
            }
            if left.reports > 0 && machine.agent.as_ref().is_some_and(|agent| agent.in_flight.is_some()) {
                actions.extend([ModelAction::LoseReport(index), ModelAction::LoseAnswer(index)]);
            }
            let starts = pod.going.is_none() && machine.next_deed() == Some(Deed::StartAgent);
            if left.stale_reads > 0 && starts && state.jobset.history.len() > 1 {
                actions.push(ModelAction::StaleStart(index));
            }
        }
        if left.crashes > 0 {
            let may_arrive = state.controller.pending.is_some() && state.late.is_none();
            for pods_first in [false, true] {
                for write_arrives in [false, true].into_iter().filter(|arrives| may_arrive || !arrives) {
                    for statements_arrive in [false, true].into_iter().filter(|it| !it || state.has_statements()) {
                        actions.push(ModelAction::Crash { pods_first, write_arrives, statements_arrive });
                    }
                }
            }
        }
        if state.jobset.suspended {
            actions.push(ModelAction::Resume);
        } else if left.suspensions > 0 {
            actions.push(ModelAction::Suspend);
        }
    }
}

impl Model for System {
    type State = ModelState;
    type Action = ModelAction;

    fn init_states(&self) -> Vec<ModelState> {
        vec![self.beginning()]
    }

    fn actions(&self, state: &ModelState, actions: &mut Vec<ModelAction>) {
        *actions = self.progress(state);
        actions.extend(self.connections(state));
        self.faults(state, actions);
        self.faults_of_stream(state, actions);
    }

    fn next_state(&self, state: &ModelState, action: ModelAction) -> Option<ModelState> {
        let next = self.after(state, action);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        vec![stateright::Property::always("the properties hold", |system, state| system.violation(state).is_none())]
    }
}

impl Setting {
    fn repeats_reports(&self) -> bool {
        self.broken != Some(RuleMutation::ReportsOnce)
    }
}
