//! Connections of controllers: the leader's, and for a while those of leaders before it.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use jobset_program::{log_limit, peer};
use jobset_stream::CONTROLLER_FRAME;
use jobset_stream::frame::{Reader, Writer};
use jobset_stream::message::ToRelay;
use jobset_stream::tls::{Identity, TlsError};
use rustls::ServerConfig;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, info};

use crate::agents::DRAIN;
use crate::counted::{ByteCounters, Counted};
use crate::hub::{Bell, Turn};
use crate::limits::HANDSHAKE_TIME;
use crate::lobby::{self, Accepted};
use crate::metrics::{Direction, EVENTS};
use crate::shared::Shared;
use crate::tls::CurrentTls;

type Stream = TlsStream<Counted<TcpStream>>;

/// Serves controllers until the relay shuts down.
pub(crate) async fn serve<F>(listener: TcpListener, mut tls: CurrentTls<F>, shared: Arc<Shared>)
where
    F: Fn(&Identity) -> Result<ServerConfig, TlsError>,
{
    let counters = shared.metrics.bytes(Direction::FromController, Direction::ToController);
    let serve = |accepted| {
        tokio::spawn(converse(accepted, tls.acceptor(), counters.clone(), Arc::clone(&shared)));
    };
    lobby::accept(listener, serve, |peer| debug!(%peer, "too many connections of this address")).await;
}

async fn converse(accepted: Accepted, tls: TlsAcceptor, counters: ByteCounters, shared: Arc<Shared>) {
    let Accepted { stream, peer, place } = accepted;
    let accepted = tokio::select! {
        accepted = Box::pin(shake(stream, tls, counters)) => accepted,
        () = place.evicted() => Err(io::ErrorKind::TimedOut.into()),
        () = shared.stop.cancelled() => return,
    };
    drop(place);
    let stream = match accepted {
        Ok(stream) => stream,
        Err(error) => {
            if let Some(suppressed) = log_limit::permit(&peer.ip().to_string()) {
                info!(%peer, %error, suppressed, "a connection is not that of a controller");
            }
            return;
        }
    };
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

async fn shake(stream: TcpStream, tls: TlsAcceptor, counters: ByteCounters) -> io::Result<Stream> {
    peer::prepare(&stream)?;
    timeout(HANDSHAKE_TIME, tls.accept(Counted::new(stream, counters))).await?
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
