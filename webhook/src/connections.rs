//! Serves connections from the TLS handshake to their end, within the limits, and drains them when the service stops.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex};
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
use jobset_program::server::party::Party;
use jobset_program::server::pool::lock;
use jobset_program::server::{Connection, Place, Server, Service, Unserved};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{debug, error, warn};

use crate::limits::Limits;
use crate::progress::{Ending, Progress};

/// Largest head of a request, in bytes: many times what API servers send, and the smallest that hyper accepts.
const HEAD_LIMIT: u32 = 8 << 10;

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

/// What all connections of the port share.
struct Https {
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
    let (closed, time) = (drain.closed.clone(), drain.timeout);
    let https = Https { tls: tls.map(TlsAcceptor::from), router, limits: limits.clone(), drain };
    // The tracker also waits for handshakes in progress.
    let connections = Server::new(listener, limits.connections()).serve(Arc::new(https), closed).await;
    if timeout(time, connections.wait()).await.is_err() {
        warn!(connections = connections.len(), "requests in flight did not finish in time");
    }
}

/// One connection, with the requests on it.
struct Conversation {
    place: Place,
    progress: Mutex<Progress>,
    /// Notified of each change after which the connection may have to end earlier.
    changed: Notify,
}

/// A request in flight, until the client has received the answer.
struct InFlight {
    conversation: Arc<Conversation>,
    id: u64,
}

/// The part of a request that has not arrived yet.
struct Receiving {
    conversation: Arc<Conversation>,
    id: u64,
}

impl Conversation {
    fn new(place: Place) -> Arc<Self> {
        Arc::new(Self { place, progress: Mutex::new(Progress::new(Instant::now())), changed: Notify::new() })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Progress) -> T) -> T {
        let mut progress = lock(&self.progress);
        let before = progress.rank();
        let changed = change(&mut progress);
        let rank = progress.rank();
        if rank != before {
            self.place.rank(rank);
        }
        changed
    }

    /// Bytes have arrived. If no request is in flight, they begin a head.
    fn hear(&self) {
        if self.change(|it| it.hear(Instant::now())) {
            self.changed.notify_one();
        }
    }

    fn begin(self: &Arc<Self>) -> (InFlight, Receiving) {
        let id = self.change(Progress::begin);
        self.changed.notify_one();
        let conversation = || Arc::clone(self);
        (InFlight { conversation: conversation(), id }, Receiving { conversation: conversation(), id })
    }

    fn has_begun(&self) -> bool {
        lock(&self.progress).has_begun()
    }

    fn deadline(&self, ending: Ending, limits: &Limits) -> Option<Instant> {
        lock(&self.progress).deadline(ending, limits, Instant::now())
    }
}

impl InFlight {
    /// The handler has answered, and the answer is being sent.
    fn answered(&self) {
        self.conversation.change(|it| it.answer(self.id, Instant::now()));
        self.conversation.changed.notify_one();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.conversation.change(|it| it.end(self.id, Instant::now()));
        self.conversation.changed.notify_one();
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.conversation.change(|it| it.receive(self.id));
    }
}

impl Service for Https {
    type Stream = TcpStream;

    fn wrap(&self, stream: TcpStream) -> TcpStream {
        stream
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.clone()
    }

    /// Serves HTTP until the client or the server ends the connection.
    async fn serve(self: Arc<Self>, connection: Connection<TcpStream>) {
        let http2 = connection.is_http2();
        let Connection { stream, peer, place } = connection;
        let (conversation, limits) = (Conversation::new(place), &self.limits);
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(Party::of(peer.ip()));
            answer(request, Arc::clone(&self), Arc::clone(&conversation))
        });
        let hearing = Arc::clone(&conversation);
        // Before the first byte of a head the connection is idle: API servers open connections in reserve. Bytes of an idle HTTP/2
        // connection need not belong to a request.
        let stream = InspectReader::new(stream, move |bytes: &[u8]| {
            if !http2 && !bytes.is_empty() {
                hearing.hear();
            }
        });
        let builder = protocol(http2, limits);
        let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let (mut leaving, mut ending) = (false, Ending::No);
        loop {
            let deadline = conversation.deadline(ending, limits);
            // A client that has just connected gets its first request answered.
            let may_leave = http2 && !leaving && conversation.has_begun();
            tokio::select! {
                ended = serving.as_mut() => {
                    return ended.unwrap_or_else(|error| debug!(%peer, error, "connection ended early"));
                }
                () = conversation.changed.notified() => continue,
                () = self.drain.begun.cancelled(), if may_leave => leaving = true,
                () = self.drain.closed.cancelled(), if ending == Ending::No => ending = Ending::Stopping(Instant::now()),
                _ = conversation.place.lost(), if ending == Ending::No => ending = Ending::Evicted(Instant::now()),
                () = at(deadline), if ending == Ending::No => ending = Ending::Evicted(Instant::now()),
                () = at(deadline), if ending != Ending::No => {
                    return debug!(%peer, "closed a connection that did not end by itself");
                }
            }
            serving.as_mut().graceful_shutdown();
        }
    }

    fn unserved(&self, peer: SocketAddr, why: &Unserved) {
        if !matches!(why, Unserved::Rejected) {
            debug!(%peer, %why, "closed a connection");
        } else if let Some(suppressed) = log_limit::permit("connections") {
            warn!(%peer, suppressed, "closed a new connection: all others of its address have reviews in progress");
        }
    }
}

/// Resolves at this time; never if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn protocol(http2: bool, limits: &Limits) -> auto::Builder<TokioExecutor> {
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    // hyper's timeout for heads also runs while a kept connection is idle, so a conversation has one of its own.
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
    server: Arc<Https>,
    conversation: Arc<Conversation>,
) -> Result<Response, Infallible> {
    let (request_in_flight, receiving) = conversation.begin();
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
