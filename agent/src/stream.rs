//! The client of the agent stream: one TLS connection to a relay at a time, for as long as the agent runs.
//!
//! The files with token and CA are read for each connection. A connection that fails, ends, or on which the leader is silent, is
//! followed by another after a wait with jitter: thousands of agents may lose theirs in the same second. A connection shows who
//! the relay is when it begins, so it ends when the file with the CA changes, and within an hour.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jobset_protocol::agent::{RELAY_CA, RELAY_TOKEN};
use jobset_stream::frame::{Reader, Writer};
use jobset_stream::message::{FromAgent, Nonce, Report, ToAgent};
use jobset_stream::rate::TokenBucket;
use jobset_stream::signature::{LeaderCertificate, SignatureError};
use jobset_stream::tls::{Authorities, TlsError, provider};
use jobset_stream::{AGENT_FRAME, SILENCE};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval, sleep_until, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use crate::args::Relay;
use crate::backoff::exponential;
use crate::channels::{CONNECTING_TIMEOUT, ChannelInput, STREAM_TIMEOUT};
use crate::group::GroupFacts;
use crate::liveness::Liveness;
use crate::relay_address::full_address;

const CONNECT_TIMEOUT: Duration = SILENCE;
/// Time limit for its handshake, as relays have it. Thousands of agents that connect at once are served in turn. Those that give
/// up begin again behind all others, so an agent keeps its turn, and watches its JobSet meanwhile if that takes long.
const HANDSHAKE_TIMEOUT: Duration = jobset_stream::HANDSHAKE_TIME;
/// Longest life of a connection. The shortest is three quarters of it, so that agents that have connected at once do not connect
/// again at once.
const LONGEST_LIFE: Duration = Duration::from_hours(1);
/// How often the file with the CA is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// Messages of a relay in a second. A leader says far less about one JobSet. Each costs the node of the worker the check of a signature,
/// and a relay can repeat what was signed once.
const MESSAGE_RATE: f64 = 20.0;
/// Messages of a relay at once, as those that have waited for an agent that was stopped.
const MESSAGE_BURST: f64 = 200.0;
/// Longest first wait before another connection, and longest wait of all. The wait is drawn from zero to that.
const RECONNECT_FIRST: Duration = Duration::from_secs(1);
const RECONNECT_CAP: Duration = Duration::from_mins(1);

/// How far the present connection has come, for as long as the leader has not answered on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// A connection is being made.
    #[default]
    Connecting,
    /// The last connection has failed or ended.
    Unconnected,
    /// Something listens there: a relay that serves others first, or one that stands still.
    Connected,
    /// A relay has shown who it is. The leader answers thousands of agents that connect at once in turn.
    Secured,
    /// A relay has answered the hello: it has no leader behind it.
    Leaderless,
}

impl Progress {
    /// Until when an agent that waits since then waits for the stream, which has come so far at this time. Each step shows that the
    /// relay is at work, and the next one may take as long as a relay may be silent.
    pub(crate) fn deadline(self, since: Instant, at: Instant) -> Instant {
        match self {
            Self::Connecting => since + CONNECTING_TIMEOUT,
            Self::Unconnected => since + STREAM_TIMEOUT,
            Self::Connected | Self::Secured => at.max(since) + SILENCE,
            // It answers a hello so, and it says so when the leader is gone.
            Self::Leaderless => at.max(since),
        }
    }
}

/// What a relay has to know of the agent whenever it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    pub report: Option<Report>,
    /// Whether the agent relies on the API server because an earlier connection has ended.
    pub fell_back: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSetName {
    pub name: String,
    /// Its UID. Statements about others do not count.
    pub uid: String,
}

/// Why a connection has ended.
#[derive(Debug, Error)]
pub enum StreamError {
    #[error("cannot read the token in {path}")]
    Token { path: PathBuf, source: io::Error },
    /// The ConfigMap with the CA does not exist before the controller has created it.
    #[error(transparent)]
    Authorities(#[from] TlsError),
    /// The connection, the handshake or a frame has failed.
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error("no connection within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("the relay has closed the connection")]
    Closed,
    #[error("the relay has passed on nothing about the JobSet for {} s", SILENCE.as_secs())]
    Silence,
    #[error("what the relay has sent is not from the leading controller")]
    Signature(#[from] SignatureError),
    /// The relay has sent a statement before the certificate of the leader.
    #[error("the relay has not said who leads")]
    NoLeader,
    #[error("the system has no random numbers")]
    Random,
    #[error("the relay sends more than {MESSAGE_RATE} messages a second")]
    Flood,
    #[error("the CA of the relays has been replaced")]
    AuthoritiesReplaced,
    #[error("the connection is old")]
    Old,
}

impl StreamError {
    /// Whether the agent has ended the connection although nothing is wrong. The next one follows at once.
    fn is_planned(&self) -> bool {
        matches!(self, Self::AuthoritiesReplaced | Self::Old)
    }
}

/// Keeps a connection to a relay. Sends what comes over it, and [`ChannelInput::Disconnected`] when it has ended; ends with the
/// receiver of `inputs`. `present` has what to tell the relay: at the beginning, and whenever it changes. `group` takes what
/// statements say of the group.
pub async fn run(
    relay: Relay,
    jobset: JobSetName,
    mut present: watch::Receiver<Present>,
    inputs: mpsc::Sender<ChannelInput>,
    progress: watch::Sender<Progress>,
    group: Arc<GroupFacts>,
) {
    let mut failures = 0;
    loop {
        progress.send_replace(Progress::Connecting);
        let mut was_live = false;
        let ended = converse(&relay, &jobset, &mut present, &inputs, &progress, &group, &mut was_live).await;
        progress.send_replace(Progress::Unconnected);
        let Err(error) = ended else { return };
        if inputs.send(ChannelInput::Disconnected).await.is_err() {
            return;
        }
        failures = if was_live { 0 } else { failures + 1 };
        let cause = chain(&error);
        let relay = &relay.address;
        if was_live {
            tracing::info!(relay, cause, "the stream has ended; relying on the API server until it is back");
        } else {
            tracing::debug!(relay, cause, "no stream");
        }
        if !error.is_planned() {
            let longest = exponential(failures, RECONNECT_FIRST, RECONNECT_CAP);
            tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
        }
    }
}

/// One connection, from its beginning to its end. Returns `Ok` when the agent ends.
async fn converse(
    relay: &Relay,
    jobset: &JobSetName,
    present: &mut watch::Receiver<Present>,
    inputs: &mpsc::Sender<ChannelInput>,
    progress: &watch::Sender<Progress>,
    group: &GroupFacts,
    was_live: &mut bool,
) -> Result<(), StreamError> {
    let token_path = relay.folder.join(RELAY_TOKEN);
    let token =
        std::fs::read_to_string(&token_path).map_err(|source| StreamError::Token { path: token_path, source })?;
    let ca = relay.folder.join(RELAY_CA);
    // Before the CA that counts: one that comes in between is noticed.
    let ca_pem = std::fs::read(&ca).ok();
    let authorities = Authorities::read(&ca)?;
    let connect = timeout(CONNECT_TIMEOUT, TcpStream::connect(full_address(&relay.address)));
    let tcp = connect.await.map_err(|_| StreamError::Timeout(CONNECT_TIMEOUT))??;
    progress.send_replace(Progress::Connected);
    tcp.set_nodelay(true)?;
    let connector = TlsConnector::from(Arc::new(authorities.agent()?));
    let nonce = Nonce::random(provider().secure_random).map_err(|_| StreamError::Random)?;
    let handshake = timeout(HANDSHAKE_TIMEOUT, connector.connect(relay.name.clone(), tcp));
    let connection = handshake.await.map_err(|_| StreamError::Timeout(HANDSHAKE_TIMEOUT))??;
    progress.send_replace(Progress::Secured);
    let mut liveness = Liveness::new(jobset.uid.clone(), nonce.clone(), Instant::now().into_std(), SILENCE);
    let (source, sink) = tokio::io::split(connection);
    let (mut reader, mut writer) = (Reader::new(source, AGENT_FRAME), Writer::new(sink, AGENT_FRAME));
    let Present { report, fell_back } = present.borrow_and_update().clone();
    let token = token.trim().to_owned();
    let hello = FromAgent::Hello { token, jobset: jobset.name.clone(), nonce, report, fell_back };
    writer.send(&hello).await?;
    let mut leader = None;
    let end = Instant::now() + LONGEST_LIFE.mul_f64(1.0 - fastrand::f64() / 4.0);
    let mut looks = interval(LOOK);
    let mut rate = TokenBucket::full(MESSAGE_BURST, Instant::now());
    loop {
        let message = tokio::select! {
            message = timeout_at(liveness.deadline().into(), reader.next::<ToAgent>()) => message,
            changed = present.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let report = present.borrow_and_update().report.clone();
                if let Some(report) = report {
                    writer.send(&FromAgent::Report(report)).await?;
                }
                continue;
            }
            _ = looks.tick() => {
                if std::fs::read(&ca).ok() != ca_pem {
                    return Err(StreamError::AuthoritiesReplaced);
                }
                continue;
            }
            () = sleep_until(end) => return Err(StreamError::Old),
        };
        let message = message.map_err(|_| StreamError::Silence)??.ok_or(StreamError::Closed)?;
        if !rate.take(MESSAGE_RATE, MESSAGE_BURST, Instant::now()) {
            return Err(StreamError::Flood);
        }
        match message {
            ToAgent::Leader(chain) => {
                let known = LeaderCertificate::verify(&chain, &authorities, &relay.leader);
                // The CA may have been replaced since this connection began.
                let current = known.or_else(|_| -> Result<_, StreamError> {
                    Ok(LeaderCertificate::verify(&chain, &Authorities::read(&ca)?, &relay.leader)?)
                });
                leader = Some(current?);
            }
            ToAgent::NoLeader => {
                progress.send_replace(Progress::Leaderless);
            }
            ToAgent::Signed(signed) => {
                let leader = leader.as_ref().ok_or(StreamError::NoLeader)?;
                let Some(input) = liveness.hear(leader.open(&signed)?, Instant::now().into_std()) else { continue };
                group.note(liveness.pods, liveness.longest_pause);
                *was_live |= matches!(input, ChannelInput::Statement { is_answer: true, .. });
                if inputs.send(input).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

fn chain(error: &StreamError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
