//! One server for all ports: it accepts connections, has them wait for a place, ends the TLS handshake in time, and hands the
//! encrypted connection over. When places are short, the oldest of the party that holds most makes room.
//!
//! [`places`] decides, and is pure. [`pool`] shares it among tasks.

pub mod party;
pub mod places;
pub mod pool;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::{log_limit, peer};
use party::Party;
use places::Size;
use pool::Pool;

/// Pause after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a plain HTTP request that are read, so that the client gets its answer before the connection is closed.
const PLAIN_LIMIT: u64 = 8 << 10;
/// How long such a client has.
const PLAIN_TIME: Duration = Duration::from_secs(1);
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
    this port speaks HTTPS, and the request is plain HTTP\n";
/// What HTTP/2 is called in the negotiation of protocols (ALPN).
pub const HTTP2: &[u8] = b"h2";

/// Limits of the connections of one port.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub places: Size,
    /// How long the TLS handshake takes.
    pub handshake: Duration,
    /// How long a connection lasts, from its first byte to its last.
    pub life: Duration,
}

pub type Place = pool::Place<()>;

/// The bytes of a connection, encrypted if the port is. The state of TLS is on the heap: futures that pass it on stay small.
pub type Secured<S> = Either<Box<TlsStream<S>>, S>;

/// A connection that has ended its handshake.
#[derive(Debug)]
pub struct Connection<S> {
    pub stream: Secured<S>,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Dropping it gives the place to another.
    pub place: Place,
}

impl<S> Connection<S> {
    /// Whether the client has negotiated HTTP/2.
    pub fn is_http2(&self) -> bool {
        matches!(&self.stream, Either::Left(tls) if tls.get_ref().1.alpn_protocol() == Some(HTTP2))
    }
}

/// Why a connection ends before it is served.
#[derive(Debug, thiserror::Error)]
pub enum Unserved {
    /// Its network has as many as it may, or most, and none of them makes room.
    #[error("its address has too many connections")]
    Rejected,
    /// It made room for another.
    #[error("it made room for another connection")]
    Evicted,
    /// The handshake took too long.
    #[error("the TLS handshake took too long")]
    Late,
    /// The handshake failed, or the network did.
    #[error(transparent)]
    Broken(#[from] io::Error),
}

/// What a port serves.
pub trait Service: Send + Sync + 'static {
    /// The connection below TLS.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send;

    /// Wraps a connection that was accepted.
    fn wrap(&self, stream: TcpStream) -> Self::Stream;

    /// TLS for the next connection, if the port is encrypted.
    fn tls(&self) -> Option<TlsAcceptor>;

    /// Serves a connection until its end.
    fn serve(self: Arc<Self>, connection: Connection<Self::Stream>) -> impl Future<Output = ()> + Send;

    /// A connection ends before it is served.
    fn unserved(&self, peer: SocketAddr, why: &Unserved) {
        debug!(%peer, %why, "closed a connection");
    }
}

/// A port that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    limits: Limits,
}

impl Server {
    pub fn new(listener: TcpListener, limits: Limits) -> Self {
        Self { listener, limits }
    }

    /// Serves until `stop`, and then closes the port. The connections go on: the tracker waits for them.
    pub async fn serve(self, service: Arc<impl Service>, stop: CancellationToken) -> TaskTracker {
        let (pool, connections) = (Pool::new(self.limits.places), TaskTracker::new());
        let accepting = async {
            loop {
                let (stream, peer) = self.accept().await;
                // One that waits for a place keeps the others in the backlog of the port, where they wait in their order.
                match pool.wait(&Party::of(peer.ip()), 1).await {
                    Some(place) => {
                        let connection = converse(Arc::clone(&service), stream, peer, place, self.limits);
                        connections.spawn(connection);
                    }
                    None => service.unserved(peer, &Unserved::Rejected),
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stop.cancelled() => {}
        }
        connections.close();
        connections
    }

    async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    if let Some(suppressed) = log_limit::permit("accept") {
                        warn!(%error, suppressed, "cannot accept a connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Serves one connection. Each step has a future of its own on the heap, which is freed with it: what stays is small.
async fn converse<S: Service>(service: Arc<S>, stream: TcpStream, peer: SocketAddr, place: Place, limits: Limits) {
    let handshake = timeout(limits.handshake, Box::pin(secure(&*service, stream)));
    let secured = tokio::select! {
        secured = handshake => secured.unwrap_or(Err(Unserved::Late)),
        _ = place.lost() => Err(Unserved::Evicted),
    };
    match secured {
        Ok(stream) => {
            let served = timeout(limits.life, Box::pin(service.serve(Connection { stream, peer, place })));
            if served.await.is_err() {
                debug!(%peer, "a connection took too long");
            }
        }
        Err(why) => service.unserved(peer, &why),
    }
}

async fn secure<S: Service>(service: &S, mut stream: TcpStream) -> Result<Secured<S::Stream>, Unserved> {
    peer::prepare(&stream)?;
    let Some(tls) = service.tls() else { return Ok(Either::Right(service.wrap(stream))) };
    let mut first = [0];
    stream.peek(&mut first).await?;
    // A TLS record begins with another byte, and an HTTP method with a letter.
    if first[0].is_ascii_uppercase() {
        reject_plain_http(&mut stream).await?;
        return Err(Unserved::Broken(io::Error::other("plain HTTP")));
    }
    Ok(Either::Left(Box::new(tls.accept(service.wrap(stream)).await?)))
}

async fn reject_plain_http(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_HTTP).await?;
    stream.shutdown().await?;
    // Unread bytes would reset the connection, and the client would lose the answer.
    let (mut rest, mut nowhere) = (stream.take(PLAIN_LIMIT), tokio::io::sink());
    timeout(PLAIN_TIME, tokio::io::copy(&mut rest, &mut nowhere)).await.ok();
    Ok(())
}

#[cfg(test)]
mod tests;
