//! The messages of the agent stream.

use std::fmt;

use jobset_protocol::labels::PROGRESS_BYTES;
use rustls::crypto::SecureRandom;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::signature::Signed;
use crate::{EVENTS_IN_FRAME, EXIT_BYTES, STARTED_BYTES};

/// A random number that an agent chooses for each connection. A signed answer that names it was made for this connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Nonce(String);

impl Nonce {
    /// 128 random bits.
    pub fn random(source: &dyn SecureRandom) -> Result<Self, rustls::crypto::GetRandomFailed> {
        let mut bytes = [0; 16];
        source.fill(&mut bytes)?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bytes))))
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The state of a JobSet that its agents act on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupState {
    /// `metadata.uid`.
    pub uid: String,
    /// `status.syncedEpoch`.
    pub synced: i32,
    /// `status.deprecatedEpoch`.
    pub deprecated: i32,
    /// Whether the JobSet has failed.
    pub failed: bool,
    /// Whether the JobSet does not restart in place.
    pub bypass: bool,
    /// Number of Pods of the JobSet. Agents spread the writes of their annotations by it.
    pub pods: u32,
    /// `status.progress.longestPauseSeconds`. Leaders of the release before never say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<u32>,
}

/// What the leader signs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// Time of the leader in milliseconds since 1970. It grows from statement to statement, so an agent recognizes old ones.
    pub time: i64,
    /// The hello that this answers; `None` for a broadcast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Nonce>,
    /// The JobSet; `None` for a sign of life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupState>,
    /// In a sign of life: the leader repeats the state of each JobSet as often. Agents then wait for a statement about their own
    /// JobSet, because a relay that passes signs of life on could withhold those. Leaders of the release before never say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
}

impl Statement {
    pub fn answer(time: i64, nonce: Nonce, state: GroupState) -> Self {
        Self { time, nonce: Some(nonce), group: Some(state), repeats: false }
    }

    /// A state for all agents of its JobSet.
    pub fn broadcast(time: i64, state: GroupState) -> Self {
        Self { time, nonce: None, group: Some(state), repeats: false }
    }

    /// A sign of life of a leader that repeats the states of JobSets.
    pub fn beat(time: i64) -> Self {
        Self { time, nonce: None, group: None, repeats: true }
    }
}

/// A report: an epoch, how the worker of the epoch before ended, and how far workers came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Report {
    /// The epoch that the Pod has entered.
    pub epoch: i32,
    /// The value of the annotation [`WORKER_EXIT`](jobset_protocol::labels::WORKER_EXIT), if the worker failed. At most
    /// [`EXIT_BYTES`](crate::EXIT_BYTES).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
    /// The value of the annotation [`AGENT_STARTED`](jobset_protocol::labels::AGENT_STARTED): when the agent started. At most
    /// [`STARTED_BYTES`](crate::STARTED_BYTES).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// The value of the annotation [`PROGRESS`](jobset_protocol::labels::PROGRESS), if a worker of the Pod has ever told of progress.
    /// At most [`PROGRESS_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}

impl Report {
    /// Whether its texts are short enough.
    pub fn is_permitted(&self) -> bool {
        let is_within = |text: &Option<String>, most: usize| text.as_ref().is_none_or(|text| text.len() <= most);
        is_within(&self.exit, EXIT_BYTES)
            && is_within(&self.started, STARTED_BYTES)
            && is_within(&self.progress, PROGRESS_BYTES)
    }
}

/// Messages of an agent to a relay. [`Hello`](FromAgent::Hello) is the first and comes once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    Hello {
        /// ServiceAccount token, bound to the Pod, for the audience of the relays.
        token: String,
        /// Name of the JobSet, in the namespace of the Pod.
        jobset: String,
        /// The number that the answer has to name.
        nonce: Nonce,
        /// The last report of this agent, if it has reported.
        report: Option<Report>,
        /// Whether the agent has lost an earlier connection and relied on the API server since.
        fell_back: bool,
    },
    Report(Report),
}

impl FromAgent {
    /// Each [`Self::kind`].
    pub const KINDS: [&'static str; 2] = ["hello", "report"];

    /// What the message is, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Report(_) => "report",
        }
    }

    /// What a relay tells controllers of a message after the hello. `None` if no agent of this release sends it then: it is a second
    /// hello, or has longer texts than it may have.
    pub fn into_event(self) -> Option<AgentEventKind> {
        match self {
            Self::Hello { .. } => None,
            Self::Report(report) => report.is_permitted().then_some(AgentEventKind::Report(report)),
        }
    }
}

/// Messages of a relay to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// The certificates of the leader that signs what follows: DER in base64, its own first.
    Leader(Vec<String>),
    /// Nobody leads behind the relay. It answers a hello so, and sends the certificates when somebody does.
    NoLeader,
    Signed(Signed),
}

/// Messages of the controller to a relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToRelay {
    /// The certificates of this leader, as [`ToAgent::Leader`]. The first message, and repeated when they change.
    Leader(Vec<String>),
    /// For all agents of a JobSet.
    Group {
        /// Namespace of the JobSet.
        namespace: String,
        /// Name of the JobSet.
        jobset: String,
        /// A statement about the JobSet.
        signed: Signed,
    },
    /// For one agent: the answer to its hello.
    Answer {
        /// Number of the agent's connection.
        agent: u64,
        /// A statement that names the nonce of the hello.
        signed: Signed,
    },
    /// For all agents: a sign of life.
    Beat(Signed),
}

impl ToRelay {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Leader(_) => Kind::Leader,
            Self::Group { .. } => Kind::Group,
            Self::Answer { .. } => Kind::Answer,
            Self::Beat(_) => Kind::Beat,
        }
    }
}

/// What a message of the controller is, and what comes of it at an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The certificates of a leader, or that there is none.
    Leader,
    /// A statement about a JobSet.
    Group,
    Answer,
    /// A sign of life.
    Beat,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Leader, Self::Group, Self::Answer, Self::Beat];

    /// The name, for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Group => "group",
            Self::Answer => "answer",
            Self::Beat => "beat",
        }
    }
}

/// Messages of a relay to the controller: what its agents do, in order. A relay that is dialled first tells of all its agents. One
/// message has at most [`EVENTS_IN_FRAME`] events; more are an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FromRelay(pub Vec<AgentEvent>);

impl<'de> Deserialize<'de> for FromRelay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(EventsVisitor).map(Self)
    }
}

/// Reads events up to their limit. A stolen relay has the leader keep no more of them at once.
struct EventsVisitor;

impl<'de> Visitor<'de> for EventsVisitor {
    type Value = Vec<AgentEvent>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {EVENTS_IN_FRAME} events of agents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut events = Vec::new();
        while let Some(event) = sequence.next_element()? {
            if events.len() == EVENTS_IN_FRAME {
                return Err(A::Error::invalid_length(EVENTS_IN_FRAME + 1, &self));
            }
            events.push(event);
        }
        Ok(events)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEvent {
    /// Number of the agent's connection. A relay uses each number once.
    pub agent: u64,
    pub event: AgentEventKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentEventKind {
    /// The agent has connected, and the relay has checked its token.
    Hello {
        /// The Pod, by its token.
        pod: PodRef,
        /// Name of the JobSet, as the agent says.
        jobset: String,
        /// The number that the answer has to name.
        nonce: Nonce,
        report: Option<Report>,
    },
    Report(Report),
    /// The connection has ended.
    Gone,
}

/// A Pod, as its ServiceAccount token names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    /// UID of the Pod. A Pod that was created again under the same name has another UID.
    pub uid: String,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn nonces_are_random() {
        let random = || Nonce::random(rustls::crypto::ring::default_provider().secure_random).unwrap();
        let (one, other) = (random(), random());
        assert_ne!(one, other);
        assert_eq!(one.to_string().len(), 32);
    }

    /// A relay or a controller of the release before reads what this one writes, and this one what that one writes.
    #[test]
    fn report_without_a_start_is_that_of_the_release_before() {
        let report = Report { epoch: 2, exit: None, started: None, progress: None };
        assert_eq!(serde_json::to_string(&report).unwrap(), r#"{"epoch":2}"#);
        assert_eq!(serde_json::from_str::<Report>(r#"{"epoch":2}"#).unwrap(), report);
        let started = Report { started: Some("2026-01-01T00:00:00.000001Z".to_owned()), ..report.clone() };
        let text = serde_json::to_string(&started).unwrap();
        assert_eq!(text, r#"{"epoch":2,"started":"2026-01-01T00:00:00.000001Z"}"#);
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), started);
        let progressed = Report { progress: Some("{}".to_owned()), ..report.clone() };
        let text = serde_json::to_string(&progressed).unwrap();
        assert_eq!(text, r#"{"epoch":2,"progress":"{}"}"#);
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), progressed);
        // The release before had no such field, and this one ignores those that it does not know.
        assert_eq!(serde_json::from_str::<Report>(r#"{"epoch":2,"later":"x"}"#).unwrap(), report);
    }

    #[rstest]
    #[case::as_many_as_a_relay_sends(EVENTS_IN_FRAME, true)]
    #[case::one_more(EVENTS_IN_FRAME + 1, false)]
    #[case::as_many_as_a_frame_has_room_for(28_000, false)]
    fn frame_of_a_relay_is_bounded_in_events(#[case] events: usize, #[case] is_read: bool) {
        let frame =
            FromRelay((0..events as u64).map(|agent| AgentEvent { agent, event: AgentEventKind::Gone }).collect());
        let text = serde_json::to_string(&frame).unwrap();
        let read = serde_json::from_str::<FromRelay>(&text).map(|read| assert_eq!(read, frame));
        assert_eq!(read.is_ok(), is_read);
        assert!(read.err().is_none_or(|error| error.to_string().contains("at most 512 events")));
    }

    #[rstest]
    #[case::none(None, None, None, true)]
    #[case::longest(Some(EXIT_BYTES), Some(STARTED_BYTES), Some(PROGRESS_BYTES), true)]
    #[case::long_exit(Some(EXIT_BYTES + 1), None, None, false)]
    #[case::long_start(None, Some(STARTED_BYTES + 1), None, false)]
    #[case::long_progress(None, None, Some(PROGRESS_BYTES + 1), false)]
    fn report_with_long_texts_is_not_permitted(
        #[case] exit: Option<usize>,
        #[case] started: Option<usize>,
        #[case] progress: Option<usize>,
        #[case] is_permitted: bool,
    ) {
        let text = |length: Option<usize>| length.map(|length| "x".repeat(length));
        let report = Report { epoch: 1, exit: text(exit), started: text(started), progress: text(progress) };
        assert_eq!(report.is_permitted(), is_permitted);
    }

    #[test]
    fn state_without_pause_is_that_of_the_release_before() {
        let text = r#"{"uid":"u","synced":1,"deprecated":0,"failed":false,"bypass":false,"pods":2}"#;
        let state: GroupState = serde_json::from_str(text).unwrap();
        assert_eq!((state.pause, serde_json::to_string(&state).unwrap().as_str()), (None, text));
        let text = serde_json::to_string(&GroupState { pause: Some(600), ..state }).unwrap();
        assert!(text.ends_with(r#""pods":2,"pause":600}"#), "{text}");
    }

    /// An agent of the release before reads `{"time":7,...}` as a sign of life, and ignores what it does not know.
    #[test]
    fn sign_of_life_tells_both_releases_apart() {
        let beat = Statement::beat(7);
        let text = serde_json::to_string(&beat).unwrap();
        assert_eq!(text, r#"{"time":7,"repeats":true}"#);
        assert_eq!(serde_json::from_str::<Statement>(&text).unwrap(), beat);
        let before: Statement = serde_json::from_str(r#"{"time":7}"#).unwrap();
        assert_eq!(before, Statement { repeats: false, ..beat });
    }
}
