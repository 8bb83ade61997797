//! The messages of the agent stream.

use std::fmt;

use rustls::crypto::SecureRandom;
use serde::{Deserialize, Serialize};

use crate::signature::Signed;
use crate::{EXIT_BYTES, STARTED_BYTES};

/// A random number that an agent chooses for each connection. A signed answer that names it was made for this connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Nonce(String);

impl Nonce {
    /// 128 random bits.
    ///
    /// # Errors
    /// The system has no random numbers.
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
}

/// A report: an epoch, and how the worker of the epoch before ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
}

impl Report {
    /// Whether its texts are short enough.
    pub fn is_permitted(&self) -> bool {
        let is_within = |text: &Option<String>, most: usize| text.as_ref().is_none_or(|text| text.len() <= most);
        is_within(&self.exit, EXIT_BYTES) && is_within(&self.started, STARTED_BYTES)
    }
}

/// Messages of an agent to a relay. [`Hello`](FromAgent::Hello) is the first and comes once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    /// Who the agent is.
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
    /// A [`Statement`].
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
    /// What the message is.
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
    /// The answer to a hello.
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

/// Messages of a relay to the controller: what its agents do, in order. A relay that is dialled first tells of all its agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromRelay(pub Vec<AgentEvent>);

/// What an agent does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEvent {
    /// Number of the agent's connection. A relay uses each number once.
    pub agent: u64,
    /// What it does.
    pub event: AgentEventKind,
}

/// What an agent does.
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
        /// Its last report.
        report: Option<Report>,
    },
    /// The agent reports.
    Report(Report),
    /// The connection has ended.
    Gone,
}

/// A Pod, as its ServiceAccount token names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
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
        let report = Report { epoch: 2, exit: None, started: None };
        assert_eq!(serde_json::to_string(&report).unwrap(), r#"{"epoch":2}"#);
        assert_eq!(serde_json::from_str::<Report>(r#"{"epoch":2}"#).unwrap(), report);
        let started = Report { started: Some("2026-01-01T00:00:00.000001Z".to_owned()), ..report.clone() };
        let text = serde_json::to_string(&started).unwrap();
        assert_eq!(text, r#"{"epoch":2,"started":"2026-01-01T00:00:00.000001Z"}"#);
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), started);
        // The release before had no such field, and this one ignores those that it does not know.
        assert_eq!(serde_json::from_str::<Report>(r#"{"epoch":2,"later":"x"}"#).unwrap(), report);
    }

    #[rstest]
    #[case::none(None, None, true)]
    #[case::longest(Some(EXIT_BYTES), Some(STARTED_BYTES), true)]
    #[case::long_exit(Some(EXIT_BYTES + 1), None, false)]
    #[case::long_start(None, Some(STARTED_BYTES + 1), false)]
    fn report_with_long_texts_is_not_permitted(
        #[case] exit: Option<usize>,
        #[case] started: Option<usize>,
        #[case] is_permitted: bool,
    ) {
        let text = |length: Option<usize>| length.map(|length| "x".repeat(length));
        assert_eq!(Report { epoch: 1, exit: text(exit), started: text(started) }.is_permitted(), is_permitted);
    }

    #[test]
    fn sign_of_life_is_short() {
        let beat = Statement { time: 7, nonce: None, group: None };
        assert_eq!(serde_json::to_string(&beat).unwrap(), r#"{"time":7}"#);
    }
}
