//! What the stream does to the cluster: reports that the leader hears, and statements that agents hear.

use std::time::Duration;

use jobset_agent::channels::ChannelInput;
use jobset_store::pods::StreamReport;

use super::cluster::SimulatedCluster;
use super::scenario::key;
use crate::proof::{CheckResult, RuleMutation, Violation, check_report};
use crate::{DeskOutput, GroupSnapshot};

/// One in so many lives that restart in place has agents that know a relay.
const STREAMS: u8 = 2;
/// Most things that happen on the stream in one step, besides those of agents.
const STEPS: usize = 4;
/// Fewer versions of the JobSet than this are missing in a cache.
const CACHE_LAG: usize = 4;
/// Longest time for which a leader does not read what a relay tells it, in milliseconds.
const STALL: i64 = 20_000;

impl SimulatedCluster {
    /// Whether the agents of this life know a relay.
    pub(super) fn draw_stream(&mut self) {
        self.network.is_on = self.scenario.in_place() && self.network.rng.u8(..STREAMS) == 0;
        if self.network.is_on {
            self.network.hostility.draw(self.broken);
            let hostile = self.network.hostility.relays();
            self.trace(|| format!("its agents know a relay; hostile ones: {hostile:?}"));
        }
    }

    /// Things that happen on the stream, and what goes wrong there.
    pub(super) fn step_stream(&mut self) -> CheckResult {
        if !self.network.is_on {
            return Ok(());
        }
        self.network.repeat_events();
        for _ in 0..self.network.rng.usize(..=STEPS) {
            self.move_stream()?;
        }
        match self.network.rng.u8(..60) {
            0 => self.break_some_connection()?,
            1 => {
                let ended = self.network.restart_relay();
                self.trace(|| "stream: a relay restarts".to_owned());
                ended.into_iter().try_for_each(|number| self.break_connection(number))?;
            }
            2 => {
                let outputs = self.network.partition();
                self.trace(|| "stream: a relay loses the leader".to_owned());
                self.heed(outputs)?;
            }
            3 if self.network.rng.bool() => self.wake_leader(),
            4 if self.network.rng.bool() => self.cut_stream(!self.network.is_cut)?,
            5..=6 => {
                let until = self.clock + self.network.rng.i64(..STALL);
                self.network.stall(until);
                self.trace(|| format!("stream: the leader does not read what a relay says, until {until}"));
            }
            _ => {}
        }
        Ok(())
    }

    fn wake_leader(&mut self) {
        let now = self.controller_now(Duration::ZERO);
        if self.network.wake(now) {
            self.trace(|| "stream: a leader that was stopped wakes".to_owned());
        }
    }

    /// Nobody reaches a relay any more, or everybody does again.
    pub(super) fn cut_stream(&mut self, is_cut: bool) -> CheckResult {
        self.network.is_cut = is_cut;
        self.trace(|| format!("stream: {}", if is_cut { "nobody reaches a relay" } else { "relays can be reached" }));
        let links: Vec<u64> = self.network.pods().map(|(number, ..)| number).filter(|_| is_cut).collect();
        links.into_iter().try_for_each(|number| self.break_connection(number))
    }

    /// Everything that happens on the stream by itself.
    pub(super) fn settle_stream(&mut self) -> CheckResult {
        self.network.end_stalls();
        self.network.repeat_events();
        while self.network.is_on && self.move_stream()? {}
        Ok(())
    }

    fn move_stream(&mut self) -> Result<bool, Violation> {
        self.end_connections();
        let (now, first) = (self.controller_now(Duration::ZERO), self.network.rng.usize(..6));
        let behind = self.network.rng.usize(..CACHE_LAG);
        let (api, broken) = (&self.api, self.broken);
        let read = || {
            let mut shown = GroupSnapshot::of(&api.jobset);
            match (broken, &api.earlier) {
                (Some(RuleMutation::AnswersReadBeforeTheHello), Some(earlier)) => shown = GroupSnapshot::of(earlier),
                (Some(RuleMutation::AnswersFromACache), _) => {
                    let cached = &api.states[api.states.len().saturating_sub(1 + behind)];
                    (shown.state.synced, shown.state.deprecated) = (cached.synced, cached.deprecated);
                }
                _ => {}
            }
            shown
        };
        let outputs = self.network.step(first, (now, self.clock), read);
        let Some(outputs) = outputs else {
            let due = self.network.desk.next(now.instant);
            let is_due = !due.is_empty();
            self.heed(due)?;
            return Ok(is_due);
        };
        // Agents of a hostile relay connect again and again.
        self.worked |= !self.network.hostility.is_on();
        self.heed(outputs)?;
        Ok(true)
    }

    /// What follows from what the desk says.
    pub(super) fn heed(&mut self, outputs: Vec<DeskOutput>) -> CheckResult {
        let now = self.controller_now(Duration::ZERO).instant;
        for output in outputs {
            match output {
                DeskOutput::Report { key, report } => {
                    self.note_report(&report)?;
                    let report = self.edit_report(report);
                    self.controller.engine.apply_report(&key, report, now);
                    self.check_counts()?;
                }
                DeskOutput::AgentGone { key, pod_uid } => self.controller.engine.store.agent_gone(&key, &pod_uid),
                output => self.network.carry_out(output),
            }
        }
        Ok(())
    }

    fn edit_report(&self, mut report: StreamReport) -> StreamReport {
        if self.broken == Some(RuleMutation::ReportsOfHellosAreNew) && report.epoch == self.api.synced() {
            report.epoch += 1;
        }
        report
    }

    fn note_report(&mut self, report: &StreamReport) -> CheckResult {
        let StreamReport { pod, pod_uid, epoch, .. } = report;
        self.trace(|| format!("stream: the leader hears that {pod} reports {epoch}"));
        check_report(pod, *epoch, self.api.synced())?;
        if let Some(slot) = self.network.slots.get(pod_uid).cloned() {
            self.truth.reported(slot, *epoch);
        }
        Ok(())
    }

    /// The desk knows that this is stored.
    pub(super) fn tell_desk(&mut self, snapshot: GroupSnapshot) -> CheckResult {
        if !self.network.is_on {
            return Ok(());
        }
        let now = self.controller_now(Duration::ZERO).instant;
        let outputs = self.network.desk.stored(key(), snapshot, now);
        self.heed(outputs)
    }

    /// The leader that had this view of the JobSet is gone.
    pub(super) fn lose_desk(&mut self) {
        if self.network.is_on {
            let stored = self
                .controller
                .engine
                .store
                .jobset(key())
                .map_or_else(|| GroupSnapshot::of(&self.api.jobset), |jobset| GroupSnapshot::of(jobset));
            self.network.change_leader(stored);
        }
    }

    /// Connections whose agents have ended.
    fn end_connections(&mut self) {
        let machines = &self.machines;
        let runs = |uid: &str, container: u32, number: u64| {
            let process = machines.get(uid).filter(|machine| !machine.lost).and_then(|machine| machine.agent.as_ref());
            process.is_some_and(|process| process.container == container && process.link == Some(number))
        };
        let ended: Vec<u64> = self
            .network
            .pods()
            .filter(|(number, uid, container)| !runs(uid, *container, *number))
            .map(|(number, ..)| number)
            .collect();
        for number in ended {
            self.network.disconnect(number);
        }
    }

    fn break_some_connection(&mut self) -> CheckResult {
        let links: Vec<u64> = self.network.pods().map(|(number, ..)| number).collect();
        if links.is_empty() {
            return Ok(());
        }
        let number = links[self.network.rng.usize(..links.len())];
        self.break_connection(number)
    }

    fn break_connection(&mut self, number: u64) -> CheckResult {
        self.network.disconnect(number);
        let of = |machine: &super::machine::SimulatedMachine| {
            machine.agent.as_ref().is_some_and(|process| process.link == Some(number))
        };
        let Some((uid, machine)) = self.machines.iter_mut().find(|(_, machine)| of(machine)) else { return Ok(()) };
        let (uid, pod) = (uid.clone(), machine.pod.clone());
        if let Some(process) = &mut machine.agent {
            process.link = None;
        }
        self.trace(|| format!("stream: the connection of {pod} breaks"));
        self.happens_to_agent(&uid, ChannelInput::Disconnected)
    }

    /// One thing that the stream does to the agent of this Pod, if there is one to do.
    pub(super) fn step_stream_of_agent(&mut self, uid: &str, fair: bool) -> Result<bool, Violation> {
        if !self.network.is_on || !fair && self.network.rng.u8(..3) == 0 {
            return Ok(false);
        }
        let (clock, now) = (self.clock, self.controller_now(Duration::ZERO));
        let Some(machine) = self.machines.get_mut(uid).filter(|machine| !machine.lost) else { return Ok(false) };
        let (pod, slot) = (machine.pod.clone(), machine.slot());
        let Some(process) = &mut machine.agent else { return Ok(false) };
        let is_over = |timer: &mut i64| *timer <= clock;
        let timer = if process.stream_deadline.take_if(is_over).is_some() {
            Some(ChannelInput::StreamTimeout)
        } else {
            process.write_due.take_if(is_over).map(|_| ChannelInput::WriteDue)
        };
        if let Some(timer) = timer {
            self.happens_to_agent(uid, timer)?;
            return Ok(true);
        }
        if process.link.is_none() && !self.network.is_cut && self.network.rng.u8(..4) != 0 {
            let known = process.entered.map(|epoch| process.report(epoch));
            process.link = Some(self.network.connect(&pod, uid, process.container, known, now));
            self.network.slots.insert(uid.to_owned(), slot);
            let is_newborn = process.entered.is_none();
            self.worked |= !self.network.hostility.is_on();
            self.trace(|| format!("stream: {pod} connects"));
            // The worst moment: the agent must not take what that leader says for its answer.
            if is_newborn && !fair && self.network.rng.bool() {
                self.wake_leader();
            }
            return Ok(true);
        }
        let mut link = process.link;
        while let Some(number) = link {
            let (heard, is_silent) = self.network.hear(number, now);
            if let Some(ChannelInput::Statement { is_answer, state }) = heard {
                let takes_all = self.broken == Some(RuleMutation::BroadcastsTakenForAnswers);
                self.trace(|| {
                    let what = if is_answer { "an answer" } else { "a broadcast" };
                    format!("stream: {pod} hears {what}: S {} D {}", state.synced, state.deprecated)
                });
                let is_answer = is_answer || takes_all;
                self.happens_to_agent(uid, ChannelInput::Statement { is_answer, state })?;
                // What is repeated keeps nobody from anything else.
                if !fair {
                    return Ok(true);
                }
                let agent = self.machines.get(uid).and_then(|machine| machine.agent.as_ref());
                link = agent.and_then(|agent| agent.link);
                continue;
            }
            if is_silent {
                self.trace(|| format!("stream: {pod} has heard nothing of its JobSet for too long"));
                self.break_connection(number)?;
                return Ok(true);
            }
            break;
        }
        Ok(false)
    }

    /// Whether an annotation is still due.
    pub(super) fn owes_annotations(&self) -> bool {
        self.machines
            .values()
            .any(|it| !it.lost && it.agent.as_ref().is_some_and(|process| process.write_due.is_some()))
    }
}
