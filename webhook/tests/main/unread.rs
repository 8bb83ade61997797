//! Clients that send no more, or take no answers: others get their memory, and they themselves an end.

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use http_body_util::{BodyExt as _, Full};
use hyper::Method;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jobset_harness::wait;
use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::abuse::{send, until_closed};
use crate::client::{Client, Http, JSON, request};
use crate::server::{LIMIT, Server};

/// Most of the 8 MiB that these servers have, and more than what the kernel holds for a client that does not read.
const LARGE: usize = 7_900_000;
/// Less than HTTP/2 hands over at once where it may.
const SMALL: usize = 15_000;
const WINDOW: u32 = 1 << 16;

fn routes() -> Router {
    Router::new()
        .route("/large", post(async || vec![b'x'; LARGE]))
        .route("/small", post(async || vec![b'x'; SMALL]))
        .route("/length", post(async |body: Bytes| body.len().to_string()))
}

async fn large_answer_is_given(server: &Server) {
    wait::until(LIMIT, "a large answer", async || {
        let answer = server.client.post("/large", JSON, "").await;
        assert!(matches!(answer.status.as_u16(), 200 | 503), "{answer:?}");
        Ok((answer.body.len() == LARGE).then_some(()))
    })
    .await
    .unwrap();
}

#[rstest]
#[tokio::test]
async fn an_answer_that_nobody_takes_gives_way_to_others(#[values(Http::One, Http::Two)] http: Http) {
    let flags = ["--max-body-memory=8", "--body-timeout=60s", "--displace-after=100ms"];
    let server = Server::of(routes(), &flags).await;
    let stream = TokioIo::new(Client { http, ..server.client.clone() }.connect().await.unwrap());
    let asked: hyper::Request<Full<Bytes>> = request(Method::POST, "/large", JSON, "");
    let unread = match http {
        Http::One => {
            let (mut sender, connection) = http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(asked).await.unwrap()
        }
        Http::Two => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
            let (mut sender, connection) = builder.handshake(stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(asked).await.unwrap()
        }
    };
    assert_eq!(unread.status(), 200);
    large_answer_is_given(&server).await;
    assert!(unread.into_body().collect().await.is_err(), "it was not all there any more");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_gives_way_to_others() {
    let flags = ["--max-body-memory=8", "--body-timeout=60s", "--displace-after=100ms"];
    let server = Server::of(routes(), &flags).await;
    let mut stalled = Client { http: Http::One, ..server.client.clone() }.connect().await.unwrap();
    let head = format!("POST /length HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {LARGE}\r\n\r\n");
    stalled.write_all(head.as_bytes()).await.unwrap();
    send(&mut stalled, &vec![b' '; LARGE - 1]).await;
    large_answer_is_given(&server).await;
    // On a busy machine the answer is there before the last byte is sent, and the connection closed.
    if stalled.write_all(b" ").await.is_ok() {
        let _ = stalled.flush().await;
    }
    let answer = String::from_utf8(until_closed(&mut stalled).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
    let reason = "the body came too slowly: others needed its memory after 100ms (--displace-after); try again\n";
    assert!(answer.ends_with(reason), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn large_answer_not_read_in_time_ends_connection() {
    let server = Server::of(routes(), &["--body-timeout=300ms"]).await;
    let mut unread = Client { http: Http::One, ..server.client.clone() }.connect().await.unwrap();
    send(&mut unread, b"POST /large HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n").await;
    let mut begun = [0; 15];
    unread.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    // Writing fails once the connection is closed on the other side.
    let closed = async { while unread.write_all(b"x").await.is_ok() && unread.flush().await.is_ok() {} };
    timeout(LIMIT, closed).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn small_answer_not_read_in_time_ends_connection() {
    let server = Server::of(routes(), &["--body-timeout=300ms"]).await;
    let stream = TokioIo::new(server.client.connect().await.unwrap());
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1);
    let (mut sender, connection) = builder.handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let unread = sender.send_request(request(Method::POST, "/small", JSON, "")).await.unwrap();
    assert_eq!(unread.status(), 200);
    timeout(LIMIT, connection).await.expect("the connection is closed").unwrap().ok();
    drop(unread);
    server.stop().await;
}
