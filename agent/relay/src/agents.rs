//! Connections of agents.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jobset_program::log_limit;
use jobset_program::server::{Connection, Secured, Service, Unserved};
use jobset_stream::AGENT_FRAME;
use jobset_stream::frame::{Reader, Writer};
use jobset_stream::message::{FromAgent, Nonce, Report};
use jobset_stream::rate::TokenBucket;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::codec::LengthDelimitedCodecError;
use tokio_util::either::Either;
use tracing::{debug, info};

use crate::auth::authenticator::now;
use crate::counted::{ByteCounters, Counted, WithinRecord};
use crate::hub::{self, Bell, Turn};
use crate::limits::{FRAME_TIME, HANDSHAKE_TIME, Limit, MESSAGE_BURST, MESSAGE_RATE, NAME_BYTES, NONCE_BYTES};
use crate::metrics::Direction;
use crate::shared::Shared;
use crate::tls::CurrentTls;

/// Messages that are written at once.
const BATCH: usize = 16;
/// Time over which connections are closed when the relay shuts down, so that agents do not all connect elsewhere at once.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);

type Stream = Secured<Counted<TcpStream>>;
type AgentReader = Reader<ReadHalf<Stream>>;
type AgentWriter = Writer<WriteHalf<Stream>>;

struct Introduction {
    reader: AgentReader,
    writer: AgentWriter,
    within_record: WithinRecord,
    token: String,
    jobset: String,
    nonce: Nonce,
    report: Option<Report>,
    fell_back: bool,
}

/// Why a connection ends early.
enum Closed {
    Limit(Limit),
    /// The agent has ended it, or the network.
    Gone(io::Error),
}

impl Closed {
    /// Tells apart what the agent sent from what the network did.
    fn of(error: io::Error) -> Self {
        if error.kind() != io::ErrorKind::InvalidData {
            return Self::Gone(error);
        }
        let is_too_long = matches!(error.get_ref(), Some(inner) if inner.is::<LengthDelimitedCodecError>());
        Self::Limit(if is_too_long { Limit::Frame } else { Limit::Protocol })
    }
}

/// The port for agents.
pub(crate) struct Agents {
    tls: CurrentTls,
    counters: ByteCounters,
    shared: Arc<Shared>,
}

impl Agents {
    pub(crate) fn new(tls: CurrentTls, shared: Arc<Shared>) -> Self {
        Self { tls, counters: shared.metrics.bytes(Direction::FromAgent, Direction::ToAgent), shared }
    }
}

impl Service for Agents {
    type Stream = Counted<TcpStream>;

    fn wrap(&self, stream: TcpStream) -> Counted<TcpStream> {
        Counted::new(stream, self.counters.clone())
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        Some(self.tls.acceptor())
    }

    async fn serve(self: Arc<Self>, Connection { stream, peer, place }: Connection<Counted<TcpStream>>) {
        let shared = &self.shared;
        // Each step has a future of its own on the heap, which is freed with it: what stays is small.
        let introduced = tokio::select! {
            introduced = timeout(HANDSHAKE_TIME, Box::pin(introduce(stream))) => {
                introduced.unwrap_or(Err(Closed::Limit(Limit::Time)))
            }
            _ = place.lost() => Err(Closed::Limit(Limit::Unauthenticated)),
            () = shared.stop.cancelled() => return,
        };
        drop(place);
        let closed = match introduced {
            Ok(introduction) => match Box::pin(admit(introduction, peer, shared)).await {
                Ok((mut member, reader, writer, life)) => member.stay(reader, writer, life).await,
                Err(closed) => closed,
            },
            Err(closed) => Some(closed),
        };
        match closed {
            Some(Closed::Limit(limit)) => note_refused(peer, limit, shared),
            Some(Closed::Gone(error)) => debug!(%peer, %error, "the connection of an agent ended"),
            None => debug!(%peer, "the connection of an agent ended"),
        }
    }

    fn unserved(&self, peer: SocketAddr, why: &Unserved) {
        match why {
            Unserved::Rejected | Unserved::Evicted => note_refused(peer, Limit::Unauthenticated, &self.shared),
            Unserved::Late => note_refused(peer, Limit::Time, &self.shared),
            Unserved::Broken(error) => debug!(%peer, %error, "the connection of an agent ended"),
        }
    }
}

fn note_refused(peer: SocketAddr, limit: Limit, shared: &Shared) {
    shared.metrics.refused(limit);
    if let Some(suppressed) = log_limit::permit(&peer.ip().to_string()) {
        info!(%peer, limit = limit.label(), suppressed, "closed the connection of an agent");
    }
}

async fn introduce(stream: Stream) -> Result<Introduction, Closed> {
    let within_record = match &stream {
        Either::Left(tls) => tls.get_ref().0.within_record(),
        Either::Right(plain) => plain.within_record(),
    };
    let (read, write) = tokio::io::split(stream);
    let (mut reader, writer) = (Reader::new(read, AGENT_FRAME), Writer::new(write, AGENT_FRAME));
    let hello = reader.next().await.map_err(Closed::of)?;
    let Some(hello) = hello else { return Err(Closed::Gone(io::ErrorKind::UnexpectedEof.into())) };
    let FromAgent::Hello { token, jobset, nonce, report, fell_back } = hello else {
        return Err(Closed::Limit(Limit::Protocol));
    };
    let is_short = jobset.len() <= NAME_BYTES && nonce.to_string().len() <= NONCE_BYTES;
    if !is_short || !report.as_ref().is_none_or(Report::is_permitted) {
        return Err(Closed::Limit(Limit::Protocol));
    }
    Ok(Introduction { reader, writer, within_record, token, jobset, nonce, report, fell_back })
}

/// Finds out who the agent is, and registers it.
async fn admit(
    introduction: Introduction,
    peer: SocketAddr,
    shared: &Arc<Shared>,
) -> Result<(Member, AgentReader, AgentWriter, Duration), Option<Closed>> {
    let Introduction { reader, writer, within_record, token, jobset, nonce, report, fell_back } = introduction;
    let metrics = &shared.metrics;
    metrics.message(Direction::FromAgent, "hello");
    let identity = shared.authenticator.authenticate(&token, peer.ip()).await.map_err(|rejection| {
        metrics.rejected(rejection);
        if let Some(suppressed) = log_limit::permit(&peer.ip().to_string()) {
            info!(%peer, reason = rejection.label(), suppressed, "rejected the token of an agent");
        }
        None
    })?;
    if !shared.permits_hello(&identity.pod.uid) {
        return Err(Some(Closed::Limit(Limit::Hellos)));
    }
    let life = life(identity.expires.saturating_sub(now()), fastrand::f64());
    let joined = shared.hub().join(hub::Hello { pod: identity.pod, jobset, nonce, report });
    let (number, bell) = joined.map_err(|limit| Some(Closed::Limit(limit)))?;
    if fell_back {
        metrics.fallbacks.inc();
    }
    Ok((Member { number, bell, within_record, shared: Arc::clone(shared) }, reader, writer, life))
}

/// How long a connection lasts whose token is valid for so many seconds: until some time in the last tenth of it, so that agents
/// that have connected at once do not connect again at once.
fn life(seconds: i64, chance: f64) -> Duration {
    let valid = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    valid.mul_f64(0.9 + chance.clamp(0.0, 1.0) / 10.0)
}

/// An agent that is registered while this exists.
struct Member {
    number: u64,
    bell: Bell,
    within_record: WithinRecord,
    shared: Arc<Shared>,
}

impl Member {
    /// Passes messages on until the connection ends.
    async fn stay(&mut self, mut reader: AgentReader, mut writer: AgentWriter, life: Duration) -> Option<Closed> {
        let drained = async {
            self.shared.stop.cancelled().await;
            sleep(DRAIN.mul_f64(fastrand::f64())).await;
        };
        tokio::select! {
            ended = self.read(&mut reader) => ended,
            ended = self.write(&mut writer) => Some(ended),
            () = sleep(life) => None,
            () = drained => None,
        }
    }

    async fn read(&self, reader: &mut AgentReader) -> Option<Closed> {
        let mut rate = TokenBucket::full(MESSAGE_BURST, Instant::now());
        let mut is_waiting = false;
        loop {
            let Ok(next) = timeout(FRAME_TIME, reader.next()).await else {
                // A frame whose record is not whole has no bytes that the reader could know of.
                let is_within = reader.is_within_frame() || self.within_record.get();
                if is_waiting && is_within {
                    return Some(Closed::Limit(Limit::Frame));
                }
                is_waiting = is_within;
                continue;
            };
            is_waiting = false;
            let message: FromAgent = match next {
                Ok(Some(message)) => message,
                Ok(None) => return None,
                Err(error) => return Some(Closed::of(error)),
            };
            let kind = message.kind();
            let Some(event) = message.into_event() else { return Some(Closed::Limit(Limit::Protocol)) };
            if !rate.take(MESSAGE_RATE, MESSAGE_BURST, Instant::now()) {
                return Some(Closed::Limit(Limit::Messages));
            }
            self.shared.metrics.message(Direction::FromAgent, kind);
            self.shared.hub().pass(self.number, event);
        }
    }

    async fn write(&self, writer: &mut AgentWriter) -> Closed {
        loop {
            let turn = self.shared.hub().agent_turn(self.number, BATCH);
            let messages = match turn {
                Turn::Send(messages) => messages,
                Turn::Wait => {
                    self.bell.notified().await;
                    continue;
                }
                Turn::End(limit) => return Closed::Limit(limit),
            };
            let mut sent = pin!(async {
                for outgoing in messages {
                    self.shared.metrics.message(Direction::ToAgent, outgoing.kind.label());
                    writer.feed_encoded(outgoing.message).await?;
                }
                writer.flush().await
            });
            loop {
                tokio::select! {
                    sent = &mut sent => match sent {
                        Ok(()) => break,
                        Err(error) => return Closed::Gone(error),
                    },
                    // The hub has more, or ends a connection whose agent does not read.
                    () = self.bell.notified() => {
                        let ended = self.shared.hub().ended(self.number);
                        if let Some(limit) = ended {
                            return Closed::Limit(limit);
                        }
                    }
                }
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.hub().leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_ends_in_last_tenth_of_its_token() {
        assert_eq!(life(1000, 0.0).as_secs(), 900);
        assert_eq!(life(1000, 1.0).as_secs(), 1000);
        assert_eq!(life(-5, 1.0), Duration::ZERO);
    }
}
