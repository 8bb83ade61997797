//! The limits of connections, and of what one may send.

use std::time::Duration;

use jobset_program::server::{self, places::Size};

/// How long a connection has for its TLS handshake, and then for the hello: as long as an agent waits for a relay.
pub const HANDSHAKE_TIME: Duration = jobset_stream::HANDSHAKE_TIME;
/// Connections of a port that have not shown who they are. More wait in the backlog of the port: an agent needs milliseconds, so
/// those that come back at once are served in turn.
pub const UNAUTHENTICATED: usize = 4096;
/// Age at which a connection that has not said hello makes room for one that waits. An agent's is as old only where thousands more
/// have connected before it: if those made room, all of them would begin again.
pub const UNAUTHENTICATED_AGE: Duration = Duration::from_secs(5);
/// Connections of one IPv4 address or IPv6 /64 that have not said hello. A node has fewer Pods, so more of one are no agents:
/// they are closed at once, or take the place of its oldest.
pub const UNAUTHENTICATED_OF_ADDRESS: usize = UNAUTHENTICATED / 4;
/// Connections of one Pod. One more takes the place of the oldest: an agent that has lost its connection opens another one.
pub const CONNECTIONS_PER_POD: usize = 2;
/// Connections of controllers. One more takes the place of that which has been silent longest.
pub const CONTROLLERS: usize = 8;
/// Hellos of a Pod in a second.
pub const HELLO_RATE: f64 = 1.0;
/// Hellos of a Pod at once.
pub const HELLO_BURST: f64 = 10.0;
/// Messages of an agent in a second.
pub const MESSAGE_RATE: f64 = 10.0;
/// Messages of an agent at once.
pub const MESSAGE_BURST: f64 = 20.0;
/// How long a frame may take from its first byte to its last.
pub const FRAME_TIME: Duration = Duration::from_secs(20);
/// Messages that wait for an agent.
pub const AGENT_QUEUE: usize = 64;
/// Events that wait for a controller, beside those of its first snapshot.
pub const CONTROLLER_QUEUE: usize = 64 << 10;
/// Bytes of these events.
pub const CONTROLLER_QUEUE_BYTES: usize = 16 << 20;
/// Bytes of the texts of reports that are kept for snapshots, of all agents: how workers ended, and how far they came. The annotations
/// of the Pod have them, too.
pub const KEPT_TEXTS: usize = 16 << 20;
/// Longest name of a JobSet.
pub const NAME_BYTES: usize = 253;
pub const NONCE_BYTES: usize = 64;
/// Agents that wait for the keys of tokens to be read again. One IPv4 address or IPv6 /64 has a quarter of the places at most; where all
/// are taken, the oldest of that which holds most makes room.
pub const KEY_QUEUE: usize = 1024;
/// Token reviews in a second, and at once.
pub const REVIEW_RATE: f64 = 10.0;
/// Token reviews that wait. Their places are shared out in the same way.
pub const REVIEW_QUEUE: usize = 64;
/// How long a token review may take, with its wait.
pub const REVIEW_TIME: Duration = Duration::from_secs(10);

/// The limits of connections until they have shown who they are. Then they leave their place, and the hub counts them.
pub(crate) fn connections() -> server::Limits {
    let (total, of_network) = (UNAUTHENTICATED, UNAUTHENTICATED_OF_ADDRESS);
    let places = Size { total, of_network, age_for_own: UNAUTHENTICATED_AGE, age_for_others: UNAUTHENTICATED_AGE };
    server::Limits { places, handshake: HANDSHAKE_TIME, life: Duration::MAX }
}

/// Why a connection is rejected or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// There are as many agents as the relay serves.
    Connections,
    /// There are as many agents of its namespace as the relay serves.
    Namespace,
    /// A newer connection of its Pod took its place.
    Pod,
    /// The agents of its Pod connect too often.
    Hellos,
    /// Its address has too many connections without a hello, or a newer one took its place before its hello.
    Unauthenticated,
    /// The TLS handshake or the hello took too long.
    Time,
    /// A frame is too long, or never ends.
    Frame,
    /// It sent what is no message of an agent, or not at this point.
    Protocol,
    /// It sent too many messages.
    Messages,
    /// It does not read what is sent to it.
    Queue,
    /// A newer controller took its place.
    Controllers,
}

impl Limit {
    pub const ALL: [Self; 11] = [
        Self::Connections,
        Self::Namespace,
        Self::Pod,
        Self::Hellos,
        Self::Unauthenticated,
        Self::Time,
        Self::Frame,
        Self::Protocol,
        Self::Messages,
        Self::Queue,
        Self::Controllers,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Namespace => "namespace",
            Self::Pod => "pod",
            Self::Hellos => "hellos",
            Self::Unauthenticated => "unauthenticated",
            Self::Time => "time",
            Self::Frame => "frame",
            Self::Protocol => "protocol",
            Self::Messages => "messages",
            Self::Queue => "queue",
            Self::Controllers => "controllers",
        }
    }
}
