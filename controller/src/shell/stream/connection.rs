//! One connection to a relay.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jobset_engine::{RelayId, RelayMessage, StreamEvent};
use jobset_program::peer;
use jobset_stream::frame::{Reader, Writer, encode};
use jobset_stream::message::{FromRelay, Statement, ToRelay};
use jobset_stream::signature::{SharedSignature, Signed, Signer, encode_chain};
use jobset_stream::tls::{Identity, TlsError};
use jobset_stream::{CONTROLLER_FRAME, SILENCE};
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Time limit for a connection and its handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// Most messages that wait for a relay. The answers of one read are one message.
const MESSAGES: usize = 4096;
/// Signatures that are written together. Other tasks of the thread run after them.
const SIGNATURES: usize = 64;

/// What a connection tells the loop. It comes with its other end when it is ready.
pub(super) type Heard = (StreamEvent, Option<Connection>);

/// A message to a relay, and the signature of its statement if others get that, too.
pub(super) type Outgoing = (RelayMessage, SharedSignature);

/// The end of a connection that the loop has. The connection ends with it.
pub(super) struct Connection {
    messages: mpsc::Sender<Outgoing>,
    _connected: DropGuard,
}

impl Connection {
    /// Whether there was room for the message.
    pub(super) fn send(&self, message: Outgoing) -> bool {
        self.messages.try_send(message).is_ok()
    }
}

/// Why a connection has ended.
#[derive(Debug, Error)]
pub(super) enum ConnectionError {
    #[error("the connection to relay {address} fails")]
    Io {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("relay {0} does not answer")]
    Timeout(String),
    #[error("relay {0} has closed the connection")]
    Closed(String),
    #[error("the CA has been replaced: connecting to relay {0} again")]
    AuthoritiesReplaced(String),
}

#[derive(Clone)]
pub(super) struct Peer {
    pub(super) address: String,
    pub(super) server: ServerName<'static>,
    pub(super) identity: watch::Receiver<Arc<Identity>>,
}

impl Peer {
    /// Connects, calls `connected`, and serves the connection until it ends, or until it is told to stop.
    ///
    /// # Errors
    /// The connection was neither stopped nor ended by the loop.
    pub(super) async fn serve(
        &self,
        relay: RelayId,
        events: &mpsc::Sender<Heard>,
        connected: impl FnOnce(),
        stop: &CancellationToken,
    ) -> Result<(), ConnectionError> {
        let io = |source| ConnectionError::Io { address: self.address.clone(), source };
        let mut identity = self.identity.clone();
        let present = Arc::clone(&identity.borrow_and_update());
        let connector = TlsConnector::from(Arc::new(present.client()?));
        let connect = async {
            let tcp = TcpStream::connect(&self.address).await?;
            peer::prepare(&tcp)?;
            connector.connect(self.server.clone(), tcp).await
        };
        let Some(connect) = stop.run_until_cancelled(timeout(CONNECT, connect)).await else { return Ok(()) };
        let stream = connect.map_err(|_| ConnectionError::Timeout(self.address.clone()))?.map_err(io)?;
        let (read, write) = tokio::io::split(stream);
        let mut speaker = Speaker::new(Writer::new(write, CONTROLLER_FRAME), &present);
        speaker.introduce(&present).await.map_err(io)?;
        connected();
        let (messages, queue) = mpsc::channel(MESSAGES);
        let ended = CancellationToken::new();
        let connection = Connection { messages, _connected: ended.clone().drop_guard() };
        if events.send((StreamEvent::Connected(relay), Some(connection))).await.is_err() {
            return Ok(());
        }
        let outcome = tokio::select! {
            read = listen(relay, Reader::new(read, CONTROLLER_FRAME), events) => match read {
                Ok(true) => Ok(()),
                Ok(false) => Err(ConnectionError::Closed(self.address.clone())),
                Err(error) => Err(io(error)),
            },
            written = speaker.speak(queue, identity) => match written {
                Ok(Ended::ByLoop) => Ok(()),
                Ok(Ended::AuthoritiesReplaced) => Err(ConnectionError::AuthoritiesReplaced(self.address.clone())),
                Err(error) => Err(io(error)),
            },
            () = ended.cancelled() => Ok(()),
            () = stop.cancelled() => Ok(()),
        };
        // Without a receiver the loop has ended.
        let _ = events.send((StreamEvent::Gone(relay), None)).await;
        outcome
    }
}

/// Passes on what the relay says. Returns whether the loop has ended before the connection.
async fn listen(
    relay: RelayId,
    mut reader: Reader<impl AsyncRead + Unpin>,
    events: &mpsc::Sender<Heard>,
) -> io::Result<bool> {
    while let Some(FromRelay(agents)) = reader.next().await? {
        if events.send((StreamEvent::Agents(relay, agents), None)).await.is_err() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Signs and writes.
struct Speaker<W> {
    writer: Writer<W>,
    signer: Signer,
    /// The CAs by which the certificate of the relay was verified.
    authorities_pem: Vec<u8>,
}

/// Why nothing is written any more, although the connection has not failed.
enum Ended {
    ByLoop,
    /// The relay has to show again who it is.
    AuthoritiesReplaced,
}

impl<W: AsyncWrite + Unpin> Speaker<W> {
    fn new(writer: Writer<W>, identity: &Identity) -> Self {
        let authorities_pem = identity.authorities_pem.clone();
        Self { writer, signer: Signer::new(&identity.certified), authorities_pem }
    }

    /// Sends the certificates by which agents know the signatures that follow.
    async fn introduce(&mut self, identity: &Identity) -> io::Result<()> {
        self.signer = Signer::new(&identity.certified);
        self.write(&[ToRelay::Leader(encode_chain(&identity.certified.cert))]).await
    }

    async fn speak(
        &mut self,
        mut messages: mpsc::Receiver<Outgoing>,
        mut identity: watch::Receiver<Arc<Identity>>,
    ) -> io::Result<Ended> {
        loop {
            tokio::select! {
                Ok(()) = identity.changed() => {
                    let present = Arc::clone(&identity.borrow_and_update());
                    if present.authorities_pem != self.authorities_pem {
                        return Ok(Ended::AuthoritiesReplaced);
                    }
                    self.introduce(&present).await?;
                }
                message = messages.recv() => {
                    let Some(message) = message else { return Ok(Ended::ByLoop) };
                    self.send(message).await?;
                }
            }
        }
    }

    async fn send(&mut self, (message, shared): Outgoing) -> io::Result<()> {
        match message {
            RelayMessage::Answers { time, state, agents } => {
                for chunk in agents.chunks(SIGNATURES) {
                    let answers = chunk.iter().map(|(agent, nonce)| {
                        let statement = Statement::answer(time, nonce.clone(), (*state).clone());
                        Ok(ToRelay::Answer { agent: *agent, signed: self.sign(&statement)? })
                    });
                    let answers = answers.collect::<io::Result<Vec<_>>>()?;
                    self.write(&answers).await?;
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
            RelayMessage::Group { key, statement, .. } => {
                let signed = shared.sign(&self.signer, &statement).map_err(io::Error::other)?;
                let (namespace, jobset) = (key.namespace.clone(), key.name.clone());
                self.write(&[ToRelay::Group { namespace, jobset, signed }]).await
            }
            RelayMessage::Beat(statement) => {
                let beat = ToRelay::Beat(shared.sign(&self.signer, &statement).map_err(io::Error::other)?);
                self.write(&[beat]).await
            }
        }
    }

    async fn write(&mut self, messages: &[ToRelay]) -> io::Result<()> {
        in_time(async {
            for message in messages {
                self.writer.feed_encoded(encode(message)?).await?;
            }
            self.writer.flush().await
        })
        .await
    }

    fn sign(&self, statement: &Statement) -> io::Result<Signed> {
        self.signer.sign(statement).map_err(io::Error::other)
    }
}

/// Limits a write: the agents of a relay that takes nothing for so long rely on the API server by now.
async fn in_time(written: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    timeout(SILENCE, written).await?
}

#[cfg(test)]
mod tests {
    use jobset_stream::tls::testing::{ExtendedKeyUsagePurpose, Pki};
    use tokio::io::DuplexStream;

    use super::*;

    fn identity(pki: &Pki) -> Arc<Identity> {
        let issued = pki.issue("jobset-controller.ns.svc", ExtendedKeyUsagePurpose::ClientAuth);
        Arc::new(Identity::read(issued.folder.path()).unwrap())
    }

    async fn introduced(relay: &mut Reader<DuplexStream>) -> Vec<String> {
        match relay.next::<ToRelay>().await.unwrap().unwrap() {
            ToRelay::Leader(chain) => chain,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn speaker_introduces_new_leaf_and_ends_with_replaced_ca() {
        let (pki, later) = (Pki::new(), Pki::new());
        let (near, far) = tokio::io::duplex(1 << 16);
        let first = identity(&pki);
        let (identities, changes) = watch::channel(Arc::clone(&first));
        let (_messages, queue) = mpsc::channel(1);
        let mut speaker = Speaker::new(Writer::new(near, CONTROLLER_FRAME), &first);
        let mut relay = Reader::new(far, CONTROLLER_FRAME);
        let speaking = tokio::spawn(async move { speaker.speak(queue, changes).await });
        let renewed = identity(&pki);
        identities.send_replace(Arc::clone(&renewed));
        assert_eq!(introduced(&mut relay).await, encode_chain(&renewed.certified.cert), "a new leaf of the same CA");
        identities.send_replace(identity(&later));
        assert!(matches!(speaking.await.unwrap().unwrap(), Ended::AuthoritiesReplaced));
    }
}
