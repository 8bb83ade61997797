//! Other addresses that take all places: an API server gets one all the same, and keeps those that it has.

use std::net::{Ipv4Addr, SocketAddr};

use http_body_util::{BodyExt as _, Full};
use hyper::Method;
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jobset_harness::wait;
use jobset_webhook::serve::VALIDATE_PATH;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::abuse::until_closed;
use crate::client::{JSON, request};
use crate::server::{LIMIT, Server, review, with};

const API_SERVER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER_API_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

type Sender = SendRequest<Full<Bytes>>;

async fn tcp(server: &Server, from: Ipv4Addr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    socket.connect(server.address).await.unwrap()
}

/// A connection over which a review was answered.
async fn kept(server: &Server, from: Ipv4Addr) -> Sender {
    let stream = server.client.connect_over(tcp(server, from).await).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    is_answered(&mut sender).await;
    sender
}

async fn is_answered(sender: &mut Sender) {
    let body = review(&with("/spec", json!({}))).to_string();
    let answer = timeout(LIMIT, sender.send_request(request(Method::POST, VALIDATE_PATH, JSON, body)));
    let answer = answer.await.expect("it is answered").unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.unwrap();
}

#[tokio::test]
async fn endless_handshakes_of_many_addresses_keep_no_api_server_out() {
    const PLACES: u8 = 50;
    let server = Server::with(&["--max-connections=50", "--handshake-timeout=1h"]).await;
    let mut api_server = kept(&server, API_SERVER).await;
    let mut silent = Vec::new();
    for number in 0..3 * PLACES {
        let mut stream = tcp(&server, Ipv4Addr::new(127, 0, 1, number)).await;
        stream.write_all(if number % 2 == 0 { b"" } else { b"\x16\x03\x01" }).await.unwrap();
        silent.push(stream);
    }
    is_answered(&mut api_server).await;
    is_answered(&mut kept(&server, OTHER_API_SERVER).await).await;
    for stream in &mut silent[..usize::from(2 * PLACES)] {
        until_closed(stream).await;
    }
    is_answered(&mut api_server).await;
    drop(silent);
    server.stop().await;
}

#[tokio::test]
async fn address_with_all_places_makes_room_for_api_server() {
    const PLACES: usize = 20;
    let server = Server::with(&["--max-connections=20", "--idle-timeout=1h"]).await;
    let mut api_server = vec![kept(&server, API_SERVER).await];
    let mut flood = Vec::new();
    for _ in 0..2 * PLACES {
        flood.push(kept(&server, STRANGER).await);
    }
    for _ in 0..PLACES / 2 - 1 {
        api_server.push(kept(&server, API_SERVER).await);
    }
    for connection in &mut api_server {
        is_answered(connection).await;
    }
    let halved = async || Ok((flood.iter().filter(|it| !it.is_closed()).count() == PLACES / 2).then_some(()));
    wait::until(LIMIT, "the other address to have half of the places", halved).await.unwrap();
    server.stop().await;
}
