//! The relays of the agent stream, and the real desk of the leading controller.
//!
//! Connections of agents and of leaders break, relays restart, and a leader that was stopped wakes and says what it had to say.
//! What is on its way then arrives late, or never.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;
use jobset_agent::liveness::Liveness;
use jobset_store::Key;
use jobset_stream::SILENCE;
use jobset_stream::message::{AgentEvent, AgentEventKind, Nonce, PodRef, Report, Statement};
use serde_json::json;

use super::hostile::{Hostility, Mood};
use super::scenario::{JOBSET, NAMESPACE, UID, key};
use super::truth::SlotId;
use crate::{Desk, DeskOutput, GroupSnapshot, Now, ReadOutcome, RelayId, RelayMessage};

/// Number of relays.
const RELAYS: usize = 2;

#[derive(Debug)]
pub(super) struct StreamNetwork {
    /// The stream has chances of its own, so that lives without it stay what they are.
    pub rng: Rng,
    pub is_on: bool,
    /// Whether nobody reaches a relay.
    pub is_cut: bool,
    pub hostility: Hostility,
    relays: [SimulatedRelay; RELAYS],
    links: BTreeMap<u64, SimulatedLink>,
    numbers: u64,
    pub desk: Desk,
    /// Reads of the JobSet that the desk has asked for, and what they have shown, if they were served.
    reads: Vec<(Key, Option<GroupSnapshot>)>,
    asleep: Option<StoppedLeader>,
    /// The slot of each Pod whose agent has connected.
    pub slots: BTreeMap<String, SlotId>,
}

#[derive(Debug, Default)]
struct SimulatedRelay {
    /// The number of the leader's connection.
    leader: Option<RelayId>,
    /// That of a leader that was stopped.
    former: Option<RelayId>,
    /// What agents have done, and the leader has not heard.
    feed: VecDeque<AgentEvent>,
    /// What leaders have said, and the relay has not passed on.
    inbox: VecDeque<RelayMessage>,
    /// Until when the leader does not read, in milliseconds.
    stalled_until: i64,
}

/// A connection of an agent.
#[derive(Debug)]
pub(super) struct SimulatedLink {
    relay: usize,
    /// What its relay does to it.
    pub mood: Mood,
    pub liveness: Liveness,
    pub nonce: Nonce,
    pod: PodRef,
    /// The container of the agent.
    pub container: u32,
    /// The newest report that the relay knows.
    known: Option<Report>,
    /// Reports that are on their way to the relay.
    reports: VecDeque<Report>,
    /// Statements that are on their way to the agent.
    pub statements: VecDeque<Statement>,
}

/// A leader that was stopped.
#[derive(Debug)]
struct StoppedLeader {
    desk: Desk,
    reads: Vec<(Key, Option<GroupSnapshot>)>,
    /// What it has last known to be stored.
    stored: GroupSnapshot,
}

impl StreamNetwork {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(!seed),
            is_on: false,
            is_cut: false,
            hostility: Hostility::new(seed),
            relays: std::array::from_fn(|_| SimulatedRelay::default()),
            links: BTreeMap::new(),
            numbers: 0,
            desk: Desk::default(),
            reads: Vec::new(),
            asleep: None,
            slots: BTreeMap::new(),
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn link(&mut self, number: Option<u64>) -> Option<&mut SimulatedLink> {
        self.links.get_mut(&number?)
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = (u64, &str, u32)> {
        self.links.iter().map(|(number, link)| (*number, link.pod.uid.as_str(), link.container))
    }

    /// An agent connects to a relay and says hello.
    pub(super) fn connect(&mut self, pod: &str, uid: &str, container: u32, known: Option<Report>, now: Now) -> u64 {
        let (number, relay) = (self.number(), self.rng.usize(..RELAYS));
        let nonce: Nonce = serde_json::from_value(json!(number.to_string())).unwrap();
        let mood = self.hostility.mood(relay);
        let liveness = Liveness::new(UID.to_owned(), nonce.clone(), now.instant, SILENCE);
        let pod = PodRef { namespace: NAMESPACE.to_owned(), name: pod.to_owned(), uid: uid.to_owned() };
        let (reports, statements) = (VecDeque::new(), VecDeque::new());
        let link = SimulatedLink { relay, mood, liveness, nonce, pod, container, known, reports, statements };
        let hello = link.hello(number);
        if mood != Mood::Silent {
            self.tell_leader(relay, hello);
        }
        self.links.insert(number, link);
        number
    }

    /// The relay tells the leader of its agents, if it has one.
    fn tell_leader(&mut self, relay: usize, event: AgentEvent) {
        self.hostility.note_event(relay, &event);
        let relay = &mut self.relays[relay];
        if relay.leader.is_some() {
            relay.feed.push_back(event);
        }
    }

    /// Hostile relays tell the leader of what is over.
    pub(super) fn repeat_events(&mut self) {
        for (number, relay) in self.relays.iter_mut().enumerate().filter(|(_, relay)| relay.leader.is_some()) {
            relay.feed.extend(self.hostility.repeat_event(number));
        }
    }

    pub(super) fn send(&mut self, number: Option<u64>, report: Report) {
        if let Some(link) = self.link(number) {
            link.reports.push_back(report);
        }
    }

    /// A connection ends. What the agent has sent arrives, or not.
    pub(super) fn disconnect(&mut self, number: u64) {
        let arrives = self.rng.bool();
        while arrives && self.pass_report(number) {}
        let Some(link) = self.links.remove(&number) else { return };
        self.tell_leader(link.relay, AgentEvent { agent: number, event: AgentEventKind::Gone });
    }

    /// The next report of an agent reaches its relay.
    fn pass_report(&mut self, number: u64) -> bool {
        let Some(link) = self.links.get_mut(&number) else { return false };
        let Some(report) = link.reports.pop_front() else { return false };
        if self.hostility.swallows(link.mood) {
            return true;
        }
        // It may also be an old one once more.
        let report = self.hostility.repeat_report(link.mood, number, report);
        link.known = Some(report.clone());
        let relay = link.relay;
        self.tell_leader(relay, AgentEvent { agent: number, event: AgentEventKind::Report(report) });
        true
    }

    /// Connections of agents that end because their relay restarts.
    pub(super) fn restart_relay(&mut self) -> Vec<u64> {
        let relay = self.rng.usize(..RELAYS);
        self.lose_leader(relay);
        self.relays[relay] = SimulatedRelay::default();
        self.links.iter().filter(|(_, link)| link.relay == relay).map(|(number, _)| *number).collect()
    }

    /// The connection between the leader and a relay breaks.
    pub(super) fn partition(&mut self) -> Vec<DeskOutput> {
        let relay = self.rng.usize(..RELAYS);
        self.lose_leader(relay)
    }

    fn lose_leader(&mut self, relay: usize) -> Vec<DeskOutput> {
        self.relays[relay].feed.clear();
        let gone = self.relays[relay].leader.take();
        gone.map(|leader| self.desk.relay_gone(leader)).unwrap_or_default()
    }

    /// The leader is gone, or it was stopped and will wake.
    pub(super) fn change_leader(&mut self, stored: GroupSnapshot) {
        let (desk, reads) = (std::mem::take(&mut self.desk), std::mem::take(&mut self.reads));
        let is_stopped = self.rng.bool();
        for relay in &mut self.relays {
            relay.feed.clear();
            relay.former = relay.leader.take().filter(|_| is_stopped);
            if self.rng.bool() {
                relay.inbox.clear();
            }
        }
        self.asleep = is_stopped.then_some(StoppedLeader { desk, reads, stored });
    }

    /// A leader that was stopped wakes: what it has read before, and has not said, it says now.
    pub(super) fn wake(&mut self, now: Now) -> bool {
        let Some(StoppedLeader { mut desk, reads, stored }) = self.asleep.take() else { return false };
        let mut outputs = Vec::new();
        for (of, shown) in reads {
            outputs.extend(shown.into_iter().flat_map(|shown| desk.read(&of, ReadOutcome::Found(shown), now.instant)));
        }
        let statement = Statement::broadcast(now.time.as_millisecond(), stored.state);
        let message = RelayMessage::Group { key: key().clone().into(), statement, is_repeated: false };
        for relay in &mut self.relays {
            let Some(former) = relay.former.take() else { continue };
            let said = outputs.iter().filter_map(|output| match output {
                DeskOutput::Send(to, message) if *to == former => Some(message.clone()),
                _ => None,
            });
            relay.inbox.extend(said);
            relay.inbox.push_back(message.clone());
        }
        true
    }

    /// Until then, the leader does not read what one of the relays says.
    pub(super) fn stall(&mut self, until: i64) {
        let relay = self.rng.usize(..RELAYS);
        self.relays[relay].stalled_until = until;
    }

    pub(super) fn end_stalls(&mut self) {
        self.relays.iter_mut().for_each(|relay| relay.stalled_until = 0);
    }

    /// One thing that relays and the leader do by themselves, the first of them after this number. What the desk says. `clock` is
    /// in milliseconds.
    pub(super) fn step(
        &mut self,
        first: usize,
        (now, clock): (Now, i64),
        read: impl Fn() -> GroupSnapshot,
    ) -> Option<Vec<DeskOutput>> {
        (0..6).find_map(|turn| match (first + turn) % 6 {
            0 => self.dial(now),
            1 => self.feed(now, clock),
            2 => {
                let number = self.links.iter().find(|(_, link)| !link.reports.is_empty()).map(|(number, _)| *number)?;
                self.pass_report(number);
                Some(Vec::new())
            }
            3 => {
                self.reads.iter_mut().find(|(_, shown)| shown.is_none())?.1 = Some(read());
                Some(Vec::new())
            }
            4 => {
                let served = self.reads.iter().position(|(_, shown)| shown.is_some())?;
                let (of, shown) = self.reads.remove(served);
                let outcome = shown.filter(|_| self.rng.u8(..8) != 0).map_or(ReadOutcome::Failed, ReadOutcome::Found);
                Some(self.desk.read(&of, outcome, now.instant))
            }
            _ => self.pass_on(),
        })
    }

    /// The leader dials a relay that it does not know, which tells it of its agents.
    fn dial(&mut self, now: Now) -> Option<Vec<DeskOutput>> {
        let relay = (0..RELAYS).find(|relay| self.relays[*relay].leader.is_none() && !self.is_cut)?;
        let leader = self.number();
        let agents = self.links.iter().filter(|(_, link)| link.relay == relay && link.mood != Mood::Silent);
        self.relays[relay].feed = agents.map(|(number, link)| link.hello(*number)).collect();
        self.relays[relay].leader = Some(leader);
        Some(self.desk.relay_connected(leader, now))
    }

    /// The leader hears of what agents do.
    fn feed(&mut self, now: Now, clock: i64) -> Option<Vec<DeskOutput>> {
        let waits = |relay: &&mut SimulatedRelay| {
            relay.leader.is_some() && !relay.feed.is_empty() && relay.stalled_until <= clock
        };
        let relay = self.relays.iter_mut().find(waits)?;
        let events = self.rng.usize(1..=relay.feed.len());
        let events = relay.feed.drain(..events).collect();
        Some(self.desk.agent_events(relay.leader?, events, now.instant))
    }

    /// A relay passes on what a leader says.
    fn pass_on(&mut self) -> Option<Vec<DeskOutput>> {
        let number = self.relays.iter().position(|relay| !relay.inbox.is_empty())?;
        let message = self.relays[number].inbox.pop_front()?;
        let statements: Vec<(u64, Statement)> = match message {
            RelayMessage::Answers { time, state, agents } => {
                let answer = |(agent, nonce)| (agent, Statement::answer(time, nonce, (*state).clone()));
                agents.into_iter().map(answer).collect()
            }
            RelayMessage::Group { statement, .. } | RelayMessage::Beat(statement) => {
                let agents = self.links.iter().filter(|(_, link)| link.relay == number);
                agents.map(|(agent, _)| (*agent, statement.clone())).collect()
            }
        };
        for (agent, statement) in statements {
            self.pass_statement(number, agent, statement);
        }
        Some(Vec::new())
    }

    fn pass_statement(&mut self, relay: usize, agent: u64, statement: Statement) {
        let Some(link) = self.links.get_mut(&agent) else { return };
        let is_answer = statement.nonce.as_ref() == Some(&link.nonce);
        self.hostility.pass(link.mood, statement, &mut link.statements);
        // The leader knows of no agent of the relay, and sends it signs of life.
        if is_answer && matches!(link.mood, Mood::Withholds | Mood::Repeats) {
            self.tell_leader(relay, AgentEvent { agent, event: AgentEventKind::Gone });
        }
    }

    /// What the desk says: reads and statements. Reports are the caller's.
    pub(super) fn carry_out(&mut self, output: DeskOutput) {
        match output {
            DeskOutput::Read(of) => self.reads.push(((*of).clone(), None)),
            DeskOutput::Send(to, message) => {
                let message = self.hostility.edit(message);
                let relay = self.relays.iter_mut().find(|relay| relay.leader == Some(to));
                if let Some(relay) = relay {
                    relay.inbox.push_back(message);
                }
            }
            DeskOutput::Report { .. } | DeskOutput::AgentGone { .. } => {}
        }
    }
}

impl SimulatedLink {
    fn hello(&self, agent: u64) -> AgentEvent {
        let (pod, nonce, report) = (self.pod.clone(), self.nonce.clone(), self.known.clone());
        AgentEvent { agent, event: AgentEventKind::Hello { pod, jobset: JOBSET.to_owned(), nonce, report } }
    }
}
