//! Connections of controllers: the leader's, and for a while those of leaders before it.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jobset_program::log_limit;
use jobset_program::server::{Connection, Secured, Service, Unserved};
use jobset_stream::frame::{Reader, Writer};
use jobset_stream::message::ToRelay;
use jobset_stream::tls::{Identity, TlsError};
use jobset_stream::{CONTROLLER_FRAME, SILENCE};
use rustls::pki_types::CertificateDer;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use tracing::info;

use crate::agents::DRAIN;
use crate::counted::{ByteCounters, Counted};
use crate::hub::{Bell, Turn};
use crate::metrics::{Direction, EVENTS};
use crate::shared::Shared;
use crate::tls::CurrentTls;

/// How often the certificate of a controller is verified again: it may have expired.
const VERIFY: Duration = Duration::from_mins(1);

type Stream = Secured<Counted<TcpStream>>;

/// The port for controllers.
pub(crate) struct Controllers {
    tls: CurrentTls,
    identity: watch::Receiver<Arc<Identity>>,
    /// The DNS name in the certificates of controllers.
    name: String,
    counters: ByteCounters,
    shared: Arc<Shared>,
}

impl Controllers {
    pub(crate) fn new(
        identity: watch::Receiver<Arc<Identity>>,
        name: String,
        shared: Arc<Shared>,
    ) -> Result<Self, TlsError> {
        let of_port = name.clone();
        let tls = CurrentTls::new(identity.clone(), move |it: &Identity| it.server_of(&of_port))?;
        let counters = shared.metrics.bytes(Direction::FromController, Direction::ToController);
        Ok(Self { tls, identity, name, counters, shared })
    }

    /// Waits until a controller with these certificates would not be let in any more.
    async fn revoked(&self, chain: &[CertificateDer<'static>]) {
        let mut identity = self.identity.clone();
        while identity.borrow_and_update().admits(&self.name, chain) {
            // Without a sender, the identity stays as it is.
            let _ = timeout(VERIFY, identity.changed()).await.unwrap_or(Ok(()));
        }
    }
}

impl Service for Controllers {
    type Stream = Counted<TcpStream>;

    fn wrap(&self, stream: TcpStream) -> Counted<TcpStream> {
        Counted::new(stream, self.counters.clone())
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        Some(self.tls.acceptor())
    }

    async fn serve(self: Arc<Self>, Connection { stream, peer, place }: Connection<Counted<TcpStream>>) {
        // The handshake has shown the certificate of a controller.
        drop(place);
        let shared = Arc::clone(&self.shared);
        let (number, bell) = shared.hub().connect();
        info!(%peer, "a controller has connected");
        let speaker = Speaker { number, bell, shared };
        let chain = match &stream {
            Either::Left(tls) => tls.get_ref().1.peer_certificates().unwrap_or_default().to_vec(),
            Either::Right(_) => Vec::new(),
        };
        let (read, write) = tokio::io::split(stream);
        let (mut reader, mut writer) = (Reader::new(read, CONTROLLER_FRAME), Writer::new(write, CONTROLLER_FRAME));
        let drained = async {
            speaker.shared.stop.cancelled().await;
            sleep(DRAIN).await;
        };
        let reason = tokio::select! {
            reason = speaker.read(&mut reader) => reason,
            reason = speaker.write(&mut writer) => reason,
            () = self.revoked(&chain) => "its certificate is not valid any more".to_owned(),
            () = drained => "the relay shuts down".to_owned(),
        };
        info!(%peer, reason, "the connection of a controller has ended");
    }

    fn unserved(&self, peer: SocketAddr, why: &Unserved) {
        if let Some(suppressed) = log_limit::permit(&peer.ip().to_string()) {
            info!(%peer, %why, suppressed, "a connection is not that of a controller");
        }
    }
}

/// A controller that is registered while this exists.
struct Speaker {
    number: u64,
    bell: Bell,
    shared: Arc<Shared>,
}

impl Speaker {
    async fn read(&self, reader: &mut Reader<ReadHalf<Stream>>) -> String {
        loop {
            // Agents are told at once that nobody leads, instead of waiting for a leader whose machine is gone.
            let Ok(next) = timeout(SILENCE, reader.next()).await else {
                return format!("the controller has been silent for {} s", SILENCE.as_secs());
            };
            let message: ToRelay = match next {
                Ok(Some(message)) => message,
                Ok(None) => return "the controller has ended it".to_owned(),
                Err(error) => return error.to_string(),
            };
            self.shared.metrics.message(Direction::FromController, message.kind().label());
            let heard = self.shared.hub().hear(self.number, message);
            if let Err(error) = heard {
                return error.to_string();
            }
        }
    }

    async fn write(&self, writer: &mut Writer<WriteHalf<Stream>>) -> String {
        loop {
            let turn = self.shared.hub().controller_turn(self.number);
            let frame = match turn {
                Turn::Send(frame) => frame,
                Turn::Wait => {
                    self.bell.notified().await;
                    continue;
                }
                Turn::End(limit) => {
                    self.shared.metrics.refused(limit);
                    return limit.label().to_owned();
                }
            };
            self.shared.metrics.message(Direction::ToController, EVENTS);
            let mut sent = pin!(writer.send_encoded(frame));
            loop {
                tokio::select! {
                    sent = &mut sent => match sent {
                        Ok(()) => break,
                        Err(error) => return error.to_string(),
                    },
                    () = self.bell.notified() => {
                        let ended = self.shared.hub().ended(self.number);
                        if let Some(limit) = ended {
                            self.shared.metrics.refused(limit);
                            return limit.label().to_owned();
                        }
                    }
                }
            }
        }
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.shared.hub().disconnect(self.number);
    }
}
