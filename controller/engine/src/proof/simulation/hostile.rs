//! Hostile relays: what they can do to messages that they cannot forge, for ever; and what that may cost.

use std::collections::VecDeque;

use fastrand::Rng;
use jobset_agent::channels::ChannelInput;
use jobset_stream::message::{GroupState, Report, Statement};

use super::cluster::SimulatedCluster;
use super::relays::StreamNetwork;
use super::scenario::UID;
use crate::proof::{CheckResult, Property, RuleMutation, ensure};
use crate::{Now, RelayMessage};

/// One in so many lives has hostile relays.
const HOSTILE: u8 = 3;
/// Most statements and reports that a relay keeps to repeat them.
const MOST_KEPT: usize = 64;
/// Longest time in milliseconds for which an agent may not know what is stored: twice the silence that it accepts, the watch that
/// follows, and what the steps of the simulation add.
const TOLD: i64 = 60_000;

/// What a relay does to one of its agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// Nothing.
    Honest,
    /// It passes on the answer to the hello, and from then on what is not about the JobSet. The leader hears that the agent has gone.
    Withholds,
    /// The leader never hears of the agent.
    Silent,
    /// It drops, keeps, reorders and repeats whatever passes, as chance has it.
    Erratic,
}

/// The hostile relays.
#[derive(Debug)]
pub(super) struct Hostility {
    rng: Rng,
    relays: Vec<usize>,
    /// Statements that passed, or should have.
    kept: Vec<Statement>,
    reports: Vec<(u64, Report)>,
    broken: Option<RuleMutation>,
}

impl Hostility {
    pub(super) fn new(seed: u64) -> Self {
        let rng = Rng::with_seed(seed.rotate_left(16));
        Self { rng, relays: Vec::new(), kept: Vec::new(), reports: Vec::new(), broken: None }
    }

    /// Which relays are hostile: none, one or both.
    pub(super) fn draw(&mut self, broken: Option<RuleMutation>) {
        self.broken = broken;
        if self.rng.u8(..HOSTILE) == 0 {
            self.relays = if self.rng.bool() { vec![0] } else { vec![0, 1] };
        }
    }

    pub(super) fn relays(&self) -> &[usize] {
        &self.relays
    }

    pub(super) fn is_on(&self) -> bool {
        !self.relays.is_empty()
    }

    /// What this relay does to an agent that connects.
    pub(super) fn mood(&mut self, relay: usize) -> Mood {
        if !self.relays.contains(&relay) {
            return Mood::Honest;
        }
        [Mood::Honest, Mood::Withholds, Mood::Withholds, Mood::Silent, Mood::Erratic, Mood::Erratic]
            [self.rng.usize(..6)]
    }

    /// Adds to what is on its way to an agent, as the relay has it.
    pub(super) fn pass(&mut self, mood: Mood, statement: Statement, to: &mut VecDeque<Statement>) {
        if self.is_on() && self.kept.len() < MOST_KEPT {
            self.kept.push(statement.clone());
        }
        match mood {
            Mood::Honest => to.push_back(statement),
            Mood::Withholds if statement.nonce.is_some() || statement.group.is_none() => to.push_back(statement),
            Mood::Withholds | Mood::Silent => {}
            Mood::Erratic => match self.rng.u8(..6) {
                0 | 1 => {}
                2 => to.insert(self.rng.usize(..=to.len()), statement),
                3 => {
                    let old = self.kept[self.rng.usize(..self.kept.len())].clone();
                    to.extend([old, statement.clone(), statement]);
                }
                _ => to.push_back(statement),
            },
        }
    }

    /// What a relay may show an agent beside: an old statement, or one that the leader has made just now for another JobSet.
    fn inject(&mut self, mood: Mood, now: Now) -> Option<Statement> {
        if mood == Mood::Honest || self.rng.u8(..3) != 0 {
            return None;
        }
        if self.rng.bool() && !self.kept.is_empty() {
            return Some(self.kept[self.rng.usize(..self.kept.len())].clone());
        }
        let (uid, epoch) = ("uid-of-another".to_owned(), 1_000);
        let state =
            GroupState { uid, synced: epoch, deprecated: epoch, failed: false, bypass: false, pods: 2, pause: None };
        Some(Statement::broadcast(now.time.as_millisecond(), state))
    }

    /// Whether the relay swallows a report.
    pub(super) fn swallows(&mut self, mood: Mood) -> bool {
        match mood {
            Mood::Honest => false,
            Mood::Withholds | Mood::Silent => true,
            Mood::Erratic => self.rng.bool(),
        }
    }

    /// The report that the relay passes on: the present one, or an old one of this agent.
    pub(super) fn repeat_report(&mut self, mood: Mood, agent: u64, report: Report) -> Report {
        if mood == Mood::Honest {
            return report;
        }
        if self.reports.len() < MOST_KEPT {
            self.reports.push((agent, report.clone()));
        }
        let old: Vec<&Report> = self.reports.iter().filter(|(of, _)| *of == agent).map(|(_, report)| report).collect();
        match old.len() {
            0 => report,
            count => old[self.rng.usize(..count)].clone(),
        }
    }

    /// What the leader says: broken, it speaks as one of the release before, which repeated nothing.
    pub(super) fn edit(&self, message: RelayMessage) -> RelayMessage {
        let before = |time| RelayMessage::Beat(Statement { repeats: false, ..Statement::beat(time) });
        match message {
            RelayMessage::Group { is_repeated: true, .. } | RelayMessage::Beat(_)
                if self.broken == Some(RuleMutation::StatesNotRepeated) =>
            {
                before(message.time())
            }
            _ => message,
        }
    }
}

impl StreamNetwork {
    /// The next statement that an agent hears on this connection, and whether the relay has been silent about its JobSet for too long.
    pub(super) fn hear(&mut self, number: u64, now: Now) -> (Option<ChannelInput>, bool) {
        let Some(mood) = self.link(Some(number)).map(|link| link.mood) else { return (None, false) };
        let takes_others = self.hostility.broken == Some(RuleMutation::LifeOfOthersCounts);
        let injected = self.hostility.inject(mood, now);
        let Some(link) = self.link(Some(number)) else { return (None, false) };
        link.statements.extend(injected);
        while let Some(mut statement) = link.statements.pop_front() {
            // Broken: it counts as a sign of life of a leader that repeats nothing.
            if takes_others && statement.group.as_ref().is_some_and(|group| group.uid != UID) {
                statement = Statement { nonce: None, group: None, ..statement };
            }
            statement.repeats &= !takes_others;
            if let Some(heard) = link.liveness.hear(statement, now.instant) {
                return (Some(heard), false);
            }
        }
        (None, link.liveness.deadline() <= now.instant)
    }
}

impl SimulatedCluster {
    /// Each agent soon knows what is stored, while everybody does what there is to do.
    pub(super) fn check_told(&mut self, begins: bool) -> CheckResult {
        if !self.network.is_on {
            return Ok(());
        }
        let (status, clock) = (self.api.status(), self.clock);
        let is_told = |(synced, deprecated)| synced >= status.synced_epoch && deprecated >= status.deprecated_epoch;
        for machine in self.machines.values_mut().filter(|machine| !machine.lost) {
            let Some(agent) = &mut machine.agent else { continue };
            if begins || is_told(agent.agent.told()) {
                agent.behind_since = None;
                continue;
            }
            let since = *agent.behind_since.get_or_insert(clock);
            ensure(clock - since <= TOLD, Property::ToldInTime, || {
                let (synced, deprecated) = (status.synced_epoch, status.deprecated_epoch);
                format!("the agent of {} does not know S {synced} D {deprecated} since {since}", machine.pod)
            })?;
        }
        Ok(())
    }
}
