//! Connections of controllers: the leader's, and for a while those of leaders before it.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use jobset_program::log_limit;
use jobset_program::server::{Connection, Secured, Service, Unserved};
use jobset_stream::CONTROLLER_FRAME;
use jobset_stream::frame::{Reader, Writer};
use jobset_stream::message::ToRelay;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tracing::info;

use crate::agents::DRAIN;
use crate::counted::{ByteCounters, Counted};
use crate::hub::{Bell, Turn};
use crate::metrics::{Direction, EVENTS};
use crate::shared::Shared;
use crate::tls::CurrentTls;

type Stream = Secured<Counted<TcpStream>>;

/// The port for controllers.
pub(crate) struct Controllers {
    tls: CurrentTls,
    counters: ByteCounters,
    shared: Arc<Shared>,
}

impl Controllers {
    pub(crate) fn new(tls: CurrentTls, shared: Arc<Shared>) -> Self {
        Self { tls, counters: shared.metrics.bytes(Direction::FromController, Direction::ToController), shared }
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
        let (read, write) = tokio::io::split(stream);
        let (mut reader, mut writer) = (Reader::new(read, CONTROLLER_FRAME), Writer::new(write, CONTROLLER_FRAME));
        let drained = async {
            speaker.shared.stop.cancelled().await;
            sleep(DRAIN).await;
        };
        let reason = tokio::select! {
            reason = speaker.read(&mut reader) => reason,
            reason = speaker.write(&mut writer) => reason,
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
            let message: ToRelay = match reader.next().await {
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
