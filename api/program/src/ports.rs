//! Small HTTP ports, for probes and metrics: on a thread and a runtime of their own, so that neither delays what the program is
//! for, and with limits on connections, time and size, because every Pod may reach them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::listener::listen;
use crate::server::places::Size;
use crate::server::{Connection, Limits, Server, Service};

/// Connections of one port. One more takes the place of the oldest of the address that holds most of them: so one that floods
/// the port closes its own, and whoever else asks needs milliseconds.
pub const CONNECTIONS: usize = 256;
/// How long a connection has for its handshake, and then for the head of its request.
pub const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a connection is served, with its one request and the answer.
pub const LIFETIME: Duration = Duration::from_secs(30);
/// Largest head of a request, in bytes.
pub const HEAD_SIZE: usize = 16 << 10;

/// How long connections have.
#[derive(Clone, Copy, Debug)]
struct Times {
    head: Duration,
    life: Duration,
}

/// A port that is open, and served by nobody yet.
#[derive(Debug)]
pub struct Port {
    listener: std::net::TcpListener,
    what: &'static str,
    tls: Option<Arc<ServerConfig>>,
}

impl Port {
    /// Opens it. `flag` is the flag that sets the address.
    pub fn open(address: SocketAddr, flag: &str, what: &'static str) -> anyhow::Result<Self> {
        let listener = listen(address).with_context(|| {
            format!("cannot listen on {address} for {what}: is the port taken? choose another with --{flag}")
        })?;
        Ok(Self { listener, what, tls: None })
    }

    #[must_use]
    pub fn with_tls(self, tls: Arc<ServerConfig>) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// What listens on it, in the runtime that this is called in.
    pub fn into_listener(self) -> anyhow::Result<TcpListener> {
        TcpListener::from_std(self.listener).with_context(|| format!("cannot serve {}", self.what))
    }

    /// Its address, with the port that the system chose where 0 was asked for.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The thread that serves ports.
#[derive(Debug)]
pub struct Ports {
    runtime: Runtime,
    served: Vec<(Port, Router)>,
    times: Times,
}

impl Ports {
    /// A thread without ports.
    pub fn new() -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime for ports")?;
        Ok(Self { runtime, served: Vec::new(), times: Times { head: HEAD_TIME, life: LIFETIME } })
    }

    /// Makes something whose tasks shall run in this runtime, as a client that these ports need.
    pub fn enter<T>(&self, make: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        make()
    }

    pub fn add(&mut self, port: Port, routes: Router) {
        self.served.push((port, routes));
    }

    /// Serves until `stop`, on a thread of its own. The future ends with it.
    pub fn serve(self, stop: CancellationToken) -> anyhow::Result<impl Future<Output = ()>> {
        let Self { runtime, served, times } = self;
        let mut listening = Vec::new();
        for (port, routes) in served {
            let _entered = runtime.enter();
            let address = port.address().with_context(|| format!("cannot serve {}", port.what))?;
            info!(%address, tls = port.tls.is_some(), "serving {}", port.what);
            let limits = Limits { places: Size::of(CONNECTIONS), handshake: times.head, life: times.life };
            let service = OneAnswer { routes, tls: port.tls.clone().map(TlsAcceptor::from), head_time: times.head };
            listening.push((Server::new(port.into_listener()?, limits), service));
        }
        let (ended, has_ended) = oneshot::channel::<()>();
        let run = move || {
            runtime.block_on(async move {
                for (server, service) in listening {
                    tokio::spawn(server.serve(Arc::new(service), stop.clone()));
                }
                stop.cancelled().await;
            });
            runtime.shutdown_background();
            drop(ended);
        };
        std::thread::Builder::new().name("ports".to_owned()).spawn(run).context("cannot start a thread for ports")?;
        Ok(async move { drop(has_ended.await) })
    }
}

/// Answers one request of each connection.
struct OneAnswer {
    routes: Router,
    tls: Option<TlsAcceptor>,
    head_time: Duration,
}

impl Service for OneAnswer {
    type Stream = TcpStream;

    fn wrap(&self, stream: TcpStream) -> TcpStream {
        stream
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.clone()
    }

    async fn serve(self: Arc<Self>, Connection { stream, peer, place }: Connection<TcpStream>) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.head_time).max_buf_size(HEAD_SIZE).keep_alive(false);
        let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(self.routes.clone()));
        tokio::select! {
            served = served => served.unwrap_or_else(|error| debug!(%peer, %error, "a connection ended early")),
            _ = place.lost() => debug!(%peer, "a connection made room for another"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use axum::routing::get;
    use rustls::server::ResolvesServerCertUsingSni;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpSocket;

    use super::*;

    const SOON: Duration = Duration::from_millis(200);
    const LATE: Duration = Duration::from_hours(1);

    /// A port whose `/slow` never answers.
    fn served() -> (SocketAddr, CancellationToken) {
        served_with(Times { head: HEAD_TIME, life: LIFETIME }, None)
    }

    fn served_with(times: Times, tls: Option<Arc<ServerConfig>>) -> (SocketAddr, CancellationToken) {
        let routes = Router::new()
            .route("/", get(async || "ok\n"))
            .route("/slow", get(async || std::future::pending::<&str>().await));
        let port = Port::open(SocketAddr::from(([127, 0, 0, 1], 0)), "listen", "tests").unwrap();
        let (address, stop) = (port.address().unwrap(), CancellationToken::new());
        let mut ports = Ports { times, ..Ports::new().unwrap() };
        ports.add(Port { tls, ..port }, routes);
        drop(ports.serve(stop.clone()).unwrap());
        (address, stop)
    }

    fn send(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    fn answer(mut stream: TcpStream) -> String {
        let mut text = String::new();
        let _reset = stream.read_to_string(&mut text);
        text
    }

    const GOOD: &str = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";

    #[test]
    fn one_connection_gets_one_answer() {
        let (address, stop) = served();
        let text = answer(send(address, GOOD));
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("connection: close"), "{text}");
        stop.cancel();
    }

    #[test]
    fn a_flood_that_holds_its_connections_keeps_nobody_out() {
        let (address, stop) = served();
        let silent: Vec<_> = (0..CONNECTIONS).map(|_| send(address, "GET / HTTP/1.1\r\n")).collect();
        let slow: Vec<_> =
            (0..CONNECTIONS).map(|_| send(address, "GET /slow HTTP/1.1\r\nhost: test\r\n\r\n")).collect();
        assert!(answer(send(address, GOOD)).starts_with("HTTP/1.1 200"));
        let closed = silent.into_iter().filter(|it| it.try_clone().unwrap().read(&mut [0]).is_ok_and(|it| it == 0));
        assert_eq!(closed.count(), CONNECTIONS, "the oldest have made room");
        drop(slow);
        stop.cancel();
    }

    #[tokio::test]
    async fn a_flood_from_one_address_closes_no_connection_of_another() {
        let (address, stop) = served();
        let mut slow = send(address, "GET / HTTP/1.1\r\n");
        let mut flood = Vec::new();
        for _ in 0..2 * CONNECTIONS {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
            flood.push(socket.connect(address).await.unwrap());
        }
        // They are accepted one after the other.
        assert_eq!(flood[CONNECTIONS].read(&mut [0]).await.unwrap(), 0, "closed");
        slow.write_all(b"host: test\r\n\r\n").unwrap();
        assert!(answer(slow).starts_with("HTTP/1.1 200"));
        stop.cancel();
    }

    #[test]
    fn connection_without_answer_ends_with_its_life() {
        let (address, stop) = served_with(Times { head: LATE, life: SOON }, None);
        assert_eq!(answer(send(address, "GET /slow HTTP/1.1\r\nhost: test\r\n\r\n")), "");
        stop.cancel();
    }

    #[test]
    fn a_handshake_that_never_ends_is_given_up() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_no_client_auth().with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let (address, stop) = served_with(Times { head: SOON, life: LATE }, Some(Arc::new(tls)));
        for begin in ["", "\x16\x03\x01\x02\x00\x01"] {
            let mut stream = send(address, begin);
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{begin:?}: closed");
        }
        stop.cancel();
    }

    #[test]
    fn large_or_endless_head_is_refused() {
        let (address, stop) = served();
        let large = answer(send(address, &format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(HEAD_SIZE))));
        assert!(large.starts_with("HTTP/1.1 431") || large.is_empty(), "{large}");
        let slow = answer(send(address, "GET / HTTP/1.1\r\nx: "));
        assert!(slow.starts_with("HTTP/1.1 408") || slow.is_empty(), "{slow}");
        stop.cancel();
    }
}
