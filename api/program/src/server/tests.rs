//! The server over loopback, whose addresses 127.0.0.0/8 are those of as many clients.

use rustls::ServerConfig;
use rustls::server::ResolvesServerCertUsingSni;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpSocket;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

const LIMIT: Duration = Duration::from_secs(20);
const LATE: Duration = Duration::from_hours(1);
const NOW: Duration = Duration::ZERO;

/// Tells of each connection that it serves, and holds it until its end, with its place or without.
struct Holding {
    tls: Option<TlsAcceptor>,
    keeps_place: bool,
    peers: UnboundedSender<SocketAddr>,
}

impl Service for Holding {
    type Stream = TcpStream;

    fn wrap(&self, stream: TcpStream) -> TcpStream {
        stream
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.clone()
    }

    async fn serve(self: Arc<Self>, connection: Connection<TcpStream>) {
        let Connection { mut stream, peer, place } = connection;
        self.peers.send(peer).unwrap();
        let place = Some(place).filter(|_| self.keeps_place);
        let lost = async {
            match &place {
                Some(place) => drop(place.lost().await),
                None => std::future::pending().await,
            }
        };
        let mut byte = [0];
        tokio::select! {
            _ = stream.read(&mut byte) => {}
            () = lost => {}
        }
    }
}

/// A server with so many places, in which connections make room for their own party and for others at these ages.
async fn start(
    total: usize,
    ages: [Duration; 2],
    keeps_place: bool,
    tls: bool,
) -> (SocketAddr, UnboundedReceiver<SocketAddr>) {
    let [age_for_own, age_for_others] = ages;
    let places = Size { age_for_own, age_for_others, ..Size::of(total) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, (peers, served)) = (listener.local_addr().unwrap(), unbounded_channel());
    let tls = tls.then(|| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let certificates = Arc::new(ResolvesServerCertUsingSni::new());
        TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_cert_resolver(certificates)))
    });
    let limits = Limits { places, handshake: LATE, life: LATE };
    let service = Arc::new(Holding { tls, keeps_place, peers });
    tokio::spawn(Server::new(listener, limits).serve(service, CancellationToken::new()));
    (address, served)
}

/// A connection from 127.0.0.`client`.
async fn connect(client: u8, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, client], 0))).unwrap();
    socket.connect(address).await.unwrap()
}

async fn next(served: &mut UnboundedReceiver<SocketAddr>) -> SocketAddr {
    timeout(LIMIT, served.recv()).await.expect("a connection is served").unwrap()
}

async fn is_closed(stream: &mut TcpStream) {
    assert_eq!(timeout(LIMIT, stream.read(&mut [0])).await.expect("it is closed").unwrap_or(0), 0);
}

#[tokio::test]
async fn connections_beyond_places_wait_and_are_served_in_order() {
    let (address, mut served) = start(2, [LATE, LATE], true, false).await;
    let mut clients = Vec::new();
    for client in 1..=5 {
        clients.push(connect(client, address).await);
    }
    for client in &clients[..2] {
        assert_eq!(next(&mut served).await, client.local_addr().unwrap());
    }
    for waits in 2..5 {
        assert!(served.try_recv().is_err(), "all places are taken");
        drop(clients.remove(0));
        assert_eq!(next(&mut served).await, clients[1].local_addr().unwrap(), "{waits}");
    }
}

#[tokio::test]
async fn connections_that_gave_up_leave_their_places_to_others() {
    let (address, mut served) = start(1, [LATE, LATE], false, false).await;
    let mut clients = Vec::new();
    for client in 1..=5 {
        clients.push(connect(client, address).await);
        assert_eq!(next(&mut served).await, clients.last().unwrap().local_addr().unwrap());
    }
}

#[tokio::test]
async fn address_that_holds_all_places_makes_room_for_another() {
    let (address, mut served) = start(4, [LATE, NOW], true, false).await;
    let mut flood = Vec::new();
    for _ in 0..4 {
        flood.push(connect(2, address).await);
        next(&mut served).await;
    }
    let mut others = Vec::new();
    for (client, mut oldest) in [3, 4].into_iter().zip(flood) {
        others.push(connect(client, address).await);
        assert_eq!(next(&mut served).await, others.last().unwrap().local_addr().unwrap());
        is_closed(&mut oldest).await;
    }
}

#[tokio::test]
async fn endless_handshakes_of_many_addresses_keep_nobody_out() {
    let (address, _served) = start(8, [NOW, NOW], true, true).await;
    let mut silent = Vec::new();
    for client in 2..=65 {
        let mut stream = connect(client, address).await;
        stream.write_all(if client % 2 == 0 { b"" } else { b"\x16\x03\x01" }).await.unwrap();
        silent.push(stream);
    }
    for stream in &mut silent[..56] {
        is_closed(stream).await;
    }
    let mut client = connect(1, address).await;
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(LIMIT, client.read_to_string(&mut answer)).await.expect("it has a place").unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn stopped_server_closes_port_and_serves_on_until_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let (peers, mut served) = unbounded_channel();
    let places = Size::of(8);
    let port = Server::new(listener, Limits { places, handshake: LATE, life: LATE });
    let service = Arc::new(Holding { tls: None, keeps_place: true, peers });
    let serving = tokio::spawn(port.serve(service, stop.clone()));
    let client = connect(1, address).await;
    next(&mut served).await;
    stop.cancel();
    let connections = serving.await.unwrap();
    assert_eq!(connections.len(), 1);
    drop(client);
    timeout(LIMIT, connections.wait()).await.expect("the connection has ended");
    assert!(TcpStream::connect(address).await.is_err());
}
