//! The stream: relays and the leading controller's side of it. It is faster than the API server, and nothing of it is certain.
//!
//! A connection breaks at any time, with whatever is on its way. The leader answers the hello of each connection by what a
//! read of the JobSet shows that began afterwards, and says what it has stored and observed. Each statement reaches each agent
//! by itself, as late as can be, and so does each report reach the leader.

use jobset_agent::channels::ChannelInput;
use jobset_store::pods::{ObservedEpochs, StreamReport};

use super::controller::name;
use super::link::{Addressee, Hello, Link, ModelReport, ModelStatement};
use super::node::{ModelAgent, ModelMachine};
use super::setting::Stream;
use super::state::{ModelSlot, ModelState, Shared};
use super::system::{Steps, System};
use crate::proof::{ProgressWord, RuleMutation};

impl System {
    /// Connections that agents may begin at any time, or never.
    pub(super) fn connections<'a>(&'a self, state: &ModelState, steps: &mut Steps<'a>) {
        if self.setting.stream == Stream::Absent {
            return;
        }
        for (index, slot) in state.slots.iter().enumerate() {
            let may = slot.process().is_some_and(|process| !process.link.up);
            steps.of(index, may, "the agent connects to a relay", |state, slot| {
                self.change_machine(state, slot, |machine, _| {
                    machine.change_agent(|process| {
                        let known = process.entered.map(|epoch| process.says(epoch));
                        process.link = Link { up: true, known, ..Link::default() };
                    });
                });
                self.answer_promptly(state, slot);
            });
        }
    }

    pub(super) fn progress_of_stream<'a>(&'a self, index: usize, process: &ModelAgent, steps: &mut Steps<'a>) {
        let link = &process.link;
        let times_out = process.stream_deadline.is_some() && self.setting.stream != Stream::Alone;
        steps.of(index, times_out, "the agent no longer waits for the stream", |state, slot| {
            self.change_machine(state, slot, ModelMachine::end_wait);
        });
        steps.of(index, process.write_due.is_some(), "the delay of the annotation is over", |state, slot| {
            self.change_machine(state, slot, ModelMachine::end_delay);
        });
        let says_hello = link.up && link.hello == Hello::OnItsWay;
        steps.of(index, says_hello, "the leader hears of the connection", |state, slot| self.hear_hello(state, slot));
        steps.of(index, link.hello == Hello::Waits, "the JobSet is read for the hello", |state, slot| {
            self.read_for_hello(state, slot);
        });
        let is_read = matches!(link.hello, Hello::Read(_));
        steps.of(index, is_read, "the leader answers the hello", |state, slot| self.answer_hello(state, slot));
        steps.of(index, !link.statements.is_empty(), "the next statement reaches the agent", |state, slot| {
            self.tell_agent(state, slot);
        });
        let reports = link.is_known() && link.report.is_some();
        steps.of(index, reports, "a report reaches the leader", |state, slot| {
            let Some(generation) = state.slots[slot].pod.as_ref().map(|pod| pod.generation) else { return };
            let mut report = None;
            state.change_link(slot, |link| {
                report = link.report.take();
                link.known = report;
            });
            if let Some(report) = report {
                Self::hear_report(state, slot, (generation, report), generation);
            }
        });
    }

    pub(super) fn end_connection(&self, state: &mut ModelState, slot: usize) {
        let connected = state.connection(slot);
        self.change_machine(state, slot, |machine, newest| {
            machine.change_agent(|process| process.link = Link::default());
            machine.happen(ChannelInput::Disconnected, newest);
        });
        if let Some((generation, link)) = connected {
            Self::note_lost(state, slot, generation, &link);
        }
    }

    pub(super) fn faults_of_stream<'a>(&'a self, state: &ModelState, steps: &mut Steps<'a>) {
        for (index, slot) in state.slots.iter().enumerate() {
            // It may also never do so.
            let late = "a report whose connection has ended reaches the leader";
            steps.of(index, !slot.late_reports.is_empty(), late, |state, slot| self.hear_late_report(state, slot));
            let is_up = slot.process().is_some_and(|process| process.link.up);
            steps.of(index, is_up && state.left.breaks > 0, "the connection breaks", |state, slot| {
                state.left.breaks -= 1;
                self.end_connection(state, slot);
            });
            for age in 1..state.jobset.history.len() {
                let what = format!("a leader that was stopped wakes, {age} versions behind");
                steps.of(index, is_up && state.left.woken > 0, &what, move |state, slot| {
                    state.left.woken -= 1;
                    let old = state.jobset.history[state.jobset.history.len() - 1 - age];
                    let statement = ModelStatement { time: None, ..ModelStatement::new(old, Addressee::Group) };
                    state.change_link(slot, |link| link.statements.push(statement));
                });
            }
        }
    }

    fn hear_late_report(&self, state: &mut ModelState, slot: usize) {
        let mut late = None;
        state.slots[slot].change(|slot| late = Some(slot.late_reports.remove(0)));
        let Some((generation, report)) = late else { return };
        let present = state.slots[slot].pod.as_ref().map(|pod| pod.generation);
        let takes_names = self.setting.broken == Some(RuleMutation::ReportOfReplacedPodCounts);
        let of_pod = present.filter(|_| takes_names).unwrap_or(generation);
        Self::hear_report(state, slot, (generation, report), of_pod);
    }

    fn hear_hello(&self, state: &mut ModelState, slot: usize) {
        let Some(generation) = state.slots[slot].pod.as_ref().map(|pod| pod.generation) else { return };
        let mut known = None;
        state.change_link(slot, |link| {
            link.hello = Hello::Waits;
            known = link.known;
        });
        let Some(mut report) = known else { return };
        if self.setting.broken == Some(RuleMutation::ReportsOfHellosAreNew) {
            report.epoch = report.epoch.max(state.jobset.status.synced + 1);
        }
        Self::hear_report(state, slot, (generation, report), generation);
    }

    /// What the answer to a hello says: what the API server holds.
    fn read_for_hello(&self, state: &mut ModelState, slot: usize) {
        let history = &state.jobset.history;
        let epochs = match self.setting.broken {
            Some(RuleMutation::AnswersFromACache) => {
                let observed = state.controller.observed.0;
                (observed.synced, observed.deprecated)
            }
            Some(RuleMutation::AnswersReadBeforeTheHello) => history[0],
            _ => history[history.len() - 1],
        };
        state.change_link(slot, |link| link.hello = Hello::Read(epochs));
    }

    /// A leader that is not late answers the hello of a connection at once.
    pub(super) fn answer_promptly(&self, state: &mut ModelState, slot: usize) {
        if self.setting.stream == Stream::Prompt {
            self.hear_hello(state, slot);
            self.read_for_hello(state, slot);
            self.answer_hello(state, slot);
        }
    }

    /// What the leader has said meanwhile follows the answer, because a newborn agent ignores what comes before it.
    fn answer_hello(&self, state: &mut ModelState, slot: usize) {
        let told = state.controller.told;
        let repeats = self.setting.broken != Some(RuleMutation::AnswersOvertaken);
        let is_hostile = state.left.hostile;
        state.change_link(slot, |link| {
            let Hello::Read(epochs) = link.hello else { return };
            if is_hostile {
                link.statements.clear();
            }
            link.tell(epochs, Addressee::Agent);
            if repeats && (told.0 > epochs.0 || told.1 > epochs.1) {
                link.tell(told, Addressee::Group);
            }
            link.hello = Hello::Answered;
        });
    }

    fn tell_agent(&self, state: &mut ModelState, slot: usize) {
        let mut next = None;
        state.change_link(slot, |link| next = Some(link.statements.remove(0)));
        if let Some(statement) = next {
            self.pass_on(state, slot, statement);
        }
    }

    /// A statement reaches the agent.
    pub(super) fn pass_on(&self, state: &mut ModelState, slot: usize, statement: ModelStatement) {
        let heard = state.slots[slot].process().and_then(|process| self.heard(process, statement));
        let Some(heard) = heard else { return };
        let is_answer = matches!(heard, ChannelInput::Statement { is_answer: true, .. });
        state.change_link(slot, |link| link.answered |= is_answer);
        self.change_machine(state, slot, |machine, newest| {
            machine.happen(heard, newest);
            // While the stream is live, it does not matter when this time is over.
            if is_answer && machine.agent.as_ref().is_some_and(|agent| agent.stream_deadline.is_some()) {
                machine.end_wait(newest);
            }
        });
    }

    /// A report over the stream reaches the leader, which takes it for one of the Pod of this generation.
    pub(super) fn hear_report(
        state: &mut ModelState,
        slot: usize,
        (generation, report): (u8, ModelReport),
        taken_for: u8,
    ) {
        let ModelReport { epoch, progress } = report;
        state.check_report(epoch);
        let (epochs, next) = (state.known(), state.jobset.status.synced + 1);
        state.slots[slot].change(|slot| {
            // Nobody has to know the report of a Pod that is gone.
            let is_there = slot.pod.as_ref().is_some_and(|pod| pod.generation == generation);
            slot.has_reported |= epoch == next && (is_there || slot.kept.pod(&name(generation)).is_some());
            let uid = name(taken_for);
            let known = slot.kept.pod(&uid);
            let report = StreamReport {
                pod: uid.clone(),
                pod_uid: uid.clone(),
                epoch,
                exit: None,
                started: None,
                progress: progress.map(ProgressWord::text),
            };
            if slot.reports.note(report, known) {
                slot.raise(&uid, epochs);
            }
        });
    }

    /// The leader tells the agents that it knows of newer epochs.
    pub(super) fn broadcast(&self, state: &mut ModelState, epochs: ObservedEpochs) {
        let (synced, deprecated) = state.controller.told;
        // A hostile relay says what is stored when it likes.
        if self.setting.stream == Stream::Absent
            || state.left.hostile
            || epochs.synced <= synced && epochs.deprecated <= deprecated
        {
            return;
        }
        let told = (epochs.synced.max(synced), epochs.deprecated.max(deprecated));
        state.controller.told = told;
        for slot in 0..state.slots.len() {
            state.change_link(slot, |link| {
                if link.is_known() {
                    link.tell(told, Addressee::Group);
                }
            });
        }
    }

    /// A leader is gone. What it has said may be in the relays, or lost.
    pub(super) fn hang_up(state: &mut ModelState, statements_arrive: bool) {
        for slot in 0..state.slots.len() {
            state.change_link(slot, |link| {
                link.hello = Hello::OnItsWay;
                if !statements_arrive {
                    link.statements.clear();
                }
            });
        }
    }

    /// Another leader hears of the connections.
    pub(super) fn redial(&self, state: &mut ModelState) {
        for slot in 0..state.slots.len() {
            if state.connection(slot).is_some() {
                self.answer_promptly(state, slot);
            }
        }
    }

    /// Notes that the process of a connection has ended, if it has.
    pub(super) fn note_end(state: &mut ModelState, slot: usize, connected: Option<(u8, Link)>) {
        if let Some((generation, link)) = connected
            && state.slots[slot].process().is_none()
        {
            Self::note_lost(state, slot, generation, &link);
        }
    }

    /// A connection has ended. The report that was on its way is lost, or arrives late.
    fn note_lost(state: &mut ModelState, slot: usize, generation: u8, link: &Link) {
        let late = link.report.filter(|_| state.left.late_reports > 0);
        state.left.late_reports -= u8::from(late.is_some());
        state.slots[slot].change(|slot| {
            slot.reports.agent_gone(&name(generation));
            slot.late_reports.extend(late.map(|report| (generation, report)));
        });
    }
}

impl ModelState {
    /// The Pod and the connection of the agent that runs there, if there is one.
    pub(super) fn connection(&self, slot: usize) -> Option<(u8, Link)> {
        let slot = &self.slots[slot];
        let link = &slot.process().filter(|process| process.link.up)?.link;
        Some((slot.pod.as_ref()?.generation, link.clone()))
    }

    /// Whether statements are on their way to agents.
    pub(super) fn has_statements(&self) -> bool {
        self.slots.iter().any(|slot| slot.process().is_some_and(|process| !process.link.statements.is_empty()))
    }

    /// Forgets what only another leader would ask for.
    pub(super) fn forget_known(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].process().is_some_and(|process| process.link.is_known() && process.link.known.is_some())
            {
                self.change_link(slot, |link| link.known = None);
            }
        }
    }

    pub(super) fn change_link(&mut self, slot: usize, change: impl FnOnce(&mut Link)) {
        if self.slots[slot].process().is_none_or(|process| !process.link.up) {
            return;
        }
        self.slots[slot].change(|slot| {
            if let Some(process) = slot.machine.as_mut().and_then(|machine| machine.agent.as_mut()) {
                change(&mut process.link);
            }
        });
    }
}

impl ModelSlot {
    pub(super) fn process(&self) -> Option<&ModelAgent> {
        self.machine.as_ref()?.agent.as_ref()
    }

    /// What the controller knows of a Pod, raised to what the Pod has reported over the stream.
    pub(super) fn raise(&mut self, uid: &str, epochs: ObservedEpochs) {
        let Some(mut view) = self.kept.pod(uid).cloned() else { return };
        self.reports.overlay(&mut view, epochs);
        self.kept = Shared::new(self.kept.apply(view, epochs));
    }
}
