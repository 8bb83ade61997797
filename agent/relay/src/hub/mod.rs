//! Who is connected, and what each connection is to be sent. Decides, and does no input or output: the tasks of the connections
//! tell it what happened and take what they have to send. A bell tells a task that there is something.

mod feed;
mod outbox;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jobset_stream::AGENT_FRAME;
use jobset_stream::frame::encode;
use jobset_stream::message::{AgentEvent, AgentEventKind, Kind, Nonce, PodRef, Report, ToAgent, ToRelay};
use jobset_stream::signature::Signed;
use thiserror::Error;
use tokio::sync::Notify;
use tokio_util::bytes::Bytes;

use crate::limits::{CONNECTIONS_PER_POD, CONTROLLERS, KEPT_TEXTS, Limit};
use feed::Feed;
pub use outbox::Outgoing;
use outbox::{LeaderCertificates, Outbox};

/// Rings when there is something for a connection.
pub type Bell = Arc<Notify>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its Pod, by its token.
    pub pod: PodRef,
    pub jobset: String,
    /// Number of its connection, which the answer has to name.
    pub nonce: Nonce,
    pub report: Option<Report>,
}

/// How many agents may be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// In all.
    pub agents: usize,
    pub of_namespace: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Turn<T> {
    Send(T),
    /// Wait for the bell.
    Wait,
    /// End, for this reason.
    End(Limit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ControllerError {
    /// It has not sent its certificates before.
    #[error("the controller has sent a statement before its certificates")]
    NoLeader,
    /// The message is too long for an agent.
    #[error("the message of the controller is too long for agents")]
    TooLong,
}

#[derive(Debug)]
struct Agent {
    hello: Hello,
    is_answered: bool,
    outbox: Outbox,
    bell: Bell,
}

#[derive(Debug)]
struct Controller {
    feed: Feed,
    leader: Option<LeaderCertificates>,
    /// Order of the last messages of controllers.
    heard: u64,
    bell: Bell,
}

/// The name of a JobSet: namespace and name.
type Group = (Arc<str>, Arc<str>);

/// All connections that have shown who they are.
#[derive(Debug)]
pub struct Hub {
    capacity: Capacity,
    agents: BTreeMap<u64, Agent>,
    groups: HashMap<Group, BTreeSet<u64>>,
    pods: HashMap<String, Vec<u64>>,
    namespaces: HashMap<String, usize>,
    controllers: BTreeMap<u64, Controller>,
    /// Connections that have to end, until their tasks have noticed.
    ended: HashMap<u64, Limit>,
    kept_texts: usize,
    numbers: u64,
}

impl Hub {
    /// Without connections.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            agents: BTreeMap::new(),
            groups: HashMap::new(),
            pods: HashMap::new(),
            namespaces: HashMap::new(),
            controllers: BTreeMap::new(),
            ended: HashMap::new(),
            kept_texts: 0,
            numbers: 0,
        }
    }

    pub fn agents(&self) -> usize {
        self.agents.len()
    }

    pub fn controllers(&self) -> usize {
        self.controllers.len()
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// An agent has said hello. The oldest connection of its Pod ends if there are too many.
    ///
    /// # Errors
    /// There are too many agents.
    pub fn join(&mut self, hello: Hello) -> Result<(u64, Bell), Limit> {
        let of_pod = self.pods.get(&hello.pod.uid).map_or(&[][..], Vec::as_slice);
        if let [oldest, ..] = *of_pod
            && of_pod.len() >= CONNECTIONS_PER_POD
        {
            self.end(oldest, Limit::Pod);
        }
        if self.agents.len() >= self.capacity.agents {
            return Err(Limit::Connections);
        }
        let of_namespace = self.namespaces.entry(hello.pod.namespace.clone()).or_default();
        if *of_namespace >= self.capacity.of_namespace {
            return Err(Limit::Namespace);
        }
        *of_namespace += 1;
        let (number, bell) = (self.number(), Bell::default());
        self.pods.entry(hello.pod.uid.clone()).or_default().push(number);
        self.groups.entry(group(&hello)).or_default().insert(number);
        let mut agent = Agent { hello, is_answered: false, outbox: Outbox::default(), bell: Arc::clone(&bell) };
        self.tell(&agent.hello_event(number));
        let leader = self.controllers.values().filter(|it| it.leader.is_some()).max_by_key(|it| it.heard);
        match leader.and_then(|it| it.leader.as_ref()) {
            Some(leader) => agent.outbox.introduce(leader),
            None => agent.outbox.say_leaderless(),
        }
        self.kept_texts += agent.limit_texts(KEPT_TEXTS.saturating_sub(self.kept_texts));
        self.agents.insert(number, agent);
        Ok((number, bell))
    }

    /// Tells all controllers what an agent does. A controller that connects later is told of its last report.
    pub fn pass(&mut self, agent: u64, event: AgentEventKind) {
        let Some(reporting) = self.agents.get_mut(&agent) else { return };
        if let AgentEventKind::Report(report) = &event {
            self.kept_texts -= reporting.kept_bytes();
            reporting.hello.report = Some(report.clone());
            self.kept_texts += reporting.limit_texts(KEPT_TEXTS.saturating_sub(self.kept_texts));
        }
        self.tell(&AgentEvent { agent, event });
    }

    pub fn leave(&mut self, agent: u64) {
        self.ended.remove(&agent);
        self.remove(agent);
    }

    /// Why a connection has to end, if it has to.
    pub fn ended(&self, number: u64) -> Option<Limit> {
        self.ended.get(&number).copied()
    }

    /// What the connection of an agent has to do: at most so many messages at once.
    pub fn agent_turn(&mut self, agent: u64, most: usize) -> Turn<Vec<Outgoing>> {
        let Some(connected) = self.agents.get_mut(&agent) else {
            return Turn::End(self.ended.remove(&agent).unwrap_or(Limit::Connections));
        };
        let messages = connected.outbox.take(most);
        if messages.is_empty() { Turn::Wait } else { Turn::Send(messages) }
    }

    /// A controller has connected. It is told of all agents first.
    pub fn connect(&mut self) -> (u64, Bell) {
        if self.controllers.len() >= CONTROLLERS {
            let silent = self.controllers.iter().min_by_key(|(_, it)| it.heard).map(|(number, _)| *number);
            if let Some(silent) = silent {
                self.end(silent, Limit::Controllers);
            }
        }
        let (number, bell) = (self.number(), Bell::default());
        let snapshot = self.agents.iter().filter_map(|(agent, it)| encode(&it.hello_event(*agent)).ok());
        let feed = Feed::new(snapshot.collect());
        self.controllers.insert(number, Controller { feed, leader: None, heard: number, bell: Arc::clone(&bell) });
        (number, bell)
    }

    pub fn disconnect(&mut self, controller: u64) {
        self.ended.remove(&controller);
        self.remove(controller);
    }

    /// Tells the agents that wait for an answer when nobody is left to give it, so that they rely on the API server at once. Those
    /// that were answered wait for the next leader.
    fn tell_leaderless(&mut self) {
        if self.controllers.values().any(|it| it.leader.is_some()) {
            return;
        }
        for agent in self.agents.values_mut().filter(|agent| !agent.is_answered) {
            agent.outbox.say_leaderless();
            agent.bell.notify_one();
        }
    }

    /// What the connection of a controller has to do: one frame.
    pub fn controller_turn(&mut self, controller: u64) -> Turn<Bytes> {
        let Some(connected) = self.controllers.get_mut(&controller) else {
            return Turn::End(self.ended.remove(&controller).unwrap_or(Limit::Controllers));
        };
        connected.feed.frame().map_or(Turn::Wait, Turn::Send)
    }

    /// A controller says something.
    ///
    /// # Errors
    /// It must not, and its connection has to end.
    pub fn hear(&mut self, controller: u64, message: ToRelay) -> Result<(), ControllerError> {
        let heard = self.number();
        let Some(speaker) = self.controllers.get_mut(&controller) else { return Ok(()) };
        speaker.heard = heard;
        let (kind, leader) = (message.kind(), speaker.leader.clone());
        let (agents, signed): (Vec<u64>, Signed) = match message {
            ToRelay::Leader(chain) => {
                speaker.leader = Some(LeaderCertificates::new(controller, encoded(&ToAgent::Leader(chain))?));
                return Ok(());
            }
            ToRelay::Group { namespace, jobset, signed } => {
                let of_group = self.groups.get(&(namespace.into(), jobset.into()));
                (of_group.into_iter().flatten().copied().collect(), signed)
            }
            ToRelay::Answer { agent, signed } => {
                if let Some(agent) = self.agents.get_mut(&agent) {
                    agent.is_answered = true;
                }
                (vec![agent], signed)
            }
            ToRelay::Beat(signed) => (self.agents.keys().copied().collect(), signed),
        };
        let leader = leader.ok_or(ControllerError::NoLeader)?;
        self.send(agents, &leader, kind, &encoded(&ToAgent::Signed(signed))?);
        Ok(())
    }

    fn send(&mut self, agents: Vec<u64>, leader: &LeaderCertificates, kind: Kind, statement: &Bytes) {
        for number in agents {
            let Some(agent) = self.agents.get_mut(&number) else { continue };
            if agent.outbox.push(leader, kind, statement) {
                agent.bell.notify_one();
            } else {
                self.end(number, Limit::Queue);
            }
        }
    }

    fn tell(&mut self, event: &AgentEvent) {
        if self.controllers.is_empty() {
            return;
        }
        let Ok(encoded) = encode(event) else { return };
        let mut full = Vec::new();
        for (number, controller) in &mut self.controllers {
            if controller.feed.push(encoded.clone()) {
                controller.bell.notify_one();
            } else {
                full.push(*number);
            }
        }
        for controller in full {
            self.end(controller, Limit::Queue);
        }
    }

    /// Ends a connection of an agent or of a controller.
    fn end(&mut self, number: u64, limit: Limit) {
        if let Some(bell) = self.remove(number) {
            self.ended.insert(number, limit);
            bell.notify_one();
        }
    }

    fn remove(&mut self, number: u64) -> Option<Bell> {
        if let Some(controller) = self.controllers.remove(&number) {
            self.tell_leaderless();
            return Some(controller.bell);
        }
        let agent = self.agents.remove(&number)?;
        self.kept_texts -= agent.kept_bytes();
        let Hello { pod, .. } = &agent.hello;
        if let Some(of_namespace) = self.namespaces.get_mut(&pod.namespace) {
            *of_namespace -= 1;
            if *of_namespace == 0 {
                self.namespaces.remove(&pod.namespace);
            }
        }
        if let Some(of_pod) = self.pods.get_mut(&pod.uid) {
            of_pod.retain(|it| *it != number);
            if of_pod.is_empty() {
                self.pods.remove(&pod.uid);
            }
        }
        let group = group(&agent.hello);
        if let Some(of_group) = self.groups.get_mut(&group) {
            of_group.remove(&number);
            if of_group.is_empty() {
                self.groups.remove(&group);
            }
        }
        self.tell(&AgentEvent { agent: number, event: AgentEventKind::Gone });
        Some(agent.bell)
    }
}

impl Agent {
    fn hello_event(&self, agent: u64) -> AgentEvent {
        let Hello { pod, jobset, nonce, report } = self.hello.clone();
        AgentEvent { agent, event: AgentEventKind::Hello { pod, jobset, nonce, report } }
    }

    /// Bytes of the texts of its last report.
    fn kept_bytes(&self) -> usize {
        let texts = self.hello.report.iter().flat_map(|report| [&report.exit, &report.progress]);
        texts.flatten().map(String::len).sum()
    }

    /// Forgets texts for which there is no room, first how far the worker came. The number of bytes that are kept.
    fn limit_texts(&mut self, room: usize) -> usize {
        let texts: [fn(&mut Report) -> &mut Option<String>; 2] =
            [|report| &mut report.progress, |report| &mut report.exit];
        for text in texts {
            if self.kept_bytes() > room
                && let Some(report) = &mut self.hello.report
            {
                *text(report) = None;
            }
        }
        self.kept_bytes()
    }
}

fn group(hello: &Hello) -> Group {
    (hello.pod.namespace.as_str().into(), hello.jobset.as_str().into())
}

fn encoded(message: &ToAgent) -> Result<Bytes, ControllerError> {
    encode(message).ok().filter(|it| it.len() <= AGENT_FRAME).ok_or(ControllerError::TooLong)
}

#[cfg(test)]
mod tests;
