//! Hostile relays: what they can do to messages that they cannot forge, for ever; and what that may cost.

use std::collections::VecDeque;

use fastrand::Rng;
use jobset_agent::channels::ChannelInput;
use jobset_stream::message::{AgentEvent, GroupState, Nonce, Report, Statement};

use super::cluster::{BEGINNING, SimulatedCluster};
use super::relays::StreamNetwork;
use super::scenario::UID;
use crate::proof::{CheckResult, Property, RuleMutation, ensure};
use crate::{Now, RelayMessage};

/// One in so many lives has hostile relays.
const HOSTILE: u8 = 3;
/// Most statements, reports and events that relays keep to repeat them.
const MOST_KEPT: usize = 64;
/// Longest time in milliseconds for which an agent may not know what is stored: twice the silence that it accepts, the watch that
/// follows, and what the steps of the simulation add.
const TOLD: i64 = 40_000;

/// What a relay does to one of its agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// Nothing.
    Honest,
    /// It passes on the answer to the hello, and from then on what is not about the JobSet. The leader hears that the agent has gone.
    Withholds,
    /// The leader never hears of the agent.
    Silent,
    /// It withholds, and repeats what the leader has said before.
    Repeats,
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
    /// What leaders were told.
    events: Vec<AgentEvent>,
    broken: Option<RuleMutation>,
}

impl Hostility {
    pub(super) fn new(seed: u64) -> Self {
        let rng = Rng::with_seed(seed.rotate_left(16));
        Self { rng, relays: Vec::new(), kept: Vec::new(), reports: Vec::new(), events: Vec::new(), broken: None }
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
        [Mood::Honest, Mood::Withholds, Mood::Repeats, Mood::Silent, Mood::Erratic, Mood::Erratic][self.rng.usize(..6)]
    }

    /// Adds to what is on its way to an agent, as the relay has it.
    pub(super) fn pass(&mut self, mood: Mood, statement: Statement, to: &mut VecDeque<Statement>) {
        if self.is_on() {
            keep(&mut self.rng, &mut self.kept, statement.clone());
        }
        match mood {
            Mood::Honest => to.push_back(statement),
            Mood::Repeats if statement.nonce.is_some() => {
                to.extend(self.repeat(true));
                to.push_back(statement);
            }
            Mood::Withholds | Mood::Repeats if statement.nonce.is_some() || statement.group.is_none() => {
                to.push_back(statement);
            }
            Mood::Withholds | Mood::Repeats | Mood::Silent => {}
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

    /// What a relay may show an agent beside: an old statement, also of a time when the JobSet did not restart in place, or one that the
    /// leader has made just now for another JobSet.
    fn inject(&mut self, mood: Mood, now: Now) -> Option<Statement> {
        let turns = if mood == Mood::Repeats { 2 } else { 3 };
        if mood == Mood::Honest || self.rng.u8(..turns) != 0 {
            return None;
        }
        let state = |uid: &str, epoch, bypass| {
            let uid = uid.to_owned();
            GroupState { uid, synced: epoch, deprecated: epoch, failed: false, bypass, pods: 2, pause: None }
        };
        match self.rng.u8(..8) {
            0 => Some(Statement::broadcast(BEGINNING * 1_000 - 1, state(UID, 0, true))),
            1..=3 if mood != Mood::Repeats => {
                Some(Statement::broadcast(now.time.as_millisecond(), state("uid-of-another", 1_000, false)))
            }
            number => self.repeat(number == 4),
        }
    }

    /// What a leader has said before, to an agent alone if `is_answer`.
    fn repeat(&mut self, is_answer: bool) -> Option<Statement> {
        let kept: Vec<_> = self.kept.iter().filter(|it| !is_answer || it.nonce.is_some()).collect();
        (!kept.is_empty()).then(|| kept[self.rng.usize(..kept.len())].clone())
    }

    /// Whether the relay swallows a report.
    pub(super) fn swallows(&mut self, mood: Mood) -> bool {
        match mood {
            Mood::Honest => false,
            Mood::Withholds | Mood::Repeats | Mood::Silent => true,
            Mood::Erratic => self.rng.bool(),
        }
    }

    /// The report that the relay passes on: the present one, or an old one of this agent.
    pub(super) fn repeat_report(&mut self, mood: Mood, agent: u64, report: Report) -> Report {
        if mood == Mood::Honest {
            return report;
        }
        keep(&mut self.rng, &mut self.reports, (agent, report.clone()));
        let old: Vec<&Report> = self.reports.iter().filter(|(of, _)| *of == agent).map(|(_, report)| report).collect();
        match old.len() {
            0 => report,
            count => old[self.rng.usize(..count)].clone(),
        }
    }

    /// The relay keeps what it tells the leader.
    pub(super) fn note_event(&mut self, relay: usize, event: &AgentEvent) {
        if self.relays.contains(&relay) {
            keep(&mut self.rng, &mut self.events, event.clone());
        }
    }

    /// What the relay tells the leader once more, if it does: the hello of an agent that has gone, the end of a connection that lives, or
    /// an old report, of its own agents or of those of another hostile relay.
    pub(super) fn repeat_event(&mut self, relay: usize) -> Option<AgentEvent> {
        let repeats = self.relays.contains(&relay) && !self.events.is_empty() && self.rng.u8(..4) == 0;
        repeats.then(|| self.events[self.rng.usize(..self.events.len())].clone())
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

/// Keeps what passes. Where there is too much, it takes the place of any other: old and new ones stay.
fn keep<T>(rng: &mut Rng, kept: &mut Vec<T>, passed: T) {
    if kept.len() < MOST_KEPT {
        kept.push(passed);
    } else {
        kept[rng.usize(..MOST_KEPT)] = passed;
    }
}

/// What an agent that is broken takes a statement for.
fn mistake(broken: Option<RuleMutation>, mut statement: Statement, nonce: &Nonce, now: Now) -> Statement {
    let is_own = statement.group.as_ref().is_none_or(|group| group.uid == UID);
    statement.repeats &= broken != Some(RuleMutation::LifeOfOthersCounts);
    match broken {
        // For a sign of life of a leader that repeats nothing.
        Some(RuleMutation::LifeOfOthersCounts) if !is_own => Statement { nonce: None, group: None, ..statement },
        Some(RuleMutation::AnswersToOthersTaken) if statement.nonce.is_some() => {
            Statement { nonce: Some(nonce.clone()), ..statement }
        }
        Some(RuleMutation::OldStatementsTaken) => Statement { time: now.time.as_millisecond(), ..statement },
        _ => statement,
    }
}

impl StreamNetwork {
    /// The next statement that an agent hears on this connection, and whether the relay has been silent about its JobSet for too long.
    pub(super) fn hear(&mut self, number: u64, now: Now) -> (Option<ChannelInput>, bool) {
        let Some(mood) = self.link(Some(number)).map(|link| link.mood) else { return (None, false) };
        let (broken, injected) = (self.hostility.broken, self.hostility.inject(mood, now));
        let Some(link) = self.link(Some(number)) else { return (None, false) };
        link.statements.extend(injected);
        while let Some(statement) = link.statements.pop_front() {
            let statement = mistake(broken, statement, &link.nonce, now);
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
