//! Who is connected to relays, and what the leader says to them.
//!
//! - A hello is answered only from a read of the JobSet that began after the hello had arrived. One read answers all hellos that
//!   waited when it began, and there is at most one read of a JobSet at a time.
//! - Agents of a JobSet are told of a state once it is stored: it was written with success, or observed.
//! - The state of each JobSet is repeated to the relays that have agents of it. So an agent that hears nothing of its JobSet for
//!   a while knows that the relay withholds it, or that nobody leads. A relay without such agents gets signs of life.
//! - The time of statements grows with each of them. The answers of one read to different agents have the same time.

mod group;
mod reads;
mod repeats;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jobset_api::labels::PROGRESS_BYTES;
use jobset_store::Key;
use jobset_store::pods::{StreamReport, parse_start};
use jobset_stream::message::{AgentEvent, AgentEventKind, GroupState, Nonce, PodRef, Report, Statement};
use jobset_stream::{AGENTS_OF_A_RELAY, BEAT, EXIT_BYTES};

use super::GroupSnapshot;
use crate::Now;
use group::GroupDesk;
use reads::Reads;
use repeats::Repeats;

/// Shortest time between the begins of two reads of one JobSet, for each hello that the first one answers.
const READ_PAUSE: Duration = Duration::from_millis(20);
/// The hellos that count for that: of thousands, many share a read.
const MOST_PAUSES: usize = 8;
/// Longest name and UID in bytes that Kubernetes gives.
const LONGEST_NAME: usize = 253;

/// Number of a connection to a relay. Each connection has its own.
pub type RelayId = u64;

/// Number of an agent: its relay, and its connection to that.
type AgentId = (RelayId, u64);

/// What follows from what has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeskOutput {
    /// An agent has reported.
    Report {
        /// Its JobSet.
        key: Arc<Key>,
        report: StreamReport,
    },
    /// The connection of an agent has ended.
    AgentGone {
        /// Its JobSet.
        key: Arc<Key>,
        pod_uid: Box<str>,
    },
    /// Read the JobSet from the API server itself, and call [`Desk::read`].
    Read(Arc<Key>),
    /// Sign and send this.
    Send(RelayId, RelayMessage),
}

/// What a relay is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayMessage {
    /// The answer to the hellos of these agents.
    Answers {
        /// Time of the statements.
        time: i64,
        /// What the read has shown.
        state: Arc<GroupState>,
        /// The agents, and the nonce of each.
        agents: Vec<(u64, Nonce)>,
    },
    /// A state for all agents of the JobSet.
    Group {
        /// The JobSet.
        key: Arc<Key>,
        /// What to sign.
        statement: Statement,
        /// Whether the agents were told of it before.
        is_repeated: bool,
    },
    /// A sign of life, for a relay without agents that know a state, and for the agents of the release before.
    Beat(Statement),
}

impl RelayMessage {
    /// The time of its statements. Messages of the same time to several relays say the same.
    pub fn time(&self) -> i64 {
        match self {
            Self::Answers { time, .. } => *time,
            Self::Group { statement, .. } | Self::Beat(statement) => statement.time,
        }
    }
}

/// What a read has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The JobSet.
    Found(GroupSnapshot),
    /// There is no JobSet of this name.
    NotFound,
    /// The API server has not answered.
    Failed,
}

/// An agent that has said hello.
#[derive(Clone, Debug)]
struct Agent {
    key: Arc<Key>,
    pod: Box<str>,
    pod_uid: Box<str>,
}

/// The relays and agents that are connected, and what they have been told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desk {
    /// The only namespace whose agents are answered, if the controller looks at one alone.
    namespace: Option<String>,
    relays: BTreeMap<RelayId, HashMap<u64, Agent>>,
    groups: HashMap<Arc<Key>, GroupDesk>,
    reads: Reads,
    repeats: Repeats,
    /// Time of the last statement.
    time: i64,
    /// The clock of the statements.
    clock: Option<Now>,
    beat_due: Option<Instant>,
}

impl Desk {
    /// A desk for the agents of this namespace, or of all.
    pub(crate) fn new(namespace: Option<String>) -> Self {
        Self { namespace, ..Self::default() }
    }

    /// Number of connected relays.
    pub(crate) fn relays(&self) -> usize {
        self.relays.len()
    }

    /// Number of connected agents.
    pub(crate) fn agents(&self) -> usize {
        self.relays.values().map(HashMap::len).sum()
    }

    /// Number of connections of each Pod of the JobSet that has one, by its UID.
    pub(crate) fn connections(&self, key: &Key) -> Option<&HashMap<Box<str>, u32>> {
        self.groups.get(key).map(GroupDesk::connections)
    }

    /// When [`Desk::next`] has something although nothing has happened.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        [self.reads.next_due(), self.repeats.next_due(), self.beat_due].into_iter().flatten().min()
    }

    /// Forgets all connections: this replica does not lead. The time goes on.
    pub(crate) fn clear(&mut self) {
        *self = Self { namespace: self.namespace.take(), time: self.time, clock: self.clock, ..Self::default() };
    }

    /// Statements have times of this clock, which begins after those of earlier leaders. Without it, one begins with the first relay.
    pub(crate) fn set_clock(&mut self, clock: Now) {
        self.clock.get_or_insert(clock);
    }

    pub(crate) fn relay_connected(&mut self, relay: RelayId, now: Now) -> Vec<DeskOutput> {
        self.relays.entry(relay).or_default();
        self.beat_due.get_or_insert(now.instant + BEAT);
        self.clock.get_or_insert(now);
        let beat = RelayMessage::Beat(Statement::beat(self.tick(now.instant)));
        vec![DeskOutput::Send(relay, beat)]
    }

    /// The connection to a relay has ended, and with it those of its agents.
    pub(crate) fn relay_gone(&mut self, relay: RelayId) -> Vec<DeskOutput> {
        let agents = self.relays.remove(&relay).unwrap_or_default();
        if self.relays.is_empty() {
            self.beat_due = None;
        }
        agents.into_iter().filter_map(|(number, agent)| self.leave((relay, number), agent)).collect()
    }

    /// Agents of a relay have done this.
    pub(crate) fn agent_events(&mut self, relay: RelayId, events: Vec<AgentEvent>, now: Instant) -> Vec<DeskOutput> {
        let mut outputs = Vec::new();
        for AgentEvent { agent, event } in events {
            match event {
                AgentEventKind::Hello { pod, jobset, nonce, report } => {
                    outputs.extend(self.hello((relay, agent), pod, jobset, nonce, report, now));
                }
                AgentEventKind::Report(report) => {
                    let known = self.relays.get(&relay).and_then(|agents| agents.get(&agent));
                    outputs.extend(known.map(|agent| agent.report(report)));
                }
                AgentEventKind::Gone => {
                    let gone = self.relays.get_mut(&relay).and_then(|agents| agents.remove(&agent));
                    outputs.extend(gone.and_then(|gone| self.leave((relay, agent), gone)));
                }
            }
        }
        outputs
    }

    /// A state of a JobSet was written with success, or observed. Each state is newer than those with smaller versions.
    pub(crate) fn stored(&mut self, key: &Key, snapshot: GroupSnapshot, now: Instant) -> Vec<DeskOutput> {
        let Some((key, _)) = self.groups.get_key_value(key) else { return Vec::new() };
        let key = Arc::clone(key);
        self.repeats.add(&key, now);
        let relays = self.groups.get_mut(&key).map(|group| group.learn(snapshot)).unwrap_or_default();
        if relays.is_empty() { Vec::new() } else { self.broadcast(&key, relays, false, now) }
    }

    /// A read that was begun with [`DeskOutput::Read`] has ended.
    pub(crate) fn read(&mut self, key: &Key, outcome: ReadOutcome, now: Instant) -> Vec<DeskOutput> {
        self.reads.end(key);
        let Some((key, _)) = self.groups.get_key_value(key) else { return Vec::new() };
        let key = Arc::clone(key);
        let outputs = match outcome {
            ReadOutcome::Found(snapshot) => self.answer(&key, snapshot, now),
            ReadOutcome::NotFound => {
                self.end_read(&key);
                Vec::new()
            }
            ReadOutcome::Failed => {
                if let Some(group) = self.groups.get_mut(&key) {
                    group.read_failed(now);
                }
                Vec::new()
            }
        };
        self.schedule(&key);
        outputs
    }

    /// What is due.
    pub(crate) fn next(&mut self, now: Instant) -> Vec<DeskOutput> {
        let mut outputs = Vec::new();
        while let Some(key) = self.reads.begin(now) {
            match self.groups.get_mut(&key) {
                Some(group) => {
                    group.begin_read(now);
                    outputs.push(DeskOutput::Read(key));
                }
                None => self.reads.end(&key),
            }
        }
        for key in self.repeats.take_due(now) {
            let relays = self.groups.get(&key).map(|group| group.relays().collect()).unwrap_or_default();
            outputs.extend(self.broadcast(&key, relays, true, now));
        }
        if self.beat_due.is_some_and(|due| due <= now) {
            self.beat_due = Some(now + BEAT);
            let beat = RelayMessage::Beat(Statement::beat(self.tick(now)));
            let told = self.groups.values().filter(|group| group.known().is_some()).flat_map(GroupDesk::relays);
            let told: BTreeSet<RelayId> = told.collect();
            let others = self.relays.keys().filter(|relay| !told.contains(relay));
            outputs.extend(others.map(|relay| DeskOutput::Send(*relay, beat.clone())));
        }
        outputs
    }

    fn hello(
        &mut self,
        id: AgentId,
        pod: PodRef,
        jobset: String,
        nonce: Nonce,
        report: Option<Report>,
        now: Instant,
    ) -> Option<DeskOutput> {
        let (relay, number) = id;
        let PodRef { namespace, name, uid } = pod;
        let is_short = |text: &String| text.len() <= LONGEST_NAME;
        let is_foreign = self.namespace.as_ref().is_some_and(|own| *own != namespace);
        let agents = self.relays.get_mut(&relay)?;
        let is_known = agents.contains_key(&number);
        let is_too_many = agents.len() >= AGENTS_OF_A_RELAY;
        if is_foreign || is_known || is_too_many || ![&namespace, &name, &uid, &jobset].into_iter().all(is_short) {
            return None;
        }
        let key = Key { namespace, name: jobset };
        let key = self.groups.get_key_value(&key).map_or_else(|| Arc::new(key), |(known, _)| Arc::clone(known));
        let agent = Agent { key: Arc::clone(&key), pod: name.into(), pod_uid: uid.into() };
        let output = report.map(|report| agent.report(report));
        let pod_uid = agent.pod_uid.clone();
        agents.insert(number, agent);
        self.groups.entry(Arc::clone(&key)).or_default().join(id, pod_uid, nonce, now);
        self.schedule(&key);
        output
    }

    fn leave(&mut self, id: AgentId, agent: Agent) -> Option<DeskOutput> {
        let Agent { key, pod_uid, .. } = agent;
        self.unschedule(&key);
        let is_last = self.groups.get_mut(&key).is_some_and(|group| group.leave(id, &pod_uid));
        self.schedule(&key);
        is_last.then_some(DeskOutput::AgentGone { key, pod_uid })
    }

    /// Answers the hellos that have waited for this read.
    fn answer(&mut self, key: &Arc<Key>, snapshot: GroupSnapshot, now: Instant) -> Vec<DeskOutput> {
        let Some(known) = self.groups.get(key).map(|group| group.known().cloned()) else { return Vec::new() };
        let newer = known.filter(|known| known.version > snapshot.version);
        if newer.as_ref().is_some_and(|newer| newer.state.uid != snapshot.state.uid) {
            // The read has shown a JobSet that another one has replaced.
            if let Some(group) = self.groups.get_mut(key) {
                group.read_again();
            }
            return Vec::new();
        }
        let mut outputs = self.stored(key, snapshot.clone(), now);
        let mut by_relay: BTreeMap<RelayId, Vec<(u64, Nonce)>> = BTreeMap::new();
        for ((relay, number), nonce) in self.end_read(key) {
            by_relay.entry(relay).or_default().push((number, nonce));
        }
        if by_relay.is_empty() {
            return outputs;
        }
        let (time, state) = (self.tick(now), Arc::new(snapshot.state));
        let relays: Vec<RelayId> = by_relay.keys().copied().collect();
        outputs.extend(by_relay.into_iter().map(|(relay, agents)| {
            DeskOutput::Send(relay, RelayMessage::Answers { time, state: Arc::clone(&state), agents })
        }));
        // These agents have ignored the broadcast of what was stored since the read.
        if newer.is_some() {
            outputs.extend(self.broadcast(key, relays, false, now));
        }
        outputs
    }

    /// Tells the agents at these relays of the newest state that is known to be stored.
    fn broadcast(&mut self, key: &Arc<Key>, relays: Vec<RelayId>, is_repeated: bool, now: Instant) -> Vec<DeskOutput> {
        let Some(known) = self.groups.get(key).and_then(GroupDesk::known) else { return Vec::new() };
        let state = known.state.clone();
        let statement = Statement::broadcast(self.tick(now), state);
        let message = RelayMessage::Group { key: Arc::clone(key), statement, is_repeated };
        relays.into_iter().map(|relay| DeskOutput::Send(relay, message.clone())).collect()
    }

    fn end_read(&mut self, key: &Key) -> BTreeMap<AgentId, Nonce> {
        self.groups.get_mut(key).map(GroupDesk::end_read).unwrap_or_default()
    }

    /// Notes when the JobSet is read next, and forgets it when it has no agents and is not being read.
    fn schedule(&mut self, key: &Arc<Key>) {
        let Some(group) = self.groups.get(key) else { return };
        if group.is_forgettable() {
            self.groups.remove(key);
            self.repeats.remove(key);
        } else if let Some(due) = group.read_due() {
            self.reads.plan(due, key);
        }
    }

    fn unschedule(&mut self, key: &Arc<Key>) {
        if let Some(due) = self.groups.get(key).and_then(GroupDesk::read_due) {
            self.reads.cancel(due, key);
        }
    }

    /// The time of a statement in milliseconds. It passes as fast as real time, also when the clock is set: agents compare how
    /// much has passed there and here.
    fn tick(&mut self, now: Instant) -> i64 {
        let time = self.clock.map_or(0, |clock| clock.after(now).as_millisecond());
        self.time = time.max(self.time.saturating_add(1));
        self.time
    }
}

impl Agent {
    fn report(&self, report: Report) -> DeskOutput {
        let Report { epoch, exit, started, progress } = report;
        let exit = exit.filter(|text| text.len() <= EXIT_BYTES);
        let progress = progress.filter(|text| text.len() <= PROGRESS_BYTES);
        let started = started.as_deref().and_then(parse_start);
        let (pod, pod_uid) = (self.pod.to_string(), self.pod_uid.to_string());
        let report = StreamReport { pod, pod_uid, epoch, exit, started, progress };
        DeskOutput::Report { key: Arc::clone(&self.key), report }
    }
}
