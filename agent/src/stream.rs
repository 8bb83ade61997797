//! The client of the agent stream: one TLS connection to a relay at a time, for as long as the agent runs.
//!
//! The files with token and CA are read for each connection. A connection that fails, ends, or on which the leader is silent, is
//! followed by another after a wait with jitter: thousands of agents may lose theirs in the same second.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jobset_protocol::agent::{RELAY_CA, RELAY_TOKEN};
use jobset_stream::frame::{Reader, Writer};
use jobset_stream::message::{FromAgent, GroupState, Nonce, Report, Statement, ToAgent};
use jobset_stream::signature::{LeaderCertificate, SignatureError};
use jobset_stream::tls::{Authorities, TlsError, provider};
use jobset_stream::{AGENT_FRAME, SILENCE};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::args::Relay;
use crate::backoff::exponential;
use crate::channels::ChannelInput;
use crate::decide::JobSetState;
use crate::liveness::Liveness;

/// Time limit for a connection and its handshake: as long as a relay may be silent later.
const CONNECT_TIMEOUT: Duration = SILENCE;
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
    /// A relay is there. Thousands of agents that connect at once are served in turn.
    Connected,
    /// A relay has answered the hello: it has no leader behind it.
    Leaderless,
}

/// What a relay has to know of the agent whenever it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// The newest report.
    pub report: Option<Report>,
    /// Whether the agent relies on the API server because an earlier connection has ended.
    pub fell_back: bool,
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
    #[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
    Timeout,
    #[error("the relay has closed the connection")]
    Closed,
    #[error("the leading controller has given no sign of life for {} s", SILENCE.as_secs())]
    Silence,
    #[error("what the relay has sent is not from the leading controller")]
    Signature(#[from] SignatureError),
    /// The relay has sent a statement before the certificate of the leader.
    #[error("the relay has not said who leads")]
    NoLeader,
    #[error("the system has no random numbers")]
    Random,
}

/// Keeps a connection to a relay. Sends what comes over it, and [`ChannelInput::Disconnected`] when it has ended; ends with the
/// receiver of `inputs`. `present` has what to tell the relay: at the beginning, and whenever it changes.
pub async fn run(
    relay: Relay,
    jobset: String,
    mut present: watch::Receiver<Present>,
    inputs: mpsc::Sender<ChannelInput>,
    progress: watch::Sender<Progress>,
) {
    let mut failures = 0;
    loop {
        progress.send_replace(Progress::Connecting);
        let mut was_live = false;
        let ended = converse(&relay, &jobset, &mut present, &inputs, &progress, &mut was_live).await;
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
        let longest = exponential(failures, RECONNECT_FIRST, RECONNECT_CAP);
        tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
    }
}

/// One connection, from its beginning to its end. Returns `Ok` when the agent ends.
async fn converse(
    relay: &Relay,
    jobset: &str,
    present: &mut watch::Receiver<Present>,
    inputs: &mpsc::Sender<ChannelInput>,
    progress: &watch::Sender<Progress>,
    was_live: &mut bool,
) -> Result<(), StreamError> {
    let token_path = relay.folder.join(RELAY_TOKEN);
    let token =
        std::fs::read_to_string(&token_path).map_err(|source| StreamError::Token { path: token_path, source })?;
    let ca = relay.folder.join(RELAY_CA);
    let authorities = Authorities::read(&ca)?;
    let until = Instant::now() + CONNECT_TIMEOUT;
    let connect = timeout_at(until, TcpStream::connect(&relay.address));
    let tcp = connect.await.map_err(|_| StreamError::Timeout)??;
    progress.send_replace(Progress::Connected);
    tcp.set_nodelay(true)?;
    let connector = TlsConnector::from(Arc::new(authorities.agent()?));
    let nonce = Nonce::random(provider().secure_random).map_err(|_| StreamError::Random)?;
    let handshake = timeout_at(until, connector.connect(relay.name.clone(), tcp));
    let mut liveness = Liveness::new(Instant::now(), SILENCE);
    let connection = handshake.await.map_err(|_| StreamError::Timeout)??;
    let (source, sink) = tokio::io::split(connection);
    let (mut reader, mut writer) = (Reader::new(source, AGENT_FRAME), Writer::new(sink, AGENT_FRAME));
    let Present { report, fell_back } = present.borrow_and_update().clone();
    let token = token.trim().to_owned();
    let hello = FromAgent::Hello { token, jobset: jobset.to_owned(), nonce: nonce.clone(), report, fell_back };
    writer.send(&hello).await?;
    let mut leader = None;
    loop {
        let message = tokio::select! {
            message = timeout_at(liveness.deadline(), reader.next::<ToAgent>()) => message,
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
        };
        match message.map_err(|_| StreamError::Silence)??.ok_or(StreamError::Closed)? {
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
                let Statement { time, nonce: answered, group } = leader.open(&signed)?;
                let is_answer = answered.as_ref() == Some(&nonce);
                if answered.is_some() && !is_answer {
                    continue;
                }
                liveness.on_statement(time, is_answer, Instant::now());
                *was_live |= is_answer;
                let input = ChannelInput::Statement { is_answer, group: group.map(state) };
                if inputs.send(input).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

fn state(group: GroupState) -> (JobSetState, u32) {
    let GroupState { uid, synced, deprecated, failed, bypass, pods } = group;
    (JobSetState { uid, synced, deprecated, failed, bypass }, pods)
}

/// The error with its sources.
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
