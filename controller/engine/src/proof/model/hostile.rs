//! Hostile relays: what they may do with what passes them, at any time and without end.
//!
//! They can sign nothing. So they withhold what the leader says, change its order and say it again, swallow reports and repeat them, and
//! tell the leader of connections what they like. What an agent takes of that, its real rules decide ([`super::link`]).
//!
//! A relay that passes something on late, or never, is one that waits. So nothing that the leader says is on its way to such a relay but
//! the answer to a hello: the relay says of it what it likes.

use super::controller::name;
use super::link::{Addressee, Hello, ModelReport, ModelStatement, time_of};
use super::node::ModelAgent;
use super::state::{ModelSlot, ModelState};
use super::system::{Steps, System};
use crate::proof::RuleMutation;

impl System {
    /// What a relay does in the end that does not withhold the JobSet for ever.
    pub(super) fn progress_of_hostile<'a>(&'a self, state: &ModelState, steps: &mut Steps<'a>) {
        let newest = newest(state);
        for (index, slot) in state.slots.iter().enumerate().filter(|_| state.left.hostile) {
            let process = slot.process().filter(|process| process.link.up);
            let is_new = |process: &&ModelAgent| newest.time > Some(time_of(process.agent.told()));
            let hears = process.filter(is_new).is_some_and(|process| self.heard(process, newest).is_some());
            steps.of(index, hears, "the relay says to the agent what is stored", move |state, slot| {
                self.pass_on(state, slot, newest);
            });
        }
    }

    pub(super) fn hostilities<'a>(&'a self, state: &ModelState, steps: &mut Steps<'a>) {
        for (index, slot) in state.slots.iter().enumerate().filter(|_| state.left.hostile) {
            for epoch in unwritten(slot) {
                steps.of(index, true, "the relay repeats a report", move |state, slot| {
                    Self::repeat_report(state, slot, epoch);
                });
            }
            if let Some(process) = slot.process().filter(|process| process.link.up) {
                self.hostilities_of_link(state, (index, process), steps);
            }
        }
    }

    fn hostilities_of_link<'a>(
        &'a self,
        state: &ModelState,
        (index, process): (usize, &ModelAgent),
        steps: &mut Steps<'a>,
    ) {
        let link = &process.link;
        let silent = "the relay says nothing of the JobSet to the agent for too long";
        steps.of(index, self.notices_silence(), silent, |state, slot| self.end_connection(state, slot));
        let what = "the relay tells the leader that the connection has ended, and of another";
        steps.of(index, link.hello != Hello::OnItsWay, what, |state, slot| self.begin_again(state, slot));
        steps.of(index, link.report.is_some(), "the relay swallows the report", |state, slot| {
            state.change_link(slot, |link| link.report = None);
        });
        for statement in repeated(state) {
            if self.heard(process, statement).is_some() {
                let what = format!("the relay says to the agent what has been said before: {statement:?}");
                steps.of(index, true, &what, move |state, slot| self.pass_on(state, slot, statement));
            }
        }
    }

    /// Whether agents notice that a relay passes on nothing about their JobSet.
    pub(super) fn notices_silence(&self) -> bool {
        let takes_others = [Some(RuleMutation::LifeOfOthersCounts), Some(RuleMutation::StatesNotRepeated)];
        !takes_others.contains(&self.setting.broken)
    }

    /// The leader hears that the connection has ended, and hears of it again. It answers again where the agent does not know
    /// the answer.
    fn begin_again(&self, state: &mut ModelState, slot: usize) {
        state.slots[slot].change(|slot| {
            if let Some(pod) = &slot.pod {
                slot.reports.agent_gone(&name(pod.generation));
            }
        });
        let is_answered = state.slots[slot].process().is_some_and(|process| process.link.answered);
        if !is_answered {
            state.change_link(slot, |link| link.hello = Hello::OnItsWay);
            self.answer_promptly(state, slot);
        }
    }

    fn repeat_report(state: &mut ModelState, slot: usize, epoch: i32) {
        let of_pod = |slot: &ModelSlot| {
            Some((slot.pod.as_ref()?.generation, slot.machine.as_ref()?.agent.as_ref().and_then(|it| it.progress)))
        };
        if let Some((generation, progress)) = of_pod(&state.slots[slot]) {
            let report = ModelReport { epoch, progress };
            Self::hear_report(state, slot, (generation, report), generation);
        }
    }
}

impl ModelState {
    /// Agents that have been told of this, or will be by an answer, can be told by a hostile relay of what has come since.
    pub(super) fn oldest_that_relays_repeat(&self) -> Option<i32> {
        let links = self.slots.iter().filter_map(|slot| slot.process()).filter(|_| self.left.hostile);
        let known = |process: &ModelAgent| {
            let answer = process.link.statements.iter().map(|answer| time_of(answer.epochs)).min();
            answer.or(process.link.answered.then(|| time_of(process.agent.told())))
        };
        links.filter_map(known).min()
    }
}

/// The epochs that agents of the Pod have entered, and that its annotation does not have. Its relay may tell of each of them.
fn unwritten(slot: &ModelSlot) -> impl Iterator<Item = i32> + use<> {
    let entered = slot.machine.as_ref().and_then(|machine| machine.entered);
    let written = slot.pod.as_ref().and_then(|pod| pod.epoch);
    entered.into_iter().flat_map(move |entered| written.map_or(entered, |written| written + 1)..=entered)
}

fn newest(state: &ModelState) -> ModelStatement {
    let history = &state.jobset.history;
    ModelStatement::new(history[history.len() - 1], Addressee::Group)
}

/// What leaders have said, and may have said before in-place restart was switched on: of each version of the JobSet to all, and of one
/// before to the agent of another connection.
fn repeated(state: &ModelState) -> impl Iterator<Item = ModelStatement> + use<> {
    let said = state.jobset.history.clone().into_iter().map(|epochs| ModelStatement::new(epochs, Addressee::Group));
    let before = (state.jobset.status.synced - 1).max(0);
    let to_another = ModelStatement::new((before, before), Addressee::Another);
    let off = ModelStatement { bypass: true, time: Some(-1), ..ModelStatement::new((0, 0), Addressee::Group) };
    said.chain([to_another, off])
}
