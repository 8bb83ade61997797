//! Clients that are broken, slow or hostile: each gets a clear answer or is let go, and the service is unharmed.

use std::time::Duration;

use futures::future::join_all;
use hyper::Method;
use hyper::body::Bytes;
use jobset_webhook::serve::VALIDATE_PATH;
use rstest::rstest;
use rustls::version::{TLS12, TLS13};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::client::{Client, Http, JSON, http2, request};
use crate::server::{LIMIT, Server, review, with};

/// All that comes until the connection is closed, which it has to be.
pub(crate) async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    timeout(LIMIT, stream.read_to_end(&mut rest)).await.expect("the connection is closed").ok();
    rest
}

pub(crate) async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
}

/// Opens a connection of HTTP/2, and asks for nothing.
async fn preface(server: &Server) -> TlsStream<TcpStream> {
    let mut stream = server.client.connect().await.unwrap();
    send(&mut stream, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await;
    stream
}

/// The head of a review over HTTP/1.1, with this header.
fn head(framing: &str) -> String {
    format!("POST {VALIDATE_PATH} HTTP/1.1\r\nhost: h\r\ncontent-type: {JSON}\r\n{framing}\r\n\r\n")
}

async fn tcp(server: &Server, begin: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(begin).await.unwrap();
    stream
}

/// A client hello that offers nothing newer than this.
fn hello(minor: u8) -> Vec<u8> {
    let mut hello = vec![3, minor];
    hello.extend([7; 32]);
    // No session, two cipher suites of the time, no compression, and one extension: the algorithms of signatures.
    hello.extend([0, 0, 4, 0xc0, 0x14, 0x00, 0x2f, 1, 0]);
    hello.extend([0, 8, 0, 0x0d, 0, 4, 0, 2, 4, 3]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![0x16, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    record
}

#[tokio::test]
async fn plain_http_is_told_that_this_is_https() {
    let server = Server::start().await;
    for begin in
        ["GET /readyz HTTP/1.1\r\nhost: h\r\n\r\n", "POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc"]
    {
        let answer = until_closed(&mut tcp(&server, begin.as_bytes()).await).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(answer.ends_with("this port speaks HTTPS, and the request is plain HTTP\n"), "{answer}");
    }
    server.stop_unharmed().await;
}

#[rstest]
#[case::not_tls(b"\x00\x01\x02\x03 this is nothing at all", None)]
#[case::record_without_a_hello(b"\x16\x03\x01\x00\x05hello", None)]
#[case::record_too_long(b"\x16\x03\x01\xff\xff", None)]
#[case::hello_that_lies_about_its_length(b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", None)]
#[case::alert(b"\x15\x03\x01\x00\x02\x02\x28", None)]
#[case::tls_1_1(&hello(2), Some(70))]
#[case::ssl_3(&hello(0), Some(70))]
#[tokio::test]
async fn a_bad_hello_ends_its_connection(#[case] bytes: &[u8], #[case] alert: Option<u8>) {
    let server = Server::start().await;
    let mut stream = tcp(&server, bytes).await;
    // What waits for more of a record gets no more.
    stream.shutdown().await.unwrap();
    let answer = until_closed(&mut stream).await;
    if let Some(alert) = alert {
        assert_eq!((answer[0], answer[6]), (0x15, alert), "protocol_version: {answer:?}");
    }
    server.stop_unharmed().await;
}

#[tokio::test]
async fn tls_version_below_minimum_is_refused_and_named() {
    let server = Server::with(&["--tls-min-version=VersionTLS13"]).await;
    let old = Client { tls: &TLS12, ..server.client.clone() };
    let error = old.connect().await.unwrap_err().to_string();
    assert!(error.contains("ProtocolVersion"), "{error}");
    assert!(Client { tls: &TLS13, ..server.client.clone() }.connect().await.is_ok());
    server.stop_unharmed().await;
}

#[tokio::test]
async fn whoever_is_slow_in_the_handshake_is_let_go() {
    let server = Server::with(&["--handshake-timeout=200ms"]).await;
    let whole = hello(3);
    let streams = [tcp(&server, b"").await, tcp(&server, &whole[..1]).await, tcp(&server, &whole[..20]).await];
    server.is_unharmed().await;
    for mut stream in streams {
        until_closed(&mut stream).await;
    }
    server.stop().await;
}

#[rstest]
#[case::nothing(Http::One, b"", "--idle-timeout=200ms")]
#[case::nothing_of_http2(Http::Two, b"", "--idle-timeout=200ms")]
#[case::half_a_head(Http::One, b"POST /validate HTTP/1.1\r\nhost: h\r\nx-slow: ", "--header-timeout=200ms")]
#[case::half_a_preface(Http::Two, b"PRI * HTTP/2.0\r\n", "--idle-timeout=200ms")]
#[case::no_request(Http::Two, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "--idle-timeout=200ms")]
#[tokio::test]
async fn whoever_is_slow_before_a_request_is_let_go(#[case] http: Http, #[case] begin: &[u8], #[case] limit: &str) {
    let server = Server::with(&[limit]).await;
    let mut stream = Client { http, ..server.client.clone() }.connect().await.unwrap();
    send(&mut stream, begin).await;
    server.is_unharmed().await;
    until_closed(&mut stream).await;
    server.stop().await;
}

#[tokio::test]
async fn a_slow_body_is_answered_with_408() {
    let server = Server::with(&["--body-timeout=200ms"]).await;
    let client = Client { http: Http::One, ..server.client.clone() };
    for framing in ["content-length: 100", "transfer-encoding: chunked"] {
        let mut stream = client.connect().await.unwrap();
        send(&mut stream, format!("{}1\r\n{{", head(framing)).as_bytes()).await;
        server.is_unharmed().await;
        let answer = String::from_utf8(until_closed(&mut stream).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
        assert!(answer.ends_with("the body did not arrive within 200ms\n"), "{answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_oversized_body_is_refused_before_it_is_sent() {
    let server = Server::start().await;
    let mut stream = Client { http: Http::One, ..server.client.clone() }.connect().await.unwrap();
    send(&mut stream, head("content-length: 9000000").as_bytes()).await;
    let answer = String::from_utf8(until_closed(&mut stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("larger than 8388608 bytes"), "{answer}");
    server.stop_unharmed().await;
}

#[tokio::test]
async fn an_oversized_head_is_refused() {
    let server = Server::start().await;
    for http in [Http::One, Http::Two] {
        let client = Client { http, ..server.client.clone() };
        let mut large = request(Method::POST, VALIDATE_PATH, JSON, "");
        large.headers_mut().insert("x-large", "x".repeat(9 << 10).parse().unwrap());
        assert_eq!(client.send(large).await.status, 431, "{http:?}");
    }
    server.stop_unharmed().await;
}

#[tokio::test]
async fn half_open_connections_displace_each_other_alone() {
    const FLOOD: usize = 3000;
    let server = Server::with(&["--max-connections=100"]).await;
    let body = review(&with("/spec", json!({}))).to_string();
    // A good client, connected before the flood comes, and at work all the while.
    let (mut sender, connection) = http2(server.client.connect().await.unwrap()).await.unwrap();
    let mut flood = Vec::new();
    for number in 0..FLOOD {
        flood.push(tcp(&server, if number % 2 == 0 { b"" } else { b"\x16" }).await);
        if number % 100 == 0 {
            let answer = sender.send_request(request(Method::POST, VALIDATE_PATH, JSON, body.clone())).await.unwrap();
            assert_eq!(answer.status(), 200);
            server.is_unharmed().await;
        }
    }
    // All but those that have a place are closed.
    let displaced = flood.drain(..FLOOD - 100);
    join_all(displaced.map(async |mut stream| until_closed(&mut stream).await)).await;
    drop((sender, flood));
    connection.await.unwrap().unwrap();
    server.stop().await;
}

#[tokio::test]
async fn requests_that_are_taken_back_do_no_harm() {
    const RESETS: usize = 3000;
    let server = Server::start().await;
    let body = review(&with("/spec", json!({}))).to_string();
    let mut reset = 0;
    while reset < RESETS {
        let (mut sender, connection) = http2(server.client.connect().await.unwrap()).await.unwrap();
        // Until the server has enough of this client.
        while reset < RESETS && sender.ready().await.is_ok() {
            let asked = sender.send_request(request(Method::POST, VALIDATE_PATH, JSON, Bytes::from(body.clone())));
            drop(tokio::spawn(timeout(Duration::from_micros(50), asked)));
            reset += 1;
        }
        drop(sender);
        connection.abort();
    }
    server.stop_unharmed().await;
}

#[rstest]
#[case::by_default(&[], 100)]
#[case::with_a_flag(&["--max-concurrent-streams=7"], 7)]
#[tokio::test]
async fn http2_peers_are_told_what_they_may_ask_for(#[case] flags: &[&str], #[case] streams: u32) {
    let server = Server::with(flags).await;
    let mut stream = preface(&server).await;
    let mut head = [0; 9];
    timeout(LIMIT, stream.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!((head[0], head[1], head[3]), (0, 0, 4), "a short frame of settings: {head:?}");
    let mut settings = vec![0; usize::from(head[2])];
    timeout(LIMIT, stream.read_exact(&mut settings)).await.unwrap().unwrap();
    let settings: Vec<(u8, u32)> =
        settings.chunks(6).map(|it| (it[1], u32::from_be_bytes(it[2..].try_into().unwrap()))).collect();
    // SETTINGS_MAX_CONCURRENT_STREAMS and SETTINGS_MAX_HEADER_LIST_SIZE.
    assert!(settings.contains(&(3, streams)) && settings.contains(&(6, 8192)), "{settings:?}");
    server.stop().await;
}

#[tokio::test]
async fn peers_that_do_not_answer_pings_are_let_go() {
    let server = Server::with(&["--keep-alive-interval=200ms", "--keep-alive-timeout=200ms"]).await;
    let mut stream = preface(&server).await;
    until_closed(&mut stream).await;
    server.stop_unharmed().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_time() {
    let server = Server::with(&["--idle-timeout=200ms"]).await;
    let body = review(&with("/spec", json!({}))).to_string();
    let (mut sender, connection) = http2(server.client.connect().await.unwrap()).await.unwrap();
    let answer = sender.send_request(request(Method::POST, VALIDATE_PATH, JSON, body)).await.unwrap();
    assert_eq!(answer.status(), 200);
    timeout(LIMIT, connection).await.expect("the connection is closed").unwrap().expect("without an error");
    server.stop_unharmed().await;
}
