//! Serves connections from the TLS handshake to their end, within the limits, and drains them when the service stops.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, Request, StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use jobset_program::log_limit;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use tracing::{debug, error, warn};

use crate::limits::Limits;
use crate::party::PeerAddress;
use crate::registry::{Connection, Registry};
use crate::tls;

/// Pause after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long an evicted connection has to end after its last answer.
const LINGER: Duration = Duration::from_secs(1);
/// Largest head of a request, in bytes: many times what API servers send, and the smallest that hyper accepts.
const HEAD_LIMIT: u32 = 8 << 10;
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
    this port speaks HTTPS, and the request is plain HTTP\n";

/// How serving ends. By default it never does.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    /// Begins the drain: clients are asked to use another connection, and new connections are still accepted.
    pub begun: CancellationToken,
    /// Ends the drain: no more connections are accepted, and idle ones are closed.
    pub closed: CancellationToken,
    /// How long requests in flight have to finish after that.
    pub timeout: Duration,
}

/// The parts that all connections of a port share.
struct Server {
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    drain: Drain,
}

/// Serves until the drain is over, over TLS if it is given.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
    limits: &Limits,
    drain: Drain,
) {
    let tls = tls.map(TlsAcceptor::from);
    let server = Arc::new(Server { tls, router, limits: limits.clone(), drain: drain.clone() });
    let registry = Arc::new(Registry::new(limits.max_connections, limits.displace_after));
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = drain.closed.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Some(connection) = registry.admit(peer.ip()) {
                    // The tracker also waits for handshakes in progress.
                    tasks.spawn(converse(stream, peer, Arc::clone(&server), connection));
                } else if let Some(suppressed) = log_limit::permit("connections") {
                    warn!(%peer, suppressed, "closed a new connection: all others of its address have reviews in progress");
                }
            }
            Err(error) => {
                if let Some(suppressed) = log_limit::permit("accept") {
                    warn!(%error, suppressed, "cannot accept a connection");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    tasks.close();
    if timeout(drain.timeout, tasks.wait()).await.is_err() {
        warn!(connections = tasks.len(), "requests in flight did not finish in time");
    }
}

/// Serves one connection.
async fn converse(stream: TcpStream, peer: SocketAddr, server: Arc<Server>, connection: Connection) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%peer, %error, "small packets are delayed");
    }
    let Some(acceptor) = &server.tls else {
        return talk(stream, false, peer, &server, &connection).await;
    };
    let handshake = timeout(server.limits.handshake_timeout, accept(stream, acceptor));
    let stream = tokio::select! {
        handshake = handshake => match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => return debug!(%peer, "TLS handshake took too long"),
        },
        () = connection.closed() => return debug!(%peer, "evicted during the TLS handshake"),
    };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2);
    talk(stream, http2, peer, &server, &connection).await;
}

async fn accept(
    mut stream: TcpStream,
    acceptor: &TlsAcceptor,
) -> std::io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    // A TLS record begins with another byte, and an HTTP method with a letter.
    if !first[0].is_ascii_uppercase() {
        return acceptor.accept(stream).await;
    }
    stream.write_all(PLAIN_HTTP).await?;
    stream.shutdown().await?;
    // Unread bytes would reset the connection, and the client would lose the answer.
    let mut rest = tokio::io::sink();
    timeout(LINGER, tokio::io::copy(&mut (&mut stream).take(u64::from(HEAD_LIMIT)), &mut rest)).await.ok();
    Err(std::io::Error::other("plain HTTP"))
}

/// Serves HTTP until the client or the server ends the connection.
async fn talk<S>(stream: S, http2: bool, peer: SocketAddr, server: &Arc<Server>, connection: &Connection)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &server.limits;
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddress(peer.ip()));
        answer(request, Arc::clone(server), connection.clone())
    });
    let builder = protocol(http2, limits);
    let hearing = connection.clone();
    // Before the first byte of a head the connection is idle: API servers open connections in reserve. Bytes of an idle HTTP/2
    // connection need not belong to a request.
    let stream = InspectReader::new(stream, move |bytes: &[u8]| {
        if !http2 && !bytes.is_empty() {
            hearing.hear();
        }
    });
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let (mut leaving, mut stopping, mut evicted) = (false, false, false);
    let mut look = connection.deadline(limits);
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                return ended.unwrap_or_else(|error| debug!(%peer, error, "connection ended early"));
            }
            // A client that has just connected gets its first request answered.
            () = server.drain.begun.cancelled().then(|()| connection.asked()), if http2 && !leaving => {
                leaving = true;
                serving.as_mut().graceful_shutdown();
            }
            () = server.drain.closed.cancelled(), if !stopping => {
                stopping = true;
                look = Instant::now() + LINGER;
                serving.as_mut().graceful_shutdown();
            }
            () = connection.closed(), if !evicted => {
                evicted = true;
                look = Instant::now() + LINGER;
                serving.as_mut().graceful_shutdown();
            }
            () = connection.begun(), if !evicted && !stopping => look = connection.deadline(limits),
            () = sleep_until(look), if evicted || stopping => {
                // A request that has arrived is answered; at the end of a drain, also one that is arriving.
                let end = if evicted { connection.end_of_work(LINGER) } else { connection.end_of_all(LINGER) };
                if end.is_some_and(|end| end <= Instant::now()) {
                    return debug!(%peer, "closed a connection that did not end by itself");
                }
                look = end.unwrap_or_else(|| Instant::now() + LINGER);
            }
            () = sleep_until(look), if !evicted && !stopping => {
                look = connection.deadline(limits);
                if look <= Instant::now() {
                    connection.close();
                }
            }
        }
    }
}

fn protocol(http2: bool, limits: &Limits) -> auto::Builder<TokioExecutor> {
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    // hyper's timeout for heads also runs while a kept connection is idle, so the registry has one of its own.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD_LIMIT as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_concurrent_streams)
        .max_header_list_size(HEAD_LIMIT)
        .keep_alive_interval(limits.keep_alive_interval)
        .keep_alive_timeout(limits.keep_alive_timeout);
    builder
}

/// The router's answer, or 500 if it has panicked, so that a bug in one review does not end the others.
async fn answer(
    request: Request<Incoming>,
    server: Arc<Server>,
    connection: Connection,
) -> Result<Response, Infallible> {
    let (request_in_flight, receiving) = connection.begin();
    let (path, version) = (request.uri().path().to_owned(), request.version());
    // The reader of the body drops it as soon as it has arrived.
    let request = request.map(|body| Body::new(hold(body, receiving)));
    let answer = AssertUnwindSafe(server.router.clone().oneshot(request)).catch_unwind();
    let mut answer = answer.await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        if let Some(suppressed) = log_limit::permit("panics") {
            error!(path, panic = text, suppressed, "a handler panicked: this is a bug");
        }
        Ok((StatusCode::INTERNAL_SERVER_ERROR, "an internal error, which is in the log\n").into_response())
    });
    if let Ok(response) = &mut answer
        && version < Version::HTTP_2
        && server.drain.begun.is_cancelled()
    {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    request_in_flight.answered();
    answer.map(|response| response.map(|body| Body::new(hold(body, request_in_flight))))
}

/// The body, with a value that is dropped together with it.
fn hold<B: HttpBody, T>(body: B, with: T) -> impl HttpBody<Data = B::Data, Error = B::Error> {
    body.map_err(move |error| {
        let _ = &with;
        error
    })
}
