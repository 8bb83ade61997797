//! The agent stream: how agents, relays and the leading controller talk without waiting for the API server.
//!
//! ```text
//! agents --TLS, token--> jobset-relay (stateless) <--dials, mTLS-- leading controller --status--> API server
//! ```
//!
//! The annotation of a Pod and the status of a JobSet stay the record. The stream carries the same reports and the same epochs
//! earlier:
//!
//! - A report over the stream is worth what the annotation is worth. The larger epoch counts.
//! - The controller sends epochs only after the status write that holds them has succeeded.
//! - The leader signs what it says ([`signature`]), so that a relay can delay a message, but not forge one.
//! - An agent that has just started ignores every epoch until a signed answer names the nonce of its hello. The answer comes from
//!   a consistent read of the JobSet that began after the hello had arrived.
//!
//! [`message`] has the messages, [`frame`] puts them on a connection, [`rate`] bounds their number, and [`tls`] reads
//! certificates and sets up TLS.

pub mod frame;
pub mod message;
pub mod rate;
pub mod signature;
pub mod tls;

/// Largest frame in bytes between an agent and a relay. A token has some 1,500 bytes.
pub const AGENT_FRAME: usize = 16 << 10;
/// Largest frame in bytes between a relay and the controller.
pub const CONTROLLER_FRAME: usize = 4 << 20;
/// Most events in one frame of a relay.
pub const EVENTS_IN_FRAME: usize = 512;
/// Most agents of one relay. The leader answers no more of them, so that a stolen relay does not fill its memory.
pub const AGENTS_OF_A_RELAY: usize = 100_000;
/// Longest text, in bytes, by which an agent says how its worker ended.
pub const EXIT_BYTES: usize = 8 << 10;
/// Longest text, in bytes, by which an agent says when it started.
pub const STARTED_BYTES: usize = 64;
/// Time between two signs of life of the leader to a relay, and between two statements about a JobSet to its agents.
pub const BEAT: std::time::Duration = std::time::Duration::from_secs(3);
/// Time without a statement about its JobSet after which an agent no longer relies on the stream.
pub const SILENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// How long a connection of an agent has for its TLS handshake, and then for its hello. Where thousands connect at once, each waits
/// for its turn, and a relay that is stopped altogether is restarted within this time.
pub const HANDSHAKE_TIME: std::time::Duration = std::time::Duration::from_secs(30);

/// The DNS name in the certificate of the leading controller, for agents that know the host of the relays' Service:
/// `SERVICE.NAMESPACE.svc`, also with the domain of the cluster behind it.
pub fn leader_name(relay_host: &str) -> Option<String> {
    let (_, domain) = relay_host.split_once('.')?;
    let end = domain.find(".svc.").map_or(domain.len(), |at| at + ".svc".len());
    Some(format!("{LEADER}.{}", &domain[..end]))
}

/// First label of the DNS name in the certificate of the leading controller.
pub const LEADER: &str = "jobset-controller";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_name_is_in_the_namespace_of_the_relays() {
        assert_eq!(leader_name("jobset-relay.ns.svc").as_deref(), Some("jobset-controller.ns.svc"));
        assert_eq!(leader_name("jobset-relay.ns.svc.cluster.local").as_deref(), Some("jobset-controller.ns.svc"));
        assert_eq!(leader_name("localhost"), None);
    }
}
