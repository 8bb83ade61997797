//! Connections that clients keep, as API servers do: for how long, and what becomes of them when the service is to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use jobset_harness::wait;
use jobset_webhook::serve::VALIDATE_PATH;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::abuse::until_closed;
use crate::client::{self, Client, Http, JSON, request};
use crate::server::{LIMIT, Server, review, with};

fn ask() -> Request<Full<Bytes>> {
    request(Method::POST, VALIDATE_PATH, JSON, review(&with("/spec", json!({}))).to_string())
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(client::Sender),
}

struct Kept {
    sender: Sender,
    ended: JoinHandle<hyper::Result<()>>,
}

/// What became of a review.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Answered,
    /// And told not to ask again on this connection.
    AnsweredForTheLastTime,
    /// It was not sent: the server has said before that it would not be answered.
    TurnedAway,
}

impl Kept {
    async fn open(client: &Client) -> Result<Self> {
        let stream = client.connect().await?;
        Ok(match client.http {
            Http::One => {
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
                Self { sender: Sender::One(sender), ended: tokio::spawn(connection) }
            }
            Http::Two => {
                let (sender, ended) = client::http2(stream).await?;
                Self { sender: Sender::Two(sender), ended }
            }
        })
    }

    async fn ask(&mut self) -> Result<Asked> {
        let answer: Response<Incoming> = match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await?;
                sender.send_request(ask()).await?
            }
            Sender::Two(sender) => {
                if sender.ready().await.is_err() {
                    return Ok(Asked::TurnedAway);
                }
                match sender.try_send_request(ask()).await {
                    Ok(answer) => answer,
                    Err(mut error) => match error.take_message() {
                        Some(_) => return Ok(Asked::TurnedAway),
                        None => return Err(error.into_error()).context("a review was lost"),
                    },
                }
            }
        };
        let last = answer.headers().get("connection").is_some_and(|it| it == "close");
        let answer: Value = serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?;
        anyhow::ensure!(answer["response"]["allowed"] == true, "{answer}");
        Ok(if last { Asked::AnsweredForTheLastTime } else { Asked::Answered })
    }

    async fn ended(self) {
        timeout(LIMIT, self.ended).await.expect("the connection is closed").unwrap().expect("without an error");
    }
}

fn http(http: Http, server: &Server) -> Client {
    Client { http, ..server.client.clone() }
}

/// A connection whose head does not come is given the whole time for it before it is closed.
async fn time_for_a_head_passes(server: &Server) {
    let mut slow = http(Http::One, server).connect().await.unwrap();
    slow.write_all(b"POST /validate HTTP/1.1\r\nhost: ").await.unwrap();
    assert_eq!(until_closed(&mut slow).await, b"");
}

#[rstest]
#[tokio::test]
async fn a_kept_connection_outlives_the_time_for_a_head(#[values(Http::One, Http::Two)] version: Http) {
    let server = Server::with(&["--header-timeout=300ms"]).await;
    let mut kept = Kept::open(&http(version, &server)).await.unwrap();
    for _ in 0..3 {
        assert_eq!(kept.ask().await.unwrap(), Asked::Answered);
        time_for_a_head_passes(&server).await;
    }
    assert_eq!(kept.ask().await.unwrap(), Asked::Answered);
    server.stop().await;
}

/// API servers connect while all their connections are in use, ask over the first that is free again, and keep the new
/// one for later. A review that they send while it is being closed fails.
#[rstest]
#[tokio::test]
async fn a_connection_in_reserve_outlives_the_time_for_a_head(#[values(Http::One, Http::Two)] version: Http) {
    let server = Server::with(&["--header-timeout=300ms"]).await;
    let mut reserve = Kept::open(&http(version, &server)).await.unwrap();
    for _ in 0..3 {
        time_for_a_head_passes(&server).await;
    }
    assert_eq!(reserve.ask().await.unwrap(), Asked::Answered);
    server.stop().await;
}

#[tokio::test]
async fn a_slow_head_is_closed_on_a_kept_connection_too() {
    let server = Server::with(&["--header-timeout=300ms"]).await;
    let mut stream = http(Http::One, &server).connect().await.unwrap();
    let body = review(&with("/spec", json!({}))).to_string();
    let begin = format!("POST {VALIDATE_PATH} HTTP/1.1\r\nhost: h\r\ncontent-type: {JSON}\r\n");
    let whole = format!("{begin}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(whole.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}}") {
        timeout(LIMIT, stream.read_buf(&mut answer)).await.unwrap().unwrap();
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&answer));
    stream.write_all(begin.as_bytes()).await.unwrap();
    assert_eq!(until_closed(&mut stream).await, b"");
    server.stop_unharmed().await;
}

#[tokio::test]
async fn drain_ends_kept_connections_and_accepts_new_ones() {
    let server = Server::start().await;
    let (one, two) = (http(Http::One, &server), http(Http::Two, &server));
    let (mut kept, mut kept_two) = (Kept::open(&one).await.unwrap(), Kept::open(&two).await.unwrap());
    assert_eq!(kept.ask().await.unwrap(), Asked::Answered);
    assert_eq!(kept_two.ask().await.unwrap(), Asked::Answered);
    let (mut silent, mut silent_two) = (Kept::open(&one).await.unwrap(), Kept::open(&two).await.unwrap());
    server.drain();
    // Of the two versions only this one has a way to say so unasked.
    kept_two.ended().await;
    for kept in [&mut kept, &mut silent, &mut Kept::open(&one).await.unwrap()] {
        assert_eq!(kept.ask().await.unwrap(), Asked::AnsweredForTheLastTime);
    }
    kept.ended().await;
    silent.ended().await;
    let mut late = Kept::open(&two).await.unwrap();
    for kept in [&mut silent_two, &mut late] {
        assert_eq!(kept.ask().await.unwrap(), Asked::Answered);
    }
    silent_two.ended().await;
    late.ended().await;
    server.stop_unharmed().await;
}

/// Asks the first server until it says not to, and then the second one, so many times each at least.
async fn move_over(clients: [Client; 2], answered: Arc<AtomicU32>) -> Result<()> {
    const LEAST: u32 = 50;
    let mut kept = Kept::open(&clients[0]).await?;
    while kept.ask().await? == Asked::Answered {
        answered.fetch_add(1, Ordering::Relaxed);
    }
    let mut kept = Kept::open(&clients[1]).await?;
    for _ in 0..LEAST {
        anyhow::ensure!(kept.ask().await? == Asked::Answered, "the second server is not to stop");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_loses_no_review_on_kept_connection() {
    const CLIENTS: u32 = 16;
    let (stopping, staying) = (Server::start().await, Server::start().await);
    let answered = Arc::new(AtomicU32::new(0));
    let clients = (0..CLIENTS).map(|number| {
        let version = if number % 2 == 0 { Http::One } else { Http::Two };
        tokio::spawn(move_over([&stopping, &staying].map(|it| http(version, it)), Arc::clone(&answered)))
    });
    let clients: Vec<_> = clients.collect();
    let busy = async || Ok((answered.load(Ordering::Relaxed) >= 20 * CLIENTS).then_some(()));
    wait::until(LIMIT, "clients that ask all the time", busy).await.unwrap();
    stopping.drain();
    for ended in timeout(LIMIT, try_join_all(clients)).await.expect("all are told").unwrap() {
        ended.unwrap();
    }
    stopping.stop().await;
    staying.stop().await;
}
